#include "block.h"

#include <algorithm>

#include "check.h"
#include "lanes.h"

namespace simt {

SIMT_TLS Ids ids;
SIMT_TLS Block* this_block;

// ---- life of a block --------------------------------------------------------------------------
void Block::set_shape(const Launch& launch) {
    const uint32_t* b = launch.request.block;
    const uint32_t* g = launch.request.grid;
    ids.block_dim = {b[0], b[1], b[2]};
    ids.grid_dim = {g[0], g[1], g[2]};
    for (int t = 0; t < launch.num_threads; ++t) {
        const unsigned u = static_cast<unsigned>(t);
        thread_id_[t] = {u % b[0], u / b[0] % b[1], u / b[0] / b[1]};
    }
}

void Block::reset(uint64_t linear_block) {
    const uint32_t* g = launch_->request.grid;
    linear_block_ = linear_block;
    ids.block = {static_cast<unsigned>(linear_block % g[0]),
                 static_cast<unsigned>(linear_block / g[0] % g[1]),
                 static_cast<unsigned>(linear_block / g[0] / g[1])};
    live_ = launch_->num_threads;
    num_warps_ = (live_ + kWarp - 1) / kWarp;
    ready_warps_ = first_lanes(num_warps_);
    arrived_ = votes_ = 0;
    barrier_epoch_ = 0;
    stopped_ = false;
    for (int w = 0; w < num_warps_; ++w) {
        const uint32_t lanes = first_lanes(live_ - w * kWarp);
        Warp& warp = warps_[w];
        warp.exists = warp.fresh = warp.ready = lanes;
        warp.posted = warp.exited = warp.epoch = 0;
    }
}

void Block::run(Launch& launch, uint64_t linear_block) {
    launch_ = &launch;
    reset(linear_block);
    start(0);
    // Comes back when the last thread is done, or when stop() was called.
    simt_switch(&main_sp_, sp_[0]);
    if (stopped_) stacks_.give_all();
}

// Gives a thread that has not run yet a stack and makes it the current one.
void Block::start(int thread) {
    warps_[thread >> 5].fresh &= ~(1u << (thread & 31));
    stack_of_[thread] = stacks_.take();
    sp_[thread] = prepare_stack(stacks_.top(stack_of_[thread]), fiber_main);
    become(thread);
}

void Block::fiber_main() {
    Block& block = *this_block;
    for (;;) {
        block.launch_->request.kernel->call(block.launch_->request.params);
        block.finish_thread();
        const int done = block.current_, next = block.next_ready();
        if (next >= 0 && block.warps_[next >> 5].fresh >> (next & 31) & 1) {
            // A thread that has not started takes over this very stack: no switch at all.
            block.warps_[next >> 5].fresh &= ~(1u << (next & 31));
            block.stack_of_[next] = block.stack_of_[done];
            block.become(next);
            continue;
        }
        block.stacks_.give(block.stack_of_[done]);
        block.switch_to(next);
    }
}

void Block::finish_thread() {
    const int w = current_ >> 5;
    const uint32_t bit = 1u << (current_ & 31);
    Warp& warp = warps_[w];
    warp.exited |= bit;
    warp.ready &= ~bit;
    if (!warp.ready) ready_warps_ &= ~(1u << w);
    --live_;
    if (warp.posted) complete_after_exit(w);
    if (arrived_ > 0 && arrived_ == live_) release_barrier();
}

// ---- the scheduler ----------------------------------------------------------------------------
// Ready lanes of the own warp first (like a warp in lockstep), then the next warp; -1 if none.
int Block::next_ready() const {
    const int w = current_ >> 5;
    if (warps_[w].ready) return w << 5 | next_after(warps_[w].ready, current_ & 31);
    return ready_warps_ ? first_ready(next_after(ready_warps_, w)) : -1;
}

int Block::first_ready(int warp) const { return warp << 5 | lowest(warps_[warp].ready); }

void Block::switch_to(int thread) {
    if (thread < 0) return leave();
    const int from = current_;
    if (warps_[thread >> 5].fresh >> (thread & 31) & 1) {
        start(thread);
    } else {
        become(thread);
    }
    simt_switch(&sp_[from], sp_[thread]);
}

// Back to run(): all threads are done, or none can go on.
void Block::leave() {
    if (live_ > 0 && !stopped_) report_deadlock();
    simt_switch(&sp_[current_], main_sp_);
}

void Block::make_ready(int warp, uint32_t lanes) {
    warps_[warp].ready |= lanes;
    if (lanes) ready_warps_ |= 1u << warp;
}

// Takes the current thread off the ready list and runs another one.
void Block::wait(const void* pc) {
    Warp& warp = warps_[current_ >> 5];
    wait_pc_[current_] = pc;
    warp.ready &= ~(1u << (current_ & 31));
    if (!warp.ready) ready_warps_ &= ~(1u << (current_ >> 5));
    switch_to(next_ready());
}

// Every ready thread of the block gets its turn before this one runs again.
void Block::yield() {
    const int w = current_ >> 5;
    const uint32_t later = warps_[w].ready & lanes_after(current_ & 31);
    const int next = later ? w << 5 | lowest(later) : first_ready(next_after(ready_warps_, w));
    if (next != current_) switch_to(next);
}

// ---- barriers ---------------------------------------------------------------------------------
int Block::barrier(int line, BarrierOp op, int predicate, const void* pc) {
    if (launch_->checker) launch_->checker->on_barrier(pc);
    if (arrived_ == 0) {
        barrier_line_ = line;
        barrier_op_ = op;
        first_at_barrier_ = current_;
    } else if (line != barrier_line_ || op != barrier_op_) {
        stop(report(Kind::divergent_barrier, pc, first_at_barrier_));
    }
    votes_ += predicate;
    wait_pc_[current_] = pc;
    if (++arrived_ < live_) {
        wait(pc);
    } else {
        release_barrier();
    }
    return barrier_result_;
}

// CUDA since Volta lets a barrier pass when all threads that have not returned are there. A checked
// run reports the missing ones: they are seldom meant.
void Block::release_barrier() {
    if (launch_->checker && live_ < launch_->num_threads)
        launch_->checker->add(report(Kind::early_exit, nullptr, first_at_barrier_, first_exited()));
    barrier_result_ = barrier_op_ == BarrierOp::count ? votes_
                      : barrier_op_ == BarrierOp::all ? votes_ == arrived_
                                                      : votes_ > 0;
    for (int w = 0; w < num_warps_; ++w) {
        make_ready(w, warps_[w].exists & ~warps_[w].exited);
        ++warps_[w].epoch;
    }
    arrived_ = votes_ = 0;
    ++barrier_epoch_;
}

int Block::first_exited() const {
    int w = 0;
    while (!warps_[w].exited) ++w;
    return w << 5 | lowest(warps_[w].exited);
}

// ---- warp operations --------------------------------------------------------------------------
// Lanes post their values; the last one to arrive works out everybody's result.
uint64_t Block::warp_op(uint32_t mask, WarpOp op, uint64_t value, int source_lane, const void* pc) {
    if (launch_->checker) launch_->checker->on_warp_op(pc);
    const int w = current_ >> 5, lane = current_ & 31;
    Warp& warp = warps_[w];
    if (!(mask >> lane & 1)) {
        Report r = report(Kind::bad_warp_mask, pc);
        r.value = mask;
        stop(r);
    }
    wait_pc_[current_] = pc;
    check_same_op(warp, mask, op);
    warp.post[lane] = {value, 0, mask, op, source_lane};
    warp.posted |= 1u << lane;
    if (complete(warp, mask)) {
        perform(w, mask);
    } else {
        wait(pc);
    }
    return warp.post[lane].result;
}

// Are all lanes of the mask here (or gone), and in this very operation? A lane may also wait in an
// operation with another mask, when half a warp runs ahead of the other half.
bool Block::complete(const Warp& warp, uint32_t mask) {
    if (mask & warp.exists & ~warp.posted & ~warp.exited) return false;
    bool together = true;
    for_each_lane(mask & warp.posted, [&](int l) { together &= warp.post[l].mask == mask; });
    return together;
}

// Compares with one lane only: it was compared with the others when it came.
void Block::check_same_op(const Warp& warp, uint32_t mask, WarpOp op) {
    if (!(warp.posted & mask)) return;
    const int lane = lowest(warp.posted & mask);
    if (warp.post[lane].mask == mask && warp.post[lane].op != op)
        stop(report(Kind::divergent_warp_op, wait_pc_[current_], (current_ & ~31) | lane));
}

static uint32_t ballot(const Warp& warp, uint32_t lanes) {
    uint32_t votes = 0;
    for_each_lane(lanes, [&](int l) { votes |= static_cast<uint32_t>(warp.post[l].value) << l; });
    return votes;
}

static int64_t combine(WarpOp op, int64_t a, int64_t b) {
    switch (op) {
        case WarpOp::reduce_add: return a + b;
        case WarpOp::reduce_min: return std::min(a, b);
        case WarpOp::reduce_max: return std::max(a, b);
        case WarpOp::reduce_and: return a & b;
        case WarpOp::reduce_or: return a | b;
        default: return a ^ b;
    }
}

// What all lanes get alike: everything but a shuffle.
static uint64_t common_result(const Warp& warp, uint32_t lanes, WarpOp op) {
    switch (op) {
        case WarpOp::sync: return 0;
        case WarpOp::ballot: return ballot(warp, lanes);
        case WarpOp::any: return ballot(warp, lanes) != 0;
        case WarpOp::all: return ballot(warp, lanes) == lanes;
        default: break;
    }
    int64_t total = static_cast<int64_t>(warp.post[lowest(lanes)].value);
    for_each_lane(lanes & (lanes - 1), [&](int l) {
        total = combine(op, total, static_cast<int64_t>(warp.post[l].value));
    });
    return static_cast<uint64_t>(total);
}

void Block::perform(int w, uint32_t mask) {
    Warp& warp = warps_[w];
    const uint32_t lanes = mask & warp.posted;
    const WarpOp op = warp.post[lowest(lanes)].op;
    if (launch_->checker) check_lanes(w, mask);
    const uint64_t common = op == WarpOp::shuffle ? 0 : common_result(warp, lanes, op);
    for_each_lane(lanes, [&](int l) {
        Post& post = warp.post[l];
        post.result = op == WarpOp::shuffle ? warp.post[post.source_lane & 31].value : common;
    });
    warp.posted &= ~lanes;
    if (op == WarpOp::sync) ++warp.epoch;  // CUDA: shuffles and votes order no memory accesses
    make_ready(w, lanes);
}

void Block::complete_after_exit(int w) {
    Warp& warp = warps_[w];
    for (uint32_t lanes = warp.posted; lanes; lanes &= lanes - 1) {
        const uint32_t mask = warp.post[lowest(lanes)].mask;
        if (!complete(warp, mask)) continue;
        perform(w, mask);
        lanes = warp.posted | 1u << lowest(lanes);  // start over with those that still wait
    }
}

}  // namespace simt
