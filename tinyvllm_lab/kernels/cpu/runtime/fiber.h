// fiber.h: a fiber is a stack plus the registers a function call must keep. Switching costs a few
// nanoseconds, because no kernel, signal mask or thread scheduler takes part.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 4 << 10;  // an unmapped page below: overflow crashes, not corrupts

// Is this a local variable of the fiber that runs on the stack with this bottom? Its frames lie
// above the one that asks, and end with the stack: right above it may lie an array of the kernel.
inline bool on_own_stack(const void* address, const char* bottom) {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    const auto top = reinterpret_cast<uintptr_t>(bottom) + kStackBytes;
    return reinterpret_cast<uintptr_t>(address) - here < top - here;
}

// Saves the running fiber's registers on its stack and its stack pointer in *save, then runs `load`.
extern "C" void simt_switch(void** save, void* load);

// The stack pointer of a fresh fiber that will start in `entry` (which must never return).
void* prepare_stack(char* stack_top, void (*entry)());

// Stacks of one OS thread, mapped when first needed and then reused for every launch.
class StackPool {
  public:
    int take();                                       // index of a free stack
    void give(int stack) { free_.push_back(stack); }  // that stack may be taken again
    void give_all();                                  // after a launch was broken off
    char* bottom(int stack) const { return stacks_[stack]; }
    char* top(int stack) const;

  private:
    std::vector<char*> stacks_;
    std::vector<int> free_;
};

}  // namespace simt
