#include "shadow.h"

#include <sys/mman.h>

namespace simt {

void Latest::add(const Mark& mark) {
    if (!last.empty() && !last.same_thread(mark)) {
        const bool other_serves = !other.empty() && other.same_interval(mark) && !other.same_warp(mark);
        if (!other_serves || !last.same_warp(mark)) other = last;
    }
    last = mark;
}

Shadow::Shadow(uint64_t begin, uint64_t end) : begin_(begin), end_(end), cells_(map(shift_)) {}

Shadow::~Shadow() { munmap(cells_, bytes(shift_)); }

// Pages of zeros that cost memory only where somebody looks.
Cell* Shadow::map(int shift) const {
    return static_cast<Cell*>(mmap(nullptr, bytes(shift), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

void Shadow::cells(uint64_t address, int size, Cell** first, Cell** last) {
    const uint64_t offset = address - begin_, end = offset + static_cast<uint64_t>(size);
    while ((offset | end) & ((1u << shift_) - 1)) refine(shift_ - 1);
    *first = cells_ + (offset >> shift_);
    *last = cells_ + (end >> shift_);
}

// Each cell becomes two; happens at most twice in a region's life.
void Shadow::refine(int shift) {
    Cell* finer = map(shift);
    const uint64_t count = bytes(shift_) / sizeof(Cell);
    for (uint64_t i = 0; i < count; ++i) {
        if (cells_[i].write.empty() && cells_[i].reads.last.empty() && cells_[i].atomics.last.empty()) continue;
        finer[2 * i] = finer[2 * i + 1] = cells_[i];
    }
    munmap(cells_, bytes(shift_));
    cells_ = finer;
    shift_ = shift;
}

}  // namespace simt
