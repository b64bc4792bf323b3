// simt_narrow.h: what __nv_bfloat16 and __half have in common, written once.
#pragma once

#define SIMT_NARROW_ARITHMETIC(N)                                                                  \
    static SIMT_INLINE N operator+(N a, N b) {                                                     \
        return N(static_cast<float>(a) + static_cast<float>(b));                                   \
    }                                                                                              \
    static SIMT_INLINE N operator-(N a, N b) {                                                     \
        return N(static_cast<float>(a) - static_cast<float>(b));                                   \
    }                                                                                              \
    static SIMT_INLINE N operator*(N a, N b) {                                                     \
        return N(static_cast<float>(a) * static_cast<float>(b));                                   \
    }                                                                                              \
    static SIMT_INLINE N operator/(N a, N b) {                                                     \
        return N(static_cast<float>(a) / static_cast<float>(b));                                   \
    }                                                                                              \
    static SIMT_INLINE N operator-(N a) { return N(-static_cast<float>(a)); }                      \
    static SIMT_INLINE N& operator+=(N& a, N b) { return a = a + b; }                              \
    static SIMT_INLINE N& operator-=(N& a, N b) { return a = a - b; }                              \
    static SIMT_INLINE N& operator*=(N& a, N b) { return a = a * b; }                              \
    static SIMT_INLINE N& operator/=(N& a, N b) { return a = a / b; }                              \
    static SIMT_INLINE bool operator<(N a, N b) {                                                  \
        return static_cast<float>(a) < static_cast<float>(b);                                      \
    }                                                                                              \
    static SIMT_INLINE bool operator>(N a, N b) {                                                  \
        return static_cast<float>(a) > static_cast<float>(b);                                      \
    }                                                                                              \
    static SIMT_INLINE bool operator<=(N a, N b) {                                                 \
        return static_cast<float>(a) <= static_cast<float>(b);                                     \
    }                                                                                              \
    static SIMT_INLINE bool operator>=(N a, N b) {                                                 \
        return static_cast<float>(a) >= static_cast<float>(b);                                     \
    }                                                                                              \
    static SIMT_INLINE bool operator==(N a, N b) {                                                 \
        return static_cast<float>(a) == static_cast<float>(b);                                     \
    }                                                                                              \
    static SIMT_INLINE bool operator!=(N a, N b) {                                                 \
        return static_cast<float>(a) != static_cast<float>(b);                                     \
    }                                                                                              \
    static SIMT_INLINE N __hadd(N a, N b) { return a + b; }                                        \
    static SIMT_INLINE N __hsub(N a, N b) { return a - b; }                                        \
    static SIMT_INLINE N __hmul(N a, N b) { return a * b; }                                        \
    static SIMT_INLINE N __hdiv(N a, N b) { return a / b; }                                        \
    static SIMT_INLINE N __hneg(N a) { return -a; }                                                \
    static SIMT_INLINE N __hmax(N a, N b) { return a > b ? a : b; }                                \
    static SIMT_INLINE N __hmin(N a, N b) { return a < b ? a : b; }                                \
    static SIMT_INLINE bool __hlt(N a, N b) { return a < b; }                                      \
    static SIMT_INLINE bool __hgt(N a, N b) { return a > b; }                                      \
    static SIMT_INLINE bool __hisnan(N a) { return a != a; }                                       \
    static SIMT_INLINE N __hfma(N a, N b, N c) {                                                   \
        return N(fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));       \
    }

#define SIMT_NARROW_CONVERSIONS(N, N2, NAME, NAME2)                                                \
    static SIMT_INLINE float __##NAME##2float(N x) { return x; }                                   \
    static SIMT_INLINE N __float2##NAME(float x) { return N(x); }                                  \
    static SIMT_INLINE N __float2##NAME##_rn(float x) { return N(x); }                             \
    static SIMT_INLINE float2 __##NAME2##2float2(N2 v) {                                           \
        return {static_cast<float>(v.x), static_cast<float>(v.y)};                                 \
    }                                                                                              \
    static SIMT_INLINE N2 __float22##NAME2##_rn(float2 v) { return {N(v.x), N(v.y)}; }             \
    static SIMT_INLINE N2 __floats2##NAME2##_rn(float a, float b) { return {N(a), N(b)}; }         \
    static SIMT_INLINE N2 __float2##NAME2##_rn(float a) { return {N(a), N(a)}; }                   \
    static SIMT_INLINE N2 __halves2##NAME2(N a, N b) { return {a, b}; }                            \
    static SIMT_INLINE N2 __##NAME##2##NAME2(N a) { return {a, a}; }                               \
    static SIMT_INLINE N __low2##NAME(N2 v) { return v.x; }                                        \
    static SIMT_INLINE N __high2##NAME(N2 v) { return v.y; }                                       \
    static SIMT_INLINE float __low2float(N2 v) { return v.x; }                                     \
    static SIMT_INLINE float __high2float(N2 v) { return v.y; }                                    \
    static SIMT_INLINE N2 __hadd2(N2 a, N2 b) { return {a.x + b.x, a.y + b.y}; }                   \
    static SIMT_INLINE N2 __hmul2(N2 a, N2 b) { return {a.x * b.x, a.y * b.y}; }
