// cuda_fp16.h: the part of CUDA's half that a kernel of the course could use, on top of _Float16.
#pragma once
#ifdef SIMT_SCAN
#include "simt.h"
#else
#include "simt_narrow.h"

struct alignas(2) __half {
    _Float16 value;
    __half() = default;
    SIMT_INLINE __half(float f) : value(static_cast<_Float16>(f)) {}
    SIMT_INLINE __half(double f) : value(static_cast<_Float16>(f)) {}
    SIMT_INLINE __half(int f) : value(static_cast<_Float16>(f)) {}
    SIMT_INLINE operator float() const { return static_cast<float>(value); }
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;
SIMT_NARROW_ARITHMETIC(__half)
SIMT_NARROW_CONVERSIONS(__half, __half2, half, half2)
#endif
