// rmsnorm.cu: out = x / sqrt(mean(x^2) + eps) * weight, for every row                 (chapter 06)
//
// kernel             registers  launch               what changes
//   rmsnorm_naive      <= 56    ceil(R/256) x 256    a thread walks through a row alone
//   rmsnorm_tree       <= 32    R x min(H/8, 1024)   a block shares a row; the sums are folded in
//                                                    shared memory, half by half (4 bytes a thread)
//   rmsnorm_warp       <= 32    R x min(H/8, 1024)   lanes exchange registers by shuffles; shared
//                                                    memory only carries one number per warp
//   rmsnorm_vec        <= 48    R x min(H/8, 1024)   16 bytes a thread
//   add_rmsnorm_vec    <= 56    R x min(H/8, 1024)   adds x to the residual on the way, and stores
//                                                    the sum: the row passes by once, not twice
//
// R rows of H elements. Bytes: read x, write out (weight and the second look at x come from the
// caches): 2 * R * H elements. Adding and norming takes 3 + 2, the fused kernel 4.
// Operations: about 5 for each element, far below what memory allows.
//
// Measured, f32, R = 32, H = 2048    naive        tree        warp        vec         add + vec
//   x-ray: bytes moved               6.36 MB      1.05 MB     1.05 MB     1.05 MB     1.57 MB
//   x-ray: requests to memory        8,192        8,192       8,192       2,048       3,072
//   x-ray: barriers in a block       0            9           2           2           2
//   CPU                              0.14 ms      1.6 ms      2.5 ms      2.6 ms      2.6 ms

#include "common.cuh"

template <typename T>
__device__ void rmsnorm_naive(T* out, const T* x, const T* weight, int rows, int dim, float eps) {
    const int64 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < dim; ++i) {
        const float v = to_float(x[row * dim + i]);
        sum += v * v;
    }
    const float scale = rsqrtf(sum / dim + eps);
    for (int i = 0; i < dim; ++i)
        out[row * dim + i] =
            from_float<T>(to_float(x[row * dim + i]) * scale * to_float(weight[i]));
}

template <typename T>
__device__ void rmsnorm_tree(T* out, const T* x, const T* weight, int dim, float eps, float* sums) {
    const T* row = x + (int64)blockIdx.x * dim;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        const float v = to_float(row[i]);
        sum += v * v;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    // Fold the upper half onto the lower one until one value is left; any width works.
    for (int width = blockDim.x; width > 1; width = (width + 1) / 2) {
        const int half = (width + 1) / 2;
        if (threadIdx.x < width / 2) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    const float scale = rsqrtf(sums[0] / dim + eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        out[(int64)blockIdx.x * dim + i] =
            from_float<T>(to_float(row[i]) * scale * to_float(weight[i]));
}

template <typename T>
__device__ void rmsnorm_warp(T* out, const T* x, const T* weight, int dim, float eps) {
    const T* row = x + (int64)blockIdx.x * dim;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        const float v = to_float(row[i]);
        sum += v * v;
    }
    const float scale = rsqrtf(block_sum(sum) / dim + eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        out[(int64)blockIdx.x * dim + i] =
            from_float<T>(to_float(row[i]) * scale * to_float(weight[i]));
}

// The second half of the vectorised kernels: out = row * scale * weight.
template <typename T>
__device__ __forceinline__ void scale_row(T* out, const T* row, const T* weight, int dim,
                                          float scale) {
    constexpr int SIZE = Pack<T>::SIZE;
    const int packs =
        min(min(whole_packs(row, dim), whole_packs(out, dim)), whole_packs(weight, dim));
    for (int p = threadIdx.x; p < packs; p += blockDim.x) {
        Pack<T> v = load_pack(row + p * SIZE);
        const Pack<T> w = load_pack(weight + p * SIZE);
        for (int j = 0; j < SIZE; ++j)
            v.at[j] = from_float<T>(to_float(v.at[j]) * scale * to_float(w.at[j]));
        store_pack(out + p * SIZE, v);
    }
    for (int i = packs * SIZE + threadIdx.x; i < dim; i += blockDim.x)
        out[i] = from_float<T>(to_float(row[i]) * scale * to_float(weight[i]));
}

template <typename T>
__device__ void rmsnorm_vec(T* out, const T* x, const T* weight, int dim, float eps) {
    constexpr int SIZE = Pack<T>::SIZE;
    const T* row = x + (int64)blockIdx.x * dim;
    const int packs = whole_packs(row, dim);
    float sum = 0.0f;
    for (int p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T> v = load_pack(row + p * SIZE);
        for (int j = 0; j < SIZE; ++j) sum += to_float(v.at[j]) * to_float(v.at[j]);
    }
    for (int i = packs * SIZE + threadIdx.x; i < dim; i += blockDim.x)
        sum += to_float(row[i]) * to_float(row[i]);
    const float scale = rsqrtf(block_sum(sum) / dim + eps);
    scale_row(out + (int64)blockIdx.x * dim, row, weight, dim, scale);
}

// residual += x, then the norm of what was stored: rounded to T exactly as two kernels would.
template <typename T>
__device__ void add_rmsnorm_vec(T* out, T* residual, const T* x, const T* weight, int dim,
                                float eps) {
    constexpr int SIZE = Pack<T>::SIZE;
    const T* row = x + (int64)blockIdx.x * dim;
    T* total = residual + (int64)blockIdx.x * dim;
    const int packs = min(whole_packs(row, dim), whole_packs(total, dim));
    float sum = 0.0f;
    for (int p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T> a = load_pack(row + p * SIZE);
        Pack<T> b = load_pack(total + p * SIZE);
        for (int j = 0; j < SIZE; ++j) {
            b.at[j] = from_float<T>(to_float(a.at[j]) + to_float(b.at[j]));
            sum += to_float(b.at[j]) * to_float(b.at[j]);
        }
        store_pack(total + p * SIZE, b);
    }
    for (int i = packs * SIZE + threadIdx.x; i < dim; i += blockDim.x) {
        total[i] = from_float<T>(to_float(row[i]) + to_float(total[i]));
        sum += to_float(total[i]) * to_float(total[i]);
    }
    // The barriers in block_sum also make every thread's part of `total` visible to the others.
    const float scale = rsqrtf(block_sum(sum) / dim + eps);
    scale_row(out + (int64)blockIdx.x * dim, total, weight, dim, scale);
}

#define RMSNORM_KERNELS(DTYPE, T)                                                                  \
    KERNEL(256, 4)                                                                                 \
    rmsnorm_naive_##DTYPE(T* out, const T* __restrict__ x, const T* __restrict__ weight, int rows, \
                          int dim, float eps) {                                                    \
        rmsnorm_naive<T>(out, x, weight, rows, dim, eps);                                          \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    rmsnorm_tree_##DTYPE(T* out, const T* __restrict__ x, const T* __restrict__ weight, int dim,   \
                         float eps) {                                                              \
        extern __shared__ float sums[];                                                            \
        rmsnorm_tree<T>(out, x, weight, dim, eps, sums);                                           \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    rmsnorm_warp_##DTYPE(T* out, const T* __restrict__ x, const T* __restrict__ weight, int dim,   \
                         float eps) {                                                              \
        rmsnorm_warp<T>(out, x, weight, dim, eps);                                                 \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    rmsnorm_vec_##DTYPE(T* out, const T* __restrict__ x, const T* __restrict__ weight, int dim,    \
                        float eps) {                                                               \
        rmsnorm_vec<T>(out, x, weight, dim, eps);                                                  \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    add_rmsnorm_vec_##DTYPE(T* out, T* residual, const T* __restrict__ x,                          \
                            const T* __restrict__ weight, int dim, float eps) {                    \
        add_rmsnorm_vec<T>(out, residual, x, weight, dim, eps);                                    \
    }
FOR_EACH_DTYPE(RMSNORM_KERNELS)
