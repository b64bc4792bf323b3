// shadow.h: who touched each piece of a memory region last.
#pragma once
#include <cstdint>

namespace simt {

enum class Space : int32_t { global, shared, module };

// One access, and when: block, barriers and warp operations passed by then.
struct Mark {
    uint32_t block, barrier_epoch, warp_epoch;
    uint32_t pc;
    uint32_t thread_plus_1;  // 0: nobody, which is what a fresh page of zeros says

    bool empty() const { return thread_plus_1 == 0; }
    uint32_t thread() const { return thread_plus_1 - 1; }
    bool same_thread(const Mark& o) const { return thread_plus_1 == o.thread_plus_1 && block == o.block; }
    bool same_warp(const Mark& o) const { return block == o.block && thread() / 32 == o.thread() / 32; }
    bool same_interval(const Mark& o) const { return block != o.block || barrier_epoch == o.barrier_epoch; }
};

// Two accesses are enough: if any earlier one is unordered with a newcomer, one of the two is. The
// latest stands for its own warp; the other is, if it can be, from another warp.
struct Latest {
    Mark last, other;
    void add(const Mark& mark);
};

struct Cell {
    Mark write;
    Latest reads, atomics;
};

// A cell for each 4 bytes of a region, or for each 2 or 1 once somebody makes a smaller access.
class Shadow {
   public:
    explicit Shadow(uint64_t begin, uint64_t end);
    ~Shadow();
    Shadow(const Shadow&) = delete;

    // The cells [*first, *last) under an access.
    void cells(uint64_t address, int size, Cell** first, Cell** last);
    uint64_t address_of(const Cell* cell) const { return begin_ + (static_cast<uint64_t>(cell - cells_) << shift_); }
    int bytes_per_cell() const { return 1 << shift_; }

   private:
    void refine(int shift);
    Cell* map(int shift) const;
    uint64_t bytes(int shift) const { return ((end_ - begin_ + 3) >> shift) * sizeof(Cell); }
    const uint64_t begin_, end_;
    int shift_ = 2;
    Cell* cells_;
};

}  // namespace simt
