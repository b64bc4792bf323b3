// argmax.cu: the token with the largest logit, for every row                          (chapter 06)
//
// kernel             registers  launch                what changes
//   argmax_naive       <= 48    ceil(R/256) x 256     a thread walks through a row alone
//   argmax_tree        <= 40    R x min(V/8, 1024)    a block shares a row; pairs (value, id) are
//                                                     folded in shared memory (8 bytes a thread)
//   argmax_warp        <= 40    R x min(V/8, 1024)    shuffles
//   argmax_split       <= 32    (V/8192, R) x 256     many blocks share a row, and meet in one
//                                                     atomicMax on a 64-bit key; for few long rows
//   argmax_unpack      <= 24    ceil(R/256) x 256     takes the ids out of the keys
//
// Ties go to the lowest id, so that greedy decoding is repeatable whatever the launch. NaN never
// wins, and a row without a winner gives 0: the id is always one of the vocabulary.
// R rows of V logits. Bytes: R * V elements. Operations: one comparison each.
//
// Measured, f32, R = 4, V = 32768    naive        tree        warp        split
//   x-ray: bytes moved               4.19 MB      0.52 MB     0.52 MB     0.52 MB
//   x-ray: barriers in a block       0            11          1           2
//   thread blocks                    1            4           4           16, and 1
//   CPU                              0.11 ms      1.3 ms      1.9 ms      2.1 ms

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
