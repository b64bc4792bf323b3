#include "common.cuh"

template <typename T>
__device__ void gemv_naive(T* y, const T* x, const T* w, int n, int k) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= n) return;
    const T* input = x + (int64)blockIdx.y * k;
    const T* row = w + (int64)col * k;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += to_float(input[i]) * to_float(row[i]);
    y[(int64)blockIdx.y * n + col] = from_float<T>(sum);
}

template <typename T>
__device__ void gemv_warp(T* y, const T* x, const T* w, int n, int k) {
    const int lane = threadIdx.x % 32, col = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (col >= n) return;  // a warp leaves as a whole
    const T* input = x + (int64)blockIdx.y * k;
    const T* row = w + (int64)col * k;
    float sum = 0.0f;
    for (int i = lane; i < k; i += 32) sum += to_float(input[i]) * to_float(row[i]);
    sum = warp_sum(sum);
    if (lane == 0) y[(int64)blockIdx.y * n + col] = from_float<T>(sum);
}

template <typename T>
__device__ void gemv_vec(T* y, const T* x, const T* w, int n, int k) {
    constexpr int SIZE = Pack<T>::SIZE;
    const int lane = threadIdx.x % 32, col = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (col >= n) return;
    const T* input = x + (int64)blockIdx.y * k;
    const T* row = w + (int64)col * k;
    const int packs = min(whole_packs(input, k), whole_packs(row, k));
    float sum = 0.0f;
    for (int p = lane; p < packs; p += 32) {
        const Pack<T> a = load_pack(input + p * SIZE), b = load_pack(row + p * SIZE);
        for (int j = 0; j < SIZE; ++j) sum += to_float(a.at[j]) * to_float(b.at[j]);
    }
    for (int i = packs * SIZE + lane; i < k; i += 32) sum += to_float(input[i]) * to_float(row[i]);
    sum = warp_sum(sum);
    if (lane == 0) y[(int64)blockIdx.y * n + col] = from_float<T>(sum);
}

#define GEMV_KERNELS(DTYPE, T)                                                                     \
    KERNEL(256, 4)                                                                                 \
    gemv_naive_##DTYPE(T* y, const T* __restrict__ x, const T* __restrict__ w, int n, int k) {     \
        gemv_naive<T>(y, x, w, n, k);                                                              \
    }                                                                                              \
    KERNEL(256, 4)                                                                                 \
    gemv_warp_##DTYPE(T* y, const T* __restrict__ x, const T* __restrict__ w, int n, int k) {      \
        gemv_warp<T>(y, x, w, n, k);                                                               \
    }                                                                                              \
    KERNEL(256, 4)                                                                                 \
    gemv_vec_##DTYPE(T* y, const T* __restrict__ x, const T* __restrict__ w, int n, int k) {       \
        gemv_vec<T>(y, x, w, n, k);                                                                \
    }
FOR_EACH_DTYPE(GEMV_KERNELS)
