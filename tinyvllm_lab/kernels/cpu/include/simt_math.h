// simt_math.h: CUDA's device functions that the C++ library lacks. The fast intrinsics (__expf, ...)
// are the exact functions here, so results agree with a GPU to a tolerance, not to the bit.
#pragma once

using std::max;
using std::min;
namespace simt {
template <class A, class B>
using mixed_t =
    std::enable_if_t<!std::is_same_v<A, B> && std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
                     std::common_type_t<A, B>>;
}  // namespace simt
// std::min wants two equal types, CUDA's min does not.
template <class A, class B>
static SIMT_INLINE simt::mixed_t<A, B> min(A a, B b) {
    using C = simt::mixed_t<A, B>;
    return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class A, class B>
static SIMT_INLINE simt::mixed_t<A, B> max(A a, B b) {
    using C = simt::mixed_t<A, B>;
    return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}

static SIMT_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static SIMT_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }

// Macros, because glibc's <math.h> already declares these names as aliases of its own functions.
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, (x))
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf((x), (y))
#define __sincosf(x, s, c) (*(s) = sinf(x), *(c) = cosf(x))

static SIMT_INLINE float __fdividef(float a, float b) { return a / b; }
static SIMT_INLINE float __fdiv_rn(float a, float b) { return a / b; }
static SIMT_INLINE float __frcp_rn(float a) { return 1.0f / a; }
static SIMT_INLINE float __fsqrt_rn(float a) { return sqrtf(a); }
static SIMT_INLINE float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
static SIMT_INLINE float __fadd_rn(float a, float b) { return a + b; }
static SIMT_INLINE float __fsub_rn(float a, float b) { return a - b; }
static SIMT_INLINE float __fmul_rn(float a, float b) { return a * b; }
static SIMT_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static SIMT_INLINE float __saturatef(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

// Loads and stores with a cache hint: the hint has no meaning here.
template <class T>
static SIMT_INLINE T __ldg(const T* p) {
    return *p;
}
template <class T>
static SIMT_INLINE T __ldcg(const T* p) {
    return *p;
}
template <class T>
static SIMT_INLINE T __ldcs(const T* p) {
    return *p;
}
template <class T>
static SIMT_INLINE void __stcg(T* p, T value) {
    *p = value;
}
template <class T>
static SIMT_INLINE void __stcs(T* p, T value) {
    *p = value;
}

namespace simt {
template <class To, class From>
static SIMT_INLINE To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
}  // namespace simt
static SIMT_INLINE unsigned __float_as_uint(float x) { return simt::bit_cast<unsigned>(x); }
static SIMT_INLINE int __float_as_int(float x) { return simt::bit_cast<int>(x); }
static SIMT_INLINE float __uint_as_float(unsigned x) { return simt::bit_cast<float>(x); }
static SIMT_INLINE float __int_as_float(int x) { return simt::bit_cast<float>(x); }
static SIMT_INLINE long long __double_as_longlong(double x) { return simt::bit_cast<long long>(x); }
static SIMT_INLINE double __longlong_as_double(long long x) { return simt::bit_cast<double>(x); }
static SIMT_INLINE int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
static SIMT_INLINE int __float2int_rz(float x) { return static_cast<int>(x); }
static SIMT_INLINE int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
static SIMT_INLINE int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
static SIMT_INLINE unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
static SIMT_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
static SIMT_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

static SIMT_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
static SIMT_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static SIMT_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static SIMT_INLINE int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
static SIMT_INLINE int __ffs(int x) { return __builtin_ffs(x); }
static SIMT_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
static SIMT_INLINE unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= ((x >> bit) & 1u) << (31 - bit);
    return reversed;
}
static SIMT_INLINE unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
static SIMT_INLINE int __mulhi(int a, int b) {
    return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}
static SIMT_INLINE int __mul24(int a, int b) { return a * b; }

static SIMT_INLINE long long clock64() { return simt_clock(); }
