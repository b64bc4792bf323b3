#include "fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// The callee-saved registers of the platform's calling convention, and nothing else.
#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simt_switch,.-simt_switch
)");
#elif defined(__aarch64__)  // run by us under emulation only (qemu, g++ 12)
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
    stp x19, x20, [sp, #-160]!
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x19, x20, [sp], #160
    ret
.size simt_switch,.-simt_switch
)");
#else
#error "the CPU back end runs on x86-64 and aarch64"
#endif

namespace simt {

void* prepare_stack(char* stack_top, void (*entry)()) {
    void** sp = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack_top) & ~uintptr_t{15});
#if defined(__x86_64__)
    *--sp = nullptr;  // stands where a caller's return address would: keeps the stack aligned
    *--sp = reinterpret_cast<void*>(entry);
    for (int saved_register = 0; saved_register < 6; ++saved_register) *--sp = nullptr;
#else
    sp -= 20;
    memset(sp, 0, 20 * sizeof(void*));
    sp[11] = reinterpret_cast<void*>(entry);  // x30, the link register
#endif
    return sp;
}

static char* map_stack() {
    char* map = static_cast<char*>(mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (map == MAP_FAILED) {
        perror("no address space for a fiber's stack");
        abort();
    }
    mprotect(map, kGuardBytes, PROT_NONE);
    return map + kGuardBytes;
}

int StackPool::take() {
    if (free_.empty()) {
        stacks_.push_back(map_stack());
        return static_cast<int>(stacks_.size()) - 1;
    }
    const int stack = free_.back();
    free_.pop_back();
    return stack;
}

void StackPool::give_all() {
    free_.clear();
    for (int stack = static_cast<int>(stacks_.size()) - 1; stack >= 0; --stack)
        free_.push_back(stack);
}

char* StackPool::top(int stack) const {
    // Staggered, so that the hot lines of many fibers do not fight for one set of the caches.
    return stacks_[stack] + kStackBytes - 64 - (stack * 320 & 0xffff);
}

}  // namespace simt
