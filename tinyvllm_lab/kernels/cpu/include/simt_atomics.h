// simt_atomics.h: atomic read-modify-write, for every type that fits a compare-and-swap.
#pragma once

// A checked build must see an atomic as one access on the line that wrote it: the function is kept
// out of line, without hooks, and reports its own return address.
#if SIMT_CHECKED
#define SIMT_ATOMIC_FUNCTION SIMT_NO_HOOKS __attribute__((noinline))
#define SIMT_NOTE_ATOMIC(p) simt_note_atomic((p), sizeof(*(p)), __builtin_return_address(0))
#else
#define SIMT_ATOMIC_FUNCTION SIMT_INLINE
#define SIMT_NOTE_ATOMIC(p) ((void)0)
#endif

namespace simt {
template <class T>
struct same_type {  // keeps T from being deduced from the second argument: atomicAdd(&f, 1)
    using type = T;
};
template <class T>
using same_type_t = typename same_type<T>::type;

template <class T, class Update>
static SIMT_INLINE T read_modify_write(T* p, Update update) {
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        next = update(old);
    } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
}  // namespace simt

#define SIMT_ATOMIC(NAME, NEXT)                                                                    \
    template <class T>                                                                             \
    static SIMT_ATOMIC_FUNCTION T NAME(T* p, simt::same_type_t<T> v) {                             \
        SIMT_NOTE_ATOMIC(p);                                                                       \
        return simt::read_modify_write(p, [v](T old) SIMT_INLINE_LAMBDA -> T { return (NEXT); });  \
    }
#define SIMT_INLINE_LAMBDA SIMT_NO_HOOKS __attribute__((always_inline))
SIMT_ATOMIC(atomicAdd, old + v)
SIMT_ATOMIC(atomicSub, old - v)
SIMT_ATOMIC(atomicExch, ((void)old, v))
SIMT_ATOMIC(atomicMin, old < v ? old : v)
SIMT_ATOMIC(atomicMax, old > v ? old : v)
SIMT_ATOMIC(atomicAnd, old& v)
SIMT_ATOMIC(atomicOr, old | v)
SIMT_ATOMIC(atomicXor, old ^ v)
SIMT_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
SIMT_ATOMIC(atomicDec, (old == 0 || old > v) ? v : old - 1)
#undef SIMT_ATOMIC
#undef SIMT_INLINE_LAMBDA

template <class T>
static SIMT_ATOMIC_FUNCTION T atomicCAS(T* p, simt::same_type_t<T> expected,
                                        simt::same_type_t<T> v) {
    SIMT_NOTE_ATOMIC(p);
    __atomic_compare_exchange(p, &expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
