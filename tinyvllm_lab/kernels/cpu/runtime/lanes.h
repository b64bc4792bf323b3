// lanes.h: sets of lanes (or of warps) as the bits of a word.
#pragma once
#include <cstdint>

namespace simt {

inline uint32_t first_lanes(int n) { return n >= 32 ? ~0u : (1u << n) - 1; }
inline uint32_t lanes_after(int lane) { return lane >= 31 ? 0 : ~0u << (lane + 1); }
inline int lowest(uint32_t lanes) { return __builtin_ctz(lanes); }

// The next member after `lane`, going round; the set must not be empty.
inline int next_after(uint32_t lanes, int lane) {
    const uint32_t later = lanes & lanes_after(lane);
    return lowest(later ? later : lanes);
}

// Calls f(lane) for each member.
template <class F>
inline void for_each_lane(uint32_t lanes, F f) {
    for (; lanes; lanes &= lanes - 1) f(lowest(lanes));
}

}  // namespace simt
