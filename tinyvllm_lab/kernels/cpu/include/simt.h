// simt.h: compile an unchanged CUDA C++ file for the CPU.
//
// The build force-includes this header (-include simt.h) before a .cu file and compiles both as
// plain C++17 with g++ or clang++. CUDA's keywords become C++ (or nothing), CUDA's built-ins become
// calls into the runtime beside this folder. Each CUDA thread is a fiber; the fibers of one block
// share one OS thread, so "one copy per block" (`__shared__`) is the same as "one copy per OS
// thread" (`thread_local`).
#pragma once

#ifndef SIMT_SCAN
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#endif

#ifndef __has_feature
#define __has_feature(x) 0
#endif
// A checked build is compiled with -fsanitize=thread: the compiler then calls a hook before each
// load and store. The hooks are ours (runtime/hooks.cpp), the sanitizer's own library is not linked.
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SIMT_CHECKED 1
#define SIMT_NO_HOOKS __attribute__((no_sanitize_thread))
#else
#define SIMT_CHECKED 0
#define SIMT_NO_HOOKS
#endif

// ---- keywords -------------------------------------------------------------------------------
#ifdef SIMT_SCAN  // the build's first pass runs the preprocessor only, to find kernels and arrays
#define __global__ __simt_global__
#define __shared__ __simt_shared__
#else
#define __global__ __attribute__((noinline))
#if SIMT_CHECKED  // leave gaps between arrays, so that an index past the end hits no neighbour
#define __shared__ __attribute__((aligned(4096))) thread_local
#else
#define __shared__ thread_local
#endif
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#ifdef SIMT_SCAN  // kept for the reader of declarations
#define __launch_bounds__(...) __simt_launch_bounds__(__VA_ARGS__)
#else
#define __launch_bounds__(...)
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

#ifndef SIMT_SCAN
#include "simt_abi.h"

#define threadIdx (::simt::ids.thread)
#define blockIdx (::simt::ids.block)
#define blockDim (::simt::ids.block_dim)
#define gridDim (::simt::ids.grid_dim)
static constexpr int warpSize = 32;

#include "simt_sync.h"
#if SIMT_CHECKED  // the library's own loads and stores have no hooks
SIMT_API void* __tsan_memcpy(void* to, const void* from, size_t bytes);
SIMT_API void* __tsan_memmove(void* to, const void* from, size_t bytes);
SIMT_API void* __tsan_memset(void* to, int byte, size_t bytes);
#define memcpy(...) __tsan_memcpy(__VA_ARGS__)
#define memmove(...) __tsan_memmove(__VA_ARGS__)
#define memset(...) __tsan_memset(__VA_ARGS__)
#endif
#include "simt_atomics.h"
#include "simt_math.h"

// ---- how the runtime calls a kernel ---------------------------------------------------------
namespace simt {
template <auto Kernel>
struct Caller;
template <class... Args, void (*Kernel)(Args...)>
struct Caller<Kernel> {
    static constexpr int sizes[sizeof...(Args) + 1] = {static_cast<int>(sizeof(Args))..., 0};
    template <size_t... I>
    SIMT_NO_HOOKS static void spread(void** params, std::index_sequence<I...>) {
        Kernel(*static_cast<std::remove_cv_t<Args>*>(params[I])...);
    }
    SIMT_NO_HOOKS static void call(void** params) {
        spread(params, std::index_sequence_for<Args...>{});
    }
    static constexpr KernelInfo describe(const char* name) {
        return {name, &call, static_cast<int>(sizeof...(Args)), sizes};
    }
};
}  // namespace simt
// The generated end of each build names every kernel and every dynamic shared array once.
#define SIMT_KERNEL(NAME)                                                                          \
    SIMT_API const ::simt::KernelInfo simt_kernel_##NAME = ::simt::Caller<&NAME>::describe(#NAME);
#define SIMT_DYNAMIC_SHARED(TYPE, NAME, BYTES)                                                     \
    alignas(128) thread_local TYPE NAME[(BYTES) / sizeof(TYPE)];                                   \
    SIMT_API SIMT_NO_HOOKS void* simt_dynamic_##NAME() { return NAME; }
#endif  // SIMT_SCAN
