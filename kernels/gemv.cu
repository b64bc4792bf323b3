// gemv.cu: y[n] = sum over k of x[k] * w[n][k], a linear layer for one token          (chapter 07)
//
// kernel             registers  launch                what changes
//   gemv_naive         <= 56    (N/128, rows) x 128   a thread walks through a row of w alone
//   gemv_warp          <= 56    (N/4, rows) x 128     a warp shares a row, and adds up by shuffles
//   gemv_vec           <= 64    (N/4, rows) x 128     16 bytes a thread
//
// w is [N, K], as linear layers store it. Each of its elements is used once: N * K elements are
// read for 2 * N * K operations. That is why decode is bound by memory. gridDim.y counts rows of x.
//
// Measured, f32, N = 256, K = 2048   naive        warp        vec
//   x-ray: bytes moved               17.3 MB      4.20 MB     4.20 MB     (w: 2.10 MB; the
//   x-ray: requests to memory        32,776       33,024      8,448       rest is x, cached)
//   CPU                              0.47 ms      1.5 ms      1.6 ms

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
