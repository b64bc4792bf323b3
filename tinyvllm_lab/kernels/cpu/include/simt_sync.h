// simt_sync.h: barriers, warp operations, fences, assert. The work is done in runtime/block.cpp.
#pragma once

#define __syncthreads() ((void)::simt_barrier(__LINE__, ::simt::BarrierOp::wait, 0))
#define __syncthreads_count(p) ::simt_barrier(__LINE__, ::simt::BarrierOp::count, !!(p))
#define __syncthreads_and(p) ::simt_barrier(__LINE__, ::simt::BarrierOp::all, !!(p))
#define __syncthreads_or(p) ::simt_barrier(__LINE__, ::simt::BarrierOp::any, !!(p))

namespace simt {
template <class T>
static SIMT_INLINE T shuffle_from(unsigned mask, T value, int source_lane) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "shuffles move 1 to 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = simt_warp_op(mask, WarpOp::shuffle, bits, source_lane);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
// A warp can be cut into segments of `width` lanes; a source outside the own segment is the own lane.
static SIMT_INLINE int segment_start(int width) { return ids.lane & ~(width - 1); }
static SIMT_INLINE int own_if_past_end(int lane, int width) {
    return lane < segment_start(width) + width ? lane : ids.lane;
}
template <class T>
static SIMT_INLINE T warp_reduce(unsigned mask, WarpOp op, T value) {
    return static_cast<T>(
        simt_warp_op(mask, op, static_cast<uint64_t>(static_cast<int64_t>(value)), 0));
}
}  // namespace simt

template <class T>
static SIMT_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return simt::shuffle_from(mask, value, simt::segment_start(width) + (lane & (width - 1)));
}
template <class T>
static SIMT_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    return simt::shuffle_from(mask, value,
                              simt::own_if_past_end(simt::ids.lane ^ lane_mask, width));
}
template <class T>
static SIMT_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int source = simt::ids.lane + static_cast<int>(delta);
    return simt::shuffle_from(mask, value, simt::own_if_past_end(source, width));
}
template <class T>
static SIMT_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const int source = simt::ids.lane - static_cast<int>(delta);
    return simt::shuffle_from(mask, value,
                              source >= simt::segment_start(width) ? source : simt::ids.lane);
}

static SIMT_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
    simt_warp_op(mask, simt::WarpOp::sync, 0, 0);
}
static SIMT_INLINE unsigned __ballot_sync(unsigned mask, int p) {
    return static_cast<unsigned>(simt_warp_op(mask, simt::WarpOp::ballot, p != 0, 0));
}
static SIMT_INLINE int __any_sync(unsigned mask, int p) {
    return static_cast<int>(simt_warp_op(mask, simt::WarpOp::any, p != 0, 0));
}
static SIMT_INLINE int __all_sync(unsigned mask, int p) {
    return static_cast<int>(simt_warp_op(mask, simt::WarpOp::all, p != 0, 0));
}
static SIMT_INLINE unsigned __activemask() { return simt_activemask(); }
#define SIMT_WARP_REDUCE(NAME, OP)                                                                 \
    template <class T>                                                                             \
    static SIMT_INLINE T __reduce_##NAME##_sync(unsigned mask, T v) {                              \
        return simt::warp_reduce(mask, simt::WarpOp::OP, v);                                       \
    }
SIMT_WARP_REDUCE(add, reduce_add)
SIMT_WARP_REDUCE(min, reduce_min)
SIMT_WARP_REDUCE(max, reduce_max)
SIMT_WARP_REDUCE(and, reduce_and)
SIMT_WARP_REDUCE(or, reduce_or)
SIMT_WARP_REDUCE(xor, reduce_xor)
#undef SIMT_WARP_REDUCE

static SIMT_INLINE void __threadfence() { simt_fence(); }
static SIMT_INLINE void __threadfence_system() { simt_fence(); }
static SIMT_INLINE void __threadfence_block() {}
static SIMT_INLINE void __nanosleep(unsigned) { simt_yield(); }

#define __trap() ::simt_trap("__trap()", __FILE__, __LINE__)
#include "assert.h"
