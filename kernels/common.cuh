// common.cuh: what every kernel of the course includes.
//
// Plain CUDA C++ without host code: nvcc, NVRTC, PyCUDA and the CPU back end read the same file.
// A kernel's name is operation_version_type: rmsnorm_warp_bf16. Whatever the type, sums are float.
//
// Rules that hold in every file
//   * Sizes are arguments; no row, context or vocabulary has a largest length, and 0 is a length.
//   * Offsets into large tensors are 64-bit: a KV cache easily has more than 2^31 elements.
//   * A block is a whole number of warps (blockDim.x is a multiple of 32) where threads shuffle.
//   * All threads of a block reach every __syncthreads: a thread without work takes part with a
//     neutral value instead of returning early.
//   * Arrays that should live in registers are indexed by unrolled loops only: a register has no
//     address that could be computed at run time.
//
// How to read the tables at the top of each file
//   registers   the most that ptxas gave the kernel, over both types, all head sizes and sm_75 to
//               sm_120 (nvcc 13.0), rounded up with some room; NVRTC 13.5 keeps to it as well.
//               Nothing spills. A test holds nvcc to it.
//   launch      blocks in the grid x threads in a block, as tinyvllm_lab/kernels/ launches it.
//   x-ray       bytes are those of the 32-byte sectors that warps touched, before any cache. They
//               are counted on the CPU back end, and are the same on every machine.
//   CPU         processor time of the CPU back end, one core of an AMD EPYC, g++ 12: what a learner
//               without a GPU waits. It pays for barriers and shuffles, hardly for memory, and so
//               ranks the versions unlike a GPU does.
// Times on GPUs are not in these tables: `make gpu-check` measures them, and writes them with card
// and driver into assets/measured/.
#pragma once
#include <cuda_bf16.h>

#define FULL_MASK 0xffffffffu
// NVRTC has no INFINITY, so minus infinity is spelled by its bits.
#define NEG_INF __int_as_float((int)0xff800000)

// Short names; the kernels' own signatures keep C's, which Python reads to check a call.
using bf16 = __nv_bfloat16;
using int64 = long long;
using uint64 = unsigned long long;

// ---- element types -----------------------------------------------------------------------------
__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
    return __bfloat162float(x);
}

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
    return __float2bfloat16(x);
}

// Sixteen bytes: the widest load or store that one thread can make. 4 floats or 8 bf16.
template <typename T>
struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T at[SIZE];
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* address) {
    return *reinterpret_cast<const Pack<T>*>(address);
}
template <typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T>& pack) {
    *reinterpret_cast<Pack<T>*>(address) = pack;
}

// How many whole packs start at `address`: none if it is not a multiple of 16 bytes, as in every
// odd row of a matrix with an odd width. The rest is done element by element.
template <typename T, typename N>
__device__ __forceinline__ N whole_packs(const T* address, N count) {
    const bool aligned = reinterpret_cast<uint64>(address) % 16 == 0;
    return aligned ? count / Pack<T>::SIZE : 0;
}

// N neighbouring floats, from or to an address that is a multiple of 16 bytes, four at a time.
template <int N>
__device__ __forceinline__ void load_floats(float (&values)[N], const float* address) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const Pack<float> pack = load_pack(address + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i + j] = pack.at[j];
    }
}
template <int N>
__device__ __forceinline__ void store_floats(float* address, const float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
        store_pack(address + i,
                   Pack<float>{values[i], values[i + 1], values[i + 2], values[i + 3]});
}

// Copies `count` elements; the caller is number `first` of `stride` threads that share the work.
template <typename T>
__device__ __forceinline__ void copy_elements(T* target, const T* source, int64 count, int64 first,
                                              int64 stride) {
    constexpr int SIZE = Pack<T>::SIZE;
    const int64 packs = min(whole_packs(source, count), whole_packs(target, count));
    for (int64 p = first; p < packs; p += stride)
        store_pack(target + p * SIZE, load_pack(source + p * SIZE));
    for (int64 i = packs * SIZE + first; i < count; i += stride) target[i] = source[i];
}

// An unsigned number that sorts like the float: negative floats have all bits turned, positive
// ones only the sign. NaN sorts below everything.
__device__ __forceinline__ unsigned sort_key(float value) {
    if (!(value == value)) return 0;
    const unsigned bits = __float_as_uint(value + 0.0f);  // + 0 makes -0 equal to +0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// ---- reductions --------------------------------------------------------------------------------
// Butterfly: in log2(32) = 5 exchanges every lane of the warp has the result.
template <typename V>
__device__ __forceinline__ V warp_sum(V value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, offset);
    return value;
}
template <typename V>
__device__ __forceinline__ V warp_max(V value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const V other = __shfl_xor_sync(FULL_MASK, value, offset);
        value = other > value ? other : value;
    }
    return value;
}

// The sum over this lane and all lower ones.
template <typename V>
__device__ __forceinline__ V warp_prefix_sum(V value) {
    const int lane = threadIdx.x % 32;
    for (int offset = 1; offset < 32; offset *= 2) {
        const V lower = __shfl_up_sync(FULL_MASK, value, offset);
        if (lane >= offset) value += lower;
    }
    return value;
}

// One value per warp goes through shared memory, and every warp reduces those again: all threads
// of the block get the result. The first barrier protects `partial` from the previous call, whose
// slow warps may still be reading it (a write-after-read hazard).
template <typename V>
__device__ __forceinline__ V block_sum(V value) {
    __shared__ V partial[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    value = warp_sum(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : V(0));
}
// `lowest` is what the maximum of nothing is.
template <typename V>
__device__ __forceinline__ V block_max(V value, V lowest) {
    __shared__ V partial[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    value = warp_max(value);
    __syncthreads();
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    return warp_max(lane < warps ? partial[lane] : lowest);
}

// ---- entry points ------------------------------------------------------------------------------
// KERNEL(threads): a kernel that Python finds by its plain name, launched with at most `threads`
// threads a block: the compiler plans its registers for that. KERNEL(threads, blocks) also says how
// many blocks should fit on a multiprocessor; without it the compiler chooses, and sometimes
// spills registers to memory to fit one more.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define FOR_EACH_DTYPE(MACRO) MACRO(f32, float) MACRO(bf16, __nv_bfloat16)
