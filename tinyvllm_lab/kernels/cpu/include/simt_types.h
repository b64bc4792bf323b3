// simt_types.h: CUDA's vector types, with CUDA's alignment.
#pragma once

#define SIMT_VECTOR(T, NAME, ALIGN2, ALIGN4)                                                       \
    struct NAME##1 { T x; };                                                                       \
    struct alignas(ALIGN2) NAME##2 { T x, y; };                                                    \
    struct NAME##3 { T x, y, z; };                                                                 \
    struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };                                              \
    static SIMT_INLINE NAME##1 make_##NAME##1(T x) { return {x}; }                                 \
    static SIMT_INLINE NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                         \
    static SIMT_INLINE NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                 \
    static SIMT_INLINE NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SIMT_VECTOR(signed char, char, 2, 4)
SIMT_VECTOR(unsigned char, uchar, 2, 4)
SIMT_VECTOR(short, short, 4, 8)
SIMT_VECTOR(unsigned short, ushort, 4, 8)
SIMT_VECTOR(int, int, 8, 16)
SIMT_VECTOR(unsigned int, uint, 8, 16)
SIMT_VECTOR(long long, longlong, 16, 16)
SIMT_VECTOR(unsigned long long, ulonglong, 16, 16)
SIMT_VECTOR(float, float, 8, 16)
SIMT_VECTOR(double, double, 16, 16)
#undef SIMT_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
