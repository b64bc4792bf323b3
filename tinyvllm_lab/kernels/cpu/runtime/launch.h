// launch.h: one kernel launch, shared by all OS threads that work on it.
#pragma once
#include <atomic>
#include <mutex>

#include "../include/simt_abi.h"
#include "report.h"

namespace simt {

class Checker;

// Filled in by Python (launch.py mirrors it).
struct LaunchRequest {
    const KernelInfo* kernel;
    void** params;
    uint32_t grid[3], block[3];
    int32_t num_os_threads;
    ReportLog* log;
};

struct Launch {
    Launch(const LaunchRequest& request, Checker* checker);

    const LaunchRequest& request;
    Checker* const checker;  // null: run fast
    const uint64_t num_blocks;
    const int num_threads;  // per block
    std::atomic<uint64_t> next_block{0};
    std::atomic<bool> stopped{false};

    void add(const Report& report);
    void add_and_stop(const Report& report);

  private:
    std::mutex log_mutex_;
};

extern std::mutex one_launch_at_a_time;

// Runs blocks of the launch on this OS thread until none is left.
void work_on(Launch& launch);

}  // namespace simt
