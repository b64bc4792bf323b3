#include "launch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "block.h"
#include "check.h"

namespace simt {

static uint64_t product(const uint32_t* size) {
    return static_cast<uint64_t>(size[0]) * size[1] * size[2];
}

Launch::Launch(const LaunchRequest& r, Checker* c)
    : request(r),
      checker(c),
      num_blocks(product(r.grid)),
      num_threads(static_cast<int>(product(r.block))) {}

void Launch::add(const Report& report) {
    std::lock_guard<std::mutex> lock(log_mutex_);
    ReportLog& log = *request.log;
    if (log.count < log.capacity) log.reports[log.count++] = report;
}

void Launch::add_and_stop(const Report& report) {
    add(report);
    stopped = true;
}

void work_on(Launch& launch) {
    static SIMT_TLS Block* block;
    if (!block) block = new Block;  // lives as long as its OS thread, which is never ended
    this_block = block;
    block->set_shape(launch);
    const uint64_t chunk = std::clamp<uint64_t>(launch.num_blocks / 32, 1, 64);
    while (!launch.stopped.load(std::memory_order_relaxed)) {
        const uint64_t first = launch.next_block.fetch_add(chunk);
        if (first >= launch.num_blocks) break;
        const uint64_t end = std::min(launch.num_blocks, first + chunk);
        for (uint64_t b = first; b < end && !launch.stopped.load(std::memory_order_relaxed); ++b)
            block->run(launch, b);
    }
    block->forget_launch();
}

// ---- OS threads that wait for launches ----------------------------------------------------------
class ThreadPool {
  public:
    // The caller works too, so one thread less is woken.
    void run(Launch& launch, int num_threads) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (static_cast<int>(tickets_.size()) < num_threads - 1) add_thread();
            launch_ = &launch;
            for (int i = 0; i < num_threads - 1; ++i) tickets_[i] = true;
            busy_ = num_threads - 1;
        }
        wake_.notify_all();
        work_on(launch);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

  private:
    void add_thread() {
        const size_t me = tickets_.size();
        tickets_.push_back(false);
        std::thread([this, me] { loop(me); }).detach();
    }
    void loop(size_t me) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return tickets_[me]; });
            tickets_[me] = false;
            lock.unlock();
            work_on(*launch_);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<bool> tickets_;  // one a thread: work on launch_ once
    Launch* launch_ = nullptr;
    int busy_ = 0;
};

static ThreadPool* pool;
std::mutex one_launch_at_a_time;

// A forked child has none of its parent's threads; it makes its own pool when it launches.
static ThreadPool& thread_pool() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { pool = nullptr; });
    (void)registered;
    if (!pool) pool = new ThreadPool;
    return *pool;
}

}  // namespace simt

using namespace simt;

// Runs the kernel on all OS threads it may use. Returns the number of reports in the log.
SIMT_API int simt_launch(const LaunchRequest* request) {
    std::lock_guard<std::mutex> lock(one_launch_at_a_time);
    Launch launch(*request, nullptr);
    const uint64_t wanted = std::min<uint64_t>(request->num_os_threads, launch.num_blocks);
    thread_pool().run(launch, std::max(1, static_cast<int>(wanted)));
    return request->log->count;
}

SIMT_API int simt_barrier(int line, BarrierOp op, int predicate) {
    return this_block->barrier(line, op, predicate, __builtin_return_address(0));
}
SIMT_API uint64_t simt_warp_op(unsigned mask, WarpOp op, uint64_t value, int source_lane) {
    return this_block->warp_op(mask, op, value, source_lane, __builtin_return_address(0));
}
SIMT_API unsigned simt_activemask() { return this_block->active_lanes(); }
SIMT_API void simt_yield() { this_block->yield(); }
SIMT_API void simt_fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (Checker* checker = this_block->checker()) checker->on_fence();
}
SIMT_API long long simt_clock() {
    return std::chrono::steady_clock::now().time_since_epoch().count();  // nanoseconds
}
SIMT_API void simt_trap(const char* what, const char* file, int line) {
    Report r = this_block->report(Kind::trap, __builtin_return_address(0));
    const char* slash = strrchr(file, '/');
    snprintf(r.text, sizeof r.text, "%s, %s:%d", what, slash ? slash + 1 : file, line);
    this_block->stop(r);
}
