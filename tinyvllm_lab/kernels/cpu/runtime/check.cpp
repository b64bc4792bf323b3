#include "check.h"

#include <algorithm>
#include <chrono>

#include "block.h"

namespace simt {

static uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

Checker::Checker(CheckRequest& request, ReportLog& log)
    : request_(request),
      log_(log),
      deadline_ns_(now_ns() + static_cast<uint64_t>(request.time_limit_s * 1e9)),
      fenced_(kMaxThreads, 0) {
    for (int i = 0; i < request.num_regions; ++i) {
        const Region& r = request.regions[i];
        const bool can_race = request.check_races && r.writable && r.end > r.begin;
        shadows_.emplace_back(can_race ? new Shadow(r.begin, r.end) : nullptr);
    }
}

// ---- each load and store ------------------------------------------------------------------------
void Checker::on_access(const void* p, int size, Access kind, const void* pc, bool aligned) {
    const uint64_t address = reinterpret_cast<uint64_t>(p),
                   end = address + static_cast<uint64_t>(size);
    if (on_own_stack(p, this_block->stack())) return;
    if (address - reinterpret_cast<uint64_t>(&ids) < sizeof ids) return;
    last_pc_ = pc;
    ++request_.num_accesses;
    check_time(pc);
    const int region = find_region(address, end, pc);
    if (request_.events) log(address, size, static_cast<uint8_t>(kind), region, pc);
    if (region < 0) refuse(Kind::out_of_bounds, address, size, kind, usual_region(pc), pc);
    if (aligned && address & static_cast<uint64_t>(size - 1))
        refuse(Kind::misaligned, address, size, kind, region, pc);
    const Region& r = request_.regions[region];
    if (kind != Access::read && !r.writable)
        refuse(Kind::read_only_write, address, size, kind, region, pc);
    if (kind == Access::atomic && r.space == Space::global) acquire_and_release(address);
    if (shadows_[region]) check_order(region, address, size, kind, pc);
}

void Checker::refuse(Kind kind, uint64_t address, int size, Access access, int region,
                     const void* pc) {
    this_block->stop(report(kind, address, size, access, region, pc));
}

// The region that holds [begin, end), or -1.
int Checker::find_region(uint64_t begin, uint64_t end, const void* pc) {
    const auto holds = [&](int i) {
        return begin >= request_.regions[i].begin && end <= request_.regions[i].end;
    };
    auto& last = last_region_[reinterpret_cast<uint64_t>(pc) & 255];
    if (last.pc == pc && holds(last.region)) return last.region;
    for (int i = 0; i < request_.num_regions; ++i) {
        if (!holds(i)) continue;
        last = {pc, i};
        return i;
    }
    return -1;
}

// Which region this instruction was in before, or -1: most likely the one it meant to be in.
int Checker::usual_region(const void* pc) const {
    const auto& last = last_region_[reinterpret_cast<uint64_t>(pc) & 255];
    return last.pc == pc ? last.region : -1;
}

// Sees endless loops, if they touch memory or meet at barriers. (A forked child has an alarm too.)
void Checker::check_time(const void* pc) {
    if ((++ticks_ & 0x3ff) == 0 && now_ns() > deadline_ns_)
        this_block->stop(this_block->report(Kind::time_limit, pc));
}

void Checker::on_event(EventKind kind, const void* pc) {
    last_pc_ = pc;
    check_time(pc);
    if (request_.events) log(0, 0, kind, -1, pc);
}

void Checker::log(uint64_t address, int size, uint8_t kind, int region, const void* pc) {
    const uint64_t block = this_block->linear_block();
    if (block < request_.first_logged_block || block >= request_.end_logged_block) return;
    if (request_.event_count >= request_.event_capacity) {
        ++request_.events_dropped;
        return;
    }
    request_.events[request_.event_count++] = {
        address,
        static_cast<uint32_t>(reinterpret_cast<uint64_t>(pc) - request_.code_begin),
        static_cast<uint32_t>(block),
        static_cast<uint16_t>(this_block->thread()),
        static_cast<uint8_t>(std::min(size, 255)),
        kind,
        static_cast<int16_t>(region),
        static_cast<uint16_t>(this_block->barrier_epoch())};
}

// ---- races --------------------------------------------------------------------------------------
// Something must lie between two accesses of different threads: a barrier of their block, a
// __syncwarp of their warp, or (between blocks) a fence and an atomic that the later block saw.
bool Checker::ordered(const Mark& earlier, const Mark& now) const {
    if (earlier.empty() || earlier.same_thread(now)) return true;
    if (earlier.block != now.block)
        return acquired_for_ == now.block && acquired_.count(earlier.block);
    if (earlier.barrier_epoch != now.barrier_epoch) return true;
    return earlier.same_warp(now) && earlier.warp_epoch != now.warp_epoch;
}

void Checker::check_order(int region, uint64_t address, int size, Access kind, const void* pc) {
    const Block& block = *this_block;
    const bool shared = request_.regions[region].space == Space::shared;
    const Mark now{static_cast<uint32_t>(block.linear_block()), block.barrier_epoch(),
                   block.warp_epoch(),
                   static_cast<uint32_t>(reinterpret_cast<uint64_t>(pc) - request_.code_begin),
                   static_cast<uint32_t>(block.thread() + 1)};
    Shadow& shadow = *shadows_[region];
    Cell *cell, *last;
    shadow.cells(address, size, &cell, &last);
    for (; cell != last; ++cell) {
        const auto must_follow = [&](const Mark& earlier, Access how) {
            if (!ordered(earlier, now))
                add(race(shadow.address_of(cell), size, kind, region, pc, earlier, how));
        };
        if (shared) {
            cell->forget_other_blocks(now.block);  // shared memory starts anew in each block
            if (kind != Access::write && cell->untouched())
                add(report(Kind::uninitialised, shadow.address_of(cell), size, kind, region, pc));
        }
        must_follow(cell->write, Access::write);
        if (kind != Access::atomic) {
            must_follow(cell->atomics.last, Access::atomic);
            must_follow(cell->atomics.other, Access::atomic);
        }
        if (kind != Access::read) {
            must_follow(cell->reads.last, Access::read);
            must_follow(cell->reads.other, Access::read);
        }
        if (kind == Access::write)
            cell->write = now;
        else if (kind == Access::read)
            cell->reads.add(now);
        else
            cell->atomics.add(now);
    }
}

Report Checker::race(uint64_t address, int size, Access access, int region, const void* pc,
                     const Mark& earlier, Access how) const {
    Report r = report(Kind::race, address, size, access, region, pc);
    r.other_access = how;
    r.other_thread = static_cast<int32_t>(earlier.thread());
    r.other_block = earlier.block;
    r.other_pc = request_.code_begin + earlier.pc;
    return r;
}

void Checker::on_fence() { fenced_[this_block->thread()] = this_block->linear_block() + 1; }

// The "last block adds up" pattern: write, __threadfence, atomic | atomic, then read what others wrote.
void Checker::acquire_and_release(uint64_t address) {
    const uint32_t block = static_cast<uint32_t>(this_block->linear_block());
    if (acquired_for_ != block) {
        acquired_.clear();
        acquired_for_ = block;
    }
    std::vector<uint32_t>& released = released_[address];
    acquired_.insert(released.begin(), released.end());
    if (fenced_[this_block->thread()] == this_block->linear_block() + 1) released.push_back(block);
}

// ---- reports --------------------------------------------------------------------------------------
Report Checker::report(Kind kind, uint64_t address, int size, Access access, int region,
                       const void* pc) const {
    Report r = this_block->report(kind, pc);
    r.address = address;
    r.size = size;
    r.access = access;
    r.region = region;
    return r;
}

void Checker::add(const Report& report) {
    uint64_t key = static_cast<uint64_t>(report.kind);
    for (uint64_t part : {report.pc, report.other_pc, static_cast<uint64_t>(report.region)})
        key = key * 0x9e3779b97f4a7c15u + part;
    const auto found = seen_.find(key);
    if (found != seen_.end()) {
        ++log_.reports[found->second].count;
    } else if (log_.count < log_.capacity) {
        seen_[key] = log_.count;
        log_.reports[log_.count++] = report;
    }
}

}  // namespace simt
