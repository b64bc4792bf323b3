// checked.cpp: a launch under the checker, on one OS thread, if wanted in a forked child: whatever the
// kernel does there, this process lives on.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "block.h"
#include "check.h"

namespace simt {

static Launch* child_launch;  // what a signal handler in the child reports about

// How the child ends; any other status is the kernel's own doing, by exit() for example.
enum ChildStatus { kCompleted = 100, kStopped = 101 };

static int run_checked(const LaunchRequest& request, CheckRequest& check) {
    Checker checker(check, *request.log);
    Launch launch(request, &checker);
    child_launch = &launch;
    work_on(launch);
    return launch.stopped ? 1 : 0;
}

// ---- the child ----------------------------------------------------------------------------------
static uint64_t interrupted_at(const void* context) {
    const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return static_cast<uint64_t>(machine.gregs[REG_RIP]);
#else
    return machine.pc;
#endif
}

// Writes one report into the shared log and ends the child.
static void on_signal(int signal, siginfo_t* info, void* context) {
    const CheckRequest& check = child_launch->checker->request();
    uint64_t pc = interrupted_at(context);
    if (pc >= check.code_begin && pc < check.code_end)
        ++pc;  // readers expect a return address
    else
        pc = reinterpret_cast<uint64_t>(child_launch->checker->last_pc());

    const uint64_t address = reinterpret_cast<uint64_t>(info->si_addr);
    const uint64_t stack = reinterpret_cast<uint64_t>(this_block->stack());
    const bool in_guard = signal == SIGSEGV && address < stack && address >= stack - kGuardBytes;
    const Kind kind = signal == SIGALRM ? Kind::time_limit
                      : in_guard        ? Kind::stack_overflow
                                        : Kind::crash;
    Report report = this_block->report(kind, reinterpret_cast<const void*>(pc));
    snprintf(report.text, sizeof report.text, "%s", strsignal(signal));
    child_launch->add(report);
    _exit(kStopped);
}

static void catch_signals(double time_limit_s) {
    static char handler_stack[64 << 10];
    const stack_t stack{handler_stack, 0, sizeof handler_stack};
    sigaltstack(&stack, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM})
        sigaction(signal, &action, nullptr);
    // A little after the checker's own clock, which knows the line better.
    const double limit = time_limit_s + 0.2;
    itimerval timer{};
    timer.it_value.tv_sec = static_cast<time_t>(limit);
    timer.it_value.tv_usec =
        static_cast<suseconds_t>((limit - static_cast<double>(timer.it_value.tv_sec)) * 1e6);
    setitimer(ITIMER_REAL, &timer, nullptr);
}

[[noreturn]] static void child(const LaunchRequest& request, CheckRequest& check) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);  // the parent's keyboard interrupt is not ours
    catch_signals(check.time_limit_s);
    const int stopped = run_checked(request, check);
    fflush(stdout);
    _exit(stopped ? kStopped : kCompleted);
}

static int wait_for(pid_t pid, const LaunchRequest& request) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (code == kCompleted || code == kStopped) return code == kStopped;
    Report report{};
    report.kind = Kind::crash;
    report.region = report.other_thread = -1;
    const char* how = WIFEXITED(status) ? "it ended the process" : strsignal(WTERMSIG(status));
    snprintf(report.text, sizeof report.text, "%s", how);
    if (request.log->count < request.log->capacity)
        request.log->reports[request.log->count++] = report;
    return 1;
}

}  // namespace simt

using namespace simt;

// 0: ran to the end (there may be reports); 1: broken off; 2: no child could be started.
// With `isolate`, log, check and all arrays must lie in memory from simt_map_shared.
SIMT_API int simt_launch_checked(const LaunchRequest* request, CheckRequest* check, int isolate) {
    std::lock_guard<std::mutex> lock(one_launch_at_a_time);
    if (!isolate) return run_checked(*request, *check);
    fflush(stdout);  // else the child would print what waits in the buffer once more
    const pid_t pid = fork();
    if (pid < 0) return 2;
    if (pid == 0) child(*request, *check);
    return wait_for(pid, *request);
}

// Zeroed memory that a forked child shares with us; null if there is none.
SIMT_API void* simt_map_shared(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}
SIMT_API void simt_unmap_shared(void* memory, size_t bytes) { munmap(memory, bytes); }
