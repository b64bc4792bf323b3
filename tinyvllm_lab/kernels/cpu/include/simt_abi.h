// simt_abi.h: what a compiled kernel file and the runtime agree on. Both sides include it.
#pragma once
#include <cstddef>
#include <cstdint>

#define SIMT_INLINE inline __attribute__((always_inline))
#define SIMT_API extern "C" __attribute__((visibility("default")))
#define SIMT_TLS thread_local __attribute__((tls_model("initial-exec")))

#include "simt_types.h"

namespace simt {

struct Ids {
    uint3 thread;
    int lane;
    uint3 block, block_dim, grid_dim;
};
// The scheduler rewrites `thread` and `lane` at each switch.
extern SIMT_TLS __attribute__((visibility("default"))) Ids ids;

struct KernelInfo {
    const char* name;
    void (*call)(void** params);  // params[i] points to the bytes of argument i
    int num_params;
    const int* param_sizes;
};

// `ballot` gives a mask, `any` and `all` give 0 or 1.
enum class WarpOp : int {
    sync,
    shuffle,
    ballot,
    any,
    all,
    reduce_add,
    reduce_min,
    reduce_max,
    reduce_and,
    reduce_or,
    reduce_xor
};
enum class BarrierOp : int { wait, count, all, any };

}  // namespace simt

SIMT_API int simt_barrier(int line, simt::BarrierOp op, int predicate);
SIMT_API uint64_t simt_warp_op(unsigned mask, simt::WarpOp op, uint64_t value, int source_lane);
SIMT_API unsigned simt_activemask();
SIMT_API void simt_fence();
SIMT_API void simt_yield();
SIMT_API void simt_note_atomic(const void* address, int size, const void* pc);  // checked builds
SIMT_API void simt_trap(const char* what, const char* file, int line);
SIMT_API long long simt_clock();  // nanoseconds
