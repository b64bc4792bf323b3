#include "block.h"

#include <algorithm>
#include <cstdio>

#include "check.h"

namespace simt {

SIMT_TLS Ids ids;
SIMT_TLS Block* this_block;

static uint32_t first_lanes(int n) { return n >= kWarp ? ~0u : (1u << n) - 1; }
static int lowest(uint32_t lanes) { return __builtin_ctz(lanes); }

// Calls f(lane) for each bit that is set.
template <class F>
static void for_each_lane(uint32_t lanes, F f) {
    for (; lanes; lanes &= lanes - 1) f(lowest(lanes));
}

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
    ids.block = {static_cast<unsigned>(linear_block % g[0]), static_cast<unsigned>(linear_block / g[0] % g[1]),
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
    simt_switch(&main_sp_, sp_[0]);  // comes back when the last thread is done, or stop() was called
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
    const auto pick = [](uint32_t set, int after) {
        const uint32_t later = after == 31 ? 0 : set & (~0u << (after + 1));
        return lowest(later ? later : set);
    };
    const int w = current_ >> 5;
    if (warps_[w].ready) return w << 5 | pick(warps_[w].ready, current_ & 31);
    if (!ready_warps_) return -1;
    const int next = pick(ready_warps_, w);
    return next << 5 | lowest(warps_[next].ready);
}

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

void Block::yield() {
    const int next = next_ready();
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

static uint64_t reduce(const Warp& warp, uint32_t lanes, WarpOp op) {
    int64_t total = static_cast<int64_t>(warp.post[lowest(lanes)].value);
    for_each_lane(lanes & (lanes - 1), [&](int l) {
        const int64_t v = static_cast<int64_t>(warp.post[l].value);
        switch (op) {
            case WarpOp::reduce_add: total += v; break;
            case WarpOp::reduce_min: total = std::min(total, v); break;
            case WarpOp::reduce_max: total = std::max(total, v); break;
            case WarpOp::reduce_and: total &= v; break;
            case WarpOp::reduce_or: total |= v; break;
            default: total ^= v; break;
        }
    });
    return static_cast<uint64_t>(total);
}

static uint32_t ballot(const Warp& warp, uint32_t lanes) {
    uint32_t votes = 0;
    for_each_lane(lanes, [&](int l) { votes |= static_cast<uint32_t>(warp.post[l].value) << l; });
    return votes;
}

void Block::perform(int w, uint32_t mask) {
    Warp& warp = warps_[w];
    const uint32_t lanes = mask & warp.posted;
    const WarpOp op = warp.post[lowest(lanes)].op;
    if (launch_->checker) check_lanes(w, mask);
    if (op == WarpOp::shuffle) {
        for_each_lane(lanes, [&](int l) { warp.post[l].result = warp.post[warp.post[l].source_lane & 31].value; });
    } else {
        uint64_t result = 0;
        if (op == WarpOp::ballot) result = ballot(warp, lanes);
        else if (op == WarpOp::any) result = ballot(warp, lanes) != 0;
        else if (op == WarpOp::all) result = ballot(warp, lanes) == lanes;
        else if (op != WarpOp::sync) result = reduce(warp, lanes, op);
        for_each_lane(lanes, [&](int l) { warp.post[l].result = result; });
    }
    warp.posted &= ~lanes;
    ++warp.epoch;
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

// What a GPU leaves undefined: lanes of the mask that returned, sources that take no part.
void Block::check_lanes(int w, uint32_t mask) {
    const Warp& warp = warps_[w];
    const uint32_t lanes = mask & warp.posted, gone = mask & warp.exited;
    const int first = w << 5 | lowest(lanes);
    if (gone) launch_->checker->add(report(Kind::early_exit, nullptr, first, w << 5 | lowest(gone)));
    if (warp.post[lowest(lanes)].op != WarpOp::shuffle) return;
    for_each_lane(lanes, [&](int l) {
        const int source = warp.post[l].source_lane & 31;
        if (lanes >> source & 1) return;
        Report r = report(Kind::inactive_source, wait_pc_[w << 5 | l], -1, w << 5 | l);
        r.value = source;
        launch_->checker->add(r);
    });
}

// ---- reports ----------------------------------------------------------------------------------
// About `thread` (the current one if negative) at `pc`, and perhaps another thread that waits.
Report Block::report(Kind kind, const void* pc, int waiting, int thread) const {
    Report r{};
    r.kind = kind;
    r.region = -1;
    r.count = 1;
    r.thread = thread < 0 ? current_ : thread;
    r.other_thread = waiting;
    r.block = r.other_block = linear_block_;
    r.pc = reinterpret_cast<uint64_t>(pc);
    if (waiting >= 0) r.other_pc = reinterpret_cast<uint64_t>(wait_pc_[waiting]);
    return r;
}

// One report for each place where threads wait: `thread` is the first of `value` threads there.
void Block::report_deadlock() {
    Report places[8];
    int num_places = 0;
    for (int t = 0; t < launch_->num_threads; ++t) {
        const Warp& warp = warps_[t >> 5];
        if (warp.exited >> (t & 31) & 1) continue;
        const uint64_t pc = reinterpret_cast<uint64_t>(wait_pc_[t]);
        Report* place = std::find_if(places, places + num_places, [&](const Report& r) { return r.pc == pc; });
        if (place == places + 8) continue;
        if (place == places + num_places) {
            places[num_places++] = report(Kind::deadlock, wait_pc_[t], -1, t);
            const bool in_warp_op = warp.posted >> (t & 31) & 1;
            snprintf(place->text, sizeof place->text, in_warp_op ? "a warp operation" : "a barrier");
        }
        ++place->value;
    }
    for (int i = 0; i < num_places; ++i) launch_->add_and_stop(places[i]);
    stopped_ = true;
}

// Ends the launch: this fiber and all others of the block are never resumed.
void Block::stop(const Report& r) {
    launch_->add_and_stop(r);
    stopped_ = true;
    simt_switch(&sp_[current_], main_sp_);
    __builtin_unreachable();
}

}  // namespace simt
