#include "shadow.h"

#include <sys/mman.h>

namespace simt {

Shadow::Shadow(uint64_t begin, uint64_t end) : begin_(begin), end_(end), cells_(map(shift_)) {}

Shadow::~Shadow() { munmap(cells_, bytes(shift_)); }

// Pages of zeros that cost memory only where somebody looks.
Cell* Shadow::map(int shift) const {
    return static_cast<Cell*>(mmap(nullptr, bytes(shift), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

// Each cell becomes two; happens at most twice in a region's life.
void Shadow::refine(int shift) {
    Cell* finer = map(shift);
    const uint64_t count = bytes(shift_) / sizeof(Cell);
    for (uint64_t i = 0; i < count; ++i) {
        if (cells_[i].write.empty() && cells_[i].reads.last.empty() &&
            cells_[i].atomics.last.empty())
            continue;
        finer[2 * i] = finer[2 * i + 1] = cells_[i];
    }
    munmap(cells_, bytes(shift_));
    cells_ = finer;
    shift_ = shift;
}

}  // namespace simt
