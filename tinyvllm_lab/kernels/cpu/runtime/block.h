// block.h: one block of a grid, run as fibers on one OS thread.
#pragma once
#include <cstdint>

#include "fiber.h"
#include "launch.h"

namespace simt {

constexpr int kMaxThreads = 1024, kWarp = 32, kMaxWarps = kMaxThreads / kWarp;

// What a lane brings to a warp operation, and what it takes away.
struct Post {
    uint64_t value, result;
    uint32_t mask;
    WarpOp op;
    int source_lane;
};

struct Warp {
    uint32_t exists, fresh, ready, posted, exited;  // one bit a lane
    uint32_t epoch;                                 // barriers and __syncwarps passed
    Post post[kWarp];
};

class Block {
  public:
    void run(Launch& launch, uint64_t linear_block);

    // Called on a fiber, for the thread that runs now.
    int barrier(int line, BarrierOp op, int predicate, const void* pc);
    uint64_t warp_op(uint32_t mask, WarpOp op, uint64_t value, int source_lane, const void* pc);
    void yield();
    Report report(Kind kind, const void* pc, int waiting = -1, int thread = -1) const;
    [[noreturn]] void stop(const Report& report);  // ends the launch

    void set_shape(const Launch& launch);
    void forget_launch() { launch_ = nullptr; }
    Checker* checker() const { return launch_ ? launch_->checker : nullptr; }
    int thread() const { return current_; }
    uint32_t active_lanes() const {
        return warps_[current_ >> 5].exists & ~warps_[current_ >> 5].exited;
    }
    uint64_t linear_block() const { return linear_block_; }
    uint32_t barrier_epoch() const { return barrier_epoch_; }
    uint32_t warp_epoch() const { return warps_[current_ >> 5].epoch; }
    const char* stack() const { return stacks_.bottom(stack_of_[current_]); }

  private:
    static void fiber_main();
    void reset(uint64_t linear_block);
    void finish_thread();
    void start(int thread);
    void switch_to(int thread);
    void become(int thread) {
        current_ = thread;
        ids.thread = thread_id_[thread];
        ids.lane = thread & 31;
    }
    void leave();
    int next_ready() const;
    int first_ready(int warp) const;
    void make_ready(int warp, uint32_t lanes);
    void wait(const void* pc);
    void release_barrier();
    int first_exited() const;
    static bool complete(const Warp& warp, uint32_t mask);
    void check_same_op(const Warp& warp, uint32_t mask, WarpOp op);
    void check_lanes(int warp, uint32_t mask);
    void perform(int warp, uint32_t mask);
    void complete_after_exit(int warp);
    void report_deadlock();

    Launch* launch_ = nullptr;
    StackPool stacks_;
    void* main_sp_ = nullptr;
    uint64_t linear_block_ = 0;
    int current_ = 0, live_ = 0, num_warps_ = 0;
    uint32_t ready_warps_ = 0;  // one bit a warp: has it a ready lane
    bool stopped_ = false;

    int arrived_ = 0, first_at_barrier_ = 0, barrier_line_ = 0, votes_ = 0, barrier_result_ = 0;
    uint32_t barrier_epoch_ = 0;
    BarrierOp barrier_op_ = BarrierOp::wait;

    Warp warps_[kMaxWarps];
    void* sp_[kMaxThreads];
    int stack_of_[kMaxThreads];
    const void* wait_pc_[kMaxThreads];
    uint3 thread_id_[kMaxThreads];
};

// The block that this OS thread runs; null on a thread that never ran one.
extern SIMT_TLS Block* this_block;

}  // namespace simt
