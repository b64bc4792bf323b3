#include "common.cuh"

// A logit and the id of its token. The better one is the larger; of equals, the lower id.
struct Candidate {
    float value;
    int id;
};
constexpr int NO_ID = 0x7fffffff;

__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

// The best of a row's elements first, first + stride, ... A NaN never wins.
template <typename T>
__device__ __forceinline__ Candidate best_of(const T* row, int cols, int first, int stride) {
    Candidate best = {NEG_INF, NO_ID};
    for (int i = first; i < cols; i += stride) best = better(best, {to_float(row[i]), i});
    return best;
}

// A row of NaN, or no row at all, has no winner: token 0 stands in, so that nobody indexes with -1.
__device__ __forceinline__ int id_or_zero(Candidate best) {
    return best.id == NO_ID ? 0 : best.id;
}

template <typename T>
__device__ void argmax_naive(int* out, const T* logits, int rows, int cols) {
    const int64 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) out[row] = id_or_zero(best_of(logits + row * cols, cols, 0, 1));
}

template <typename T>
__device__ void argmax_tree(int* out, const T* logits, int cols, Candidate* shared) {
    const T* row = logits + (int64)blockIdx.x * cols;
    shared[threadIdx.x] = best_of(row, cols, threadIdx.x, blockDim.x);
    __syncthreads();
    for (int width = blockDim.x; width > 1; width = (width + 1) / 2) {
        const int half = (width + 1) / 2;
        if (threadIdx.x < width / 2)
            shared[threadIdx.x] = better(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = id_or_zero(shared[0]);
}

__device__ __forceinline__ Candidate warp_best(Candidate best) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const float value = __shfl_xor_sync(FULL_MASK, best.value, offset);
        const int id = __shfl_xor_sync(FULL_MASK, best.id, offset);
        best = better(best, {value, id});
    }
    return best;
}

template <typename T>
__device__ void argmax_warp(int* out, const T* logits, int cols) {
    __shared__ Candidate warp_winner[32];
    const T* row = logits + (int64)blockIdx.x * cols;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    Candidate best = warp_best(best_of(row, cols, threadIdx.x, blockDim.x));
    if (lane == 0) warp_winner[warp] = best;
    __syncthreads();
    if (warp > 0) return;
    best = warp_best(lane < warps ? warp_winner[lane] : Candidate{NEG_INF, NO_ID});
    if (lane == 0) out[blockIdx.x] = id_or_zero(best);
}

// (value, lowest id) as one 64-bit number, whose largest is the winner: one atomicMax settles it.
template <typename T>
__device__ void argmax_split(uint64* keys, const T* logits, int cols) {
    const T* row = logits + (int64)blockIdx.y * cols;
    uint64 key = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += gridDim.x * blockDim.x) {
        const uint64 mine = (uint64)sort_key(to_float(row[i])) << 32 | (unsigned)~i;
        key = mine > key ? mine : key;
    }
    key = block_max(key, uint64(0));
    if (threadIdx.x == 0) atomicMax(&keys[blockIdx.y], key);
}

#define ARGMAX_KERNELS(DTYPE, T)                                                                   \
    KERNEL(256, 4)                                                                                 \
    argmax_naive_##DTYPE(int* out, const T* __restrict__ logits, int rows, int cols) {             \
        argmax_naive<T>(out, logits, rows, cols);                                                  \
    }                                                                                              \
    KERNEL(1024, 1) argmax_tree_##DTYPE(int* out, const T* __restrict__ logits, int cols) {        \
        extern __shared__ Candidate candidates[];                                                  \
        argmax_tree<T>(out, logits, cols, candidates);                                             \
    }                                                                                              \
    KERNEL(1024, 1) argmax_warp_##DTYPE(int* out, const T* __restrict__ logits, int cols) {        \
        argmax_warp<T>(out, logits, cols);                                                         \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    argmax_split_##DTYPE(unsigned long long* keys, const T* __restrict__ logits, int cols) {       \
        argmax_split<T>(keys, logits, cols);                                                       \
    }
FOR_EACH_DTYPE(ARGMAX_KERNELS)

// Second launch of argmax_split: takes the ids out of the keys. NaN-only rows (high half 0) give 0.
KERNEL(256, 4) argmax_unpack(int* out, const unsigned long long* __restrict__ keys, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) out[row] = keys[row] >> 32 ? (int)~(unsigned)keys[row] : 0;
}
