// cuda_bf16.h: the part of CUDA's bfloat16 that the course uses. Arithmetic goes through float and
// rounds once to nearest even, as CUDA's own operators do.
#pragma once
#ifdef SIMT_SCAN
#include "simt.h"
#else
#include "simt_narrow.h"

struct alignas(2) __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    SIMT_INLINE __nv_bfloat16(float f) : bits(round_to_nearest_even(f)) {}
    SIMT_INLINE __nv_bfloat16(double f) : __nv_bfloat16(static_cast<float>(f)) {}
    SIMT_INLINE __nv_bfloat16(int f) : __nv_bfloat16(static_cast<float>(f)) {}
    SIMT_INLINE operator float() const {
        return __uint_as_float(static_cast<unsigned>(bits) << 16);
    }

  private:
    static SIMT_INLINE uint16_t round_to_nearest_even(float f) {
        const unsigned u = __float_as_uint(f);
        if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // CUDA has one NaN
        return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
SIMT_NARROW_ARITHMETIC(__nv_bfloat16)
SIMT_NARROW_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)

static SIMT_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return simt::bit_cast<__nv_bfloat16>(bits);
}
static SIMT_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
#endif
