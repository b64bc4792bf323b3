// check.h: the checker of one launch. The compiler's hooks (hooks.cpp) tell it about each load and
// store; block.cpp tells it about barriers and warp operations. It runs on one OS thread.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "report.h"
#include "shadow.h"

namespace simt {

struct Launch;
class Block;

// A piece of memory the kernel may touch.
struct Region {
    uint64_t begin, end;
    Space space;
    int32_t writable;
};

// One line of the log that the x-ray is made from.
struct Event {
    uint64_t address;
    uint32_t pc;  // from the start of the kernel's shared object
    uint32_t block;
    uint16_t thread;
    uint8_t size, kind;  // kind: an Access, or an EventKind
    int16_t region;
    uint16_t barrier_epoch;
};
enum EventKind : uint8_t { event_barrier = 3, event_warp_op = 4, event_path = 5 };

// Filled in by Python (checked.py mirrors it).
struct CheckRequest {
    const Region* regions;
    int32_t num_regions, check_races;
    uint64_t code_begin, code_end;  // where the kernel's shared object is mapped
    double time_limit_s;
    Event* events;
    uint64_t event_capacity, event_count, events_dropped, num_accesses;
    uint64_t first_logged_block, end_logged_block;
};

class Checker {
  public:
    Checker(CheckRequest& request, ReportLog& log);

    void on_access(const void* address, int size, Access kind, const void* pc, bool aligned);
    void on_barrier(const void* pc) { on_event(event_barrier, pc); }
    void on_warp_op(const void* pc) { on_event(event_warp_op, pc); }
    void on_path(const void* pc) {
        if (request_.events) log(0, 0, event_path, -1, pc);
    }
    void on_fence();
    void add(const Report& report);  // once for each kind and pair of places
    const void* last_pc() const { return last_pc_; }
    const CheckRequest& request() const { return request_; }

  private:
    void on_event(EventKind kind, const void* pc);
    void log(uint64_t address, int size, uint8_t kind, int region, const void* pc);
    void check_time(const void* pc);
    int find_region(uint64_t begin, uint64_t end, const void* pc);
    int usual_region(const void* pc) const;
    void check_order(int region, uint64_t address, int size, Access kind, const void* pc);
    bool ordered(const Mark& earlier, const Mark& now) const;
    Report race(uint64_t address, int size, Access access, int region, const void* pc,
                const Mark& earlier, Access how) const;
    [[noreturn]] __attribute__((cold)) void refuse(Kind kind, uint64_t address, int size,
                                                   Access access, int region, const void* pc);
    void acquire_and_release(uint64_t address);
    Report report(Kind kind, uint64_t address, int size, Access access, int region,
                  const void* pc) const;

    CheckRequest& request_;
    ReportLog& log_;
    std::vector<std::unique_ptr<Shadow>> shadows_;  // one a region; null where nobody writes
    std::unordered_map<uint64_t, int> seen_;        // which report a kind and pair of places has
    struct {
        const void* pc;
        int region;
    } last_region_[256] = {};  // an instruction mostly stays in one region
    uint64_t ticks_ = 0, deadline_ns_;
    const void* last_pc_ = nullptr;

    // Blocks ordered by "fence, then atomic" in one and "atomic" on the same word in another.
    std::unordered_map<uint64_t, std::vector<uint32_t>> released_;
    std::unordered_set<uint32_t> acquired_;
    uint32_t acquired_for_ = ~0u;
    std::vector<uint64_t> fenced_;  // by thread: the block it last fenced in, plus 1
};

}  // namespace simt
