// block_reports.cpp: what a block says when its threads wait for each other in vain.
#include <algorithm>
#include <cstdio>

#include "block.h"
#include "check.h"
#include "lanes.h"

namespace simt {

// What a GPU leaves undefined: lanes of the mask that returned, sources that take no part.
void Block::check_lanes(int w, uint32_t mask) {
    const Warp& warp = warps_[w];
    const uint32_t lanes = mask & warp.posted, gone = mask & warp.exited;
    const int first = w << 5 | lowest(lanes);
    if (gone)
        launch_->checker->add(report(Kind::early_exit, nullptr, first, w << 5 | lowest(gone)));
    if (warp.post[lowest(lanes)].op != WarpOp::shuffle) return;
    for_each_lane(lanes, [&](int l) {
        const int source = warp.post[l].source_lane & 31;
        if (lanes >> source & 1) return;
        Report r = report(Kind::inactive_source, wait_pc_[w << 5 | l], -1, w << 5 | l);
        r.value = source;
        launch_->checker->add(r);
    });
}

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
        Report* place =
            std::find_if(places, places + num_places, [&](const Report& r) { return r.pc == pc; });
        if (place == places + 8) continue;
        if (place == places + num_places) {
            places[num_places++] = report(Kind::deadlock, wait_pc_[t], -1, t);
            const bool in_warp_op = warp.posted >> (t & 31) & 1;
            snprintf(place->text, sizeof place->text,
                     in_warp_op ? "a warp operation" : "a barrier");
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
