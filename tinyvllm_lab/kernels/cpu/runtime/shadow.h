// shadow.h: who touched each piece of a memory region last.
#pragma once
#include <cstdint>

namespace simt {

enum class Space : int32_t { global, shared, module };

// One access, and when: block, barriers and __syncwarps passed by then.
struct Mark {
    uint32_t block, barrier_epoch, warp_epoch;
    uint32_t pc;
    uint32_t thread_plus_1;  // 0: nobody, which is what a fresh page of zeros says

    bool empty() const { return thread_plus_1 == 0; }
    uint32_t thread() const { return thread_plus_1 - 1; }
    bool same_thread(const Mark& o) const {
        return thread_plus_1 == o.thread_plus_1 && block == o.block;
    }
    bool same_warp(const Mark& o) const {
        return block == o.block && thread() / 32 == o.thread() / 32;
    }
    bool same_interval(const Mark& o) const {
        return block != o.block || barrier_epoch == o.barrier_epoch;
    }
};

// Two accesses are enough: if any earlier one is unordered with a newcomer, one of the two is. The
// latest stands for its own warp; the other is, if it can be, from another warp.
struct Latest {
    Mark last, other;
    void add(const Mark& mark) {
        if (!last.empty() && !last.same_thread(mark)) {
            const bool other_serves =
                !other.empty() && other.same_interval(mark) && !other.same_warp(mark);
            if (!other_serves || !last.same_warp(mark)) other = last;
        }
        last = mark;
    }
};

struct Cell {
    Mark write;
    Latest reads, atomics;

    bool untouched() const { return write.empty() && atomics.last.empty(); }
    void forget_other_blocks(uint32_t block) {
        if (write.block != block) write = Mark{};
        if (reads.last.block != block) reads = Latest{};
        if (atomics.last.block != block) atomics = Latest{};
    }
};

// A cell for each 4 bytes of a region, or for each 2 or 1 once somebody makes a smaller access.
class Shadow {
  public:
    Shadow(uint64_t begin, uint64_t end);
    ~Shadow();
    Shadow(const Shadow&) = delete;

    // The cells [*first, *last) under an access.
    void cells(uint64_t address, int size, Cell** first, Cell** last) {
        const uint64_t offset = address - begin_, end = offset + static_cast<uint64_t>(size);
        while ((offset | end) & ((1u << shift_) - 1)) refine(shift_ - 1);
        *first = cells_ + (offset >> shift_);
        *last = cells_ + (end >> shift_);
    }
    uint64_t address_of(const Cell* cell) const {
        return begin_ + (static_cast<uint64_t>(cell - cells_) << shift_);
    }

  private:
    void refine(int shift);
    Cell* map(int shift) const;
    uint64_t bytes(int shift) const { return ((end_ - begin_ + 3) >> shift) * sizeof(Cell); }
    const uint64_t begin_, end_;
    int shift_ = 2;
    Cell* cells_;
};

}  // namespace simt
