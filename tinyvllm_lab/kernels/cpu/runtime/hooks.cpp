// hooks.cpp: the functions that the compiler calls in a checked build. -fsanitize=thread asks for one
// before each load and store; -fsanitize=bounds,integer-divide-by-zero for the two others. The
// sanitizers' own libraries are not linked: these definitions are all there is.
#include <cstdio>
#include <cstring>

#include "block.h"
#include "check.h"

namespace simt {
static inline void access(const void* p, size_t size, Access kind, const void* pc, bool aligned) {
    if (!this_block) return;
    if (Checker* checker = this_block->checker())
        checker->on_access(p, static_cast<int>(size), kind, pc, aligned);
}

// The layout that the compiler gives the second kind of hook.
struct TypeName {
    uint16_t kind, info;
    char name[];
};
struct OutOfBounds {
    const char* file;
    uint32_t line, column;
    const TypeName *array, *index;
};

static void stop_at(Kind kind, const void* pc, int64_t value = 0, const char* text = "") {
    if (!this_block || !this_block->checker()) return;
    Report r = this_block->report(kind, pc);
    r.value = value;
    snprintf(r.text, sizeof r.text, "%s", text);
    this_block->stop(r);
}
}  // namespace simt

using namespace simt;
#define PC __builtin_return_address(0)

#define HOOKS(N)                                                                                   \
    SIMT_API void __tsan_read##N(void* p) { access(p, N, Access::read, PC, true); }                \
    SIMT_API void __tsan_write##N(void* p) { access(p, N, Access::write, PC, true); }              \
    SIMT_API void __tsan_unaligned_read##N(void* p) { access(p, N, Access::read, PC, false); }     \
    SIMT_API void __tsan_unaligned_write##N(void* p) { access(p, N, Access::write, PC, false); }   \
    SIMT_API void __tsan_volatile_read##N(void* p) { access(p, N, Access::read, PC, true); }       \
    SIMT_API void __tsan_volatile_write##N(void* p) { access(p, N, Access::write, PC, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8) HOOKS(16)

    SIMT_API void __tsan_read_range(void* p, size_t n) {
    access(p, n, Access::read, PC, false);
}
SIMT_API void __tsan_write_range(void* p, size_t n) { access(p, n, Access::write, PC, false); }
SIMT_API void* __tsan_memcpy(void* to, const void* from, size_t n) {
    access(from, n, Access::read, PC, false);
    access(to, n, Access::write, PC, false);
    return memcpy(to, from, n);
}
SIMT_API void* __tsan_memmove(void* to, const void* from, size_t n) {
    access(from, n, Access::read, PC, false);
    access(to, n, Access::write, PC, false);
    return memmove(to, from, n);
}
SIMT_API void* __tsan_memset(void* to, int byte, size_t n) {
    access(to, n, Access::write, PC, false);
    return memset(to, byte, n);
}
SIMT_API void simt_note_atomic(const void* p, int size, const void* pc) {
    access(p, static_cast<size_t>(size), Access::atomic, pc, true);
}
SIMT_API void __tsan_init() {}
SIMT_API void __tsan_func_entry(void*) {}
SIMT_API void __tsan_func_exit() {}

SIMT_API void __sanitizer_cov_trace_pc() {
    if (!this_block) return;
    if (Checker* checker = this_block->checker()) checker->on_path(PC);
}

SIMT_API void __ubsan_handle_out_of_bounds(const OutOfBounds* where, uint64_t index) {
    stop_at(Kind::bad_index, PC, static_cast<int64_t>(index), where->array->name);
}
SIMT_API void __ubsan_handle_divrem_overflow(void*, uint64_t, uint64_t) {
    stop_at(Kind::division_by_zero, PC);
}
