// report.h: what the runtime tells Python. Plain structs: findings.py mirrors them with ctypes, and
// they may lie in memory shared with a forked child.
#pragma once
#include <cstdint>

namespace simt {

enum class Kind : int32_t {
    none,
    deadlock,           // one report per place where threads wait
    divergent_barrier,  // threads of a block wait at different barriers
    early_exit,         // a thread returned while others wait for it
    bad_warp_mask,      // own lane not in the mask
    divergent_warp_op,  // lanes of one mask wait at different operations
    inactive_source,    // a shuffle reads a lane that takes no part
    trap,               // assert or __trap
    out_of_bounds,
    misaligned,
    read_only_write,
    race,           // `other_*` is the earlier access
    uninitialised,  // read of shared memory nobody wrote in this block
    time_limit,
    crash,
    stack_overflow,
    bad_index,  // outside of an array of constant size; `text` is its type
    division_by_zero,
};

enum class Access : int32_t { read, write, atomic };

struct Report {
    Kind kind;
    Access access, other_access;
    int32_t region, size, count;
    int32_t thread, other_thread;  // linear thread index in its block
    uint64_t block, other_block;   // linear block index in the grid
    uint64_t address, pc, other_pc;
    int64_t value;  // kind's own number: threads that wait, index, signal
    char text[160];
};

struct ReportLog {
    int32_t capacity, count;
    Report* reports;
};

}  // namespace simt
