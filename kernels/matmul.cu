// matmul.cu: c = a * w^T, a [M, K], w [N, K]: a linear layer for many tokens          (chapter 07)
//
// kernel             registers  launch                    what changes
//   matmul_naive       <= 64    (N/16, M/16) x (16, 16)   a thread makes one element of c from
//                                                         memory
//   matmul_tiled       <= 64    (N/16, M/16) x (16, 16)   a block reads 16 x 16 tiles into shared
//                                                         memory (2.1 KB): 16 times fewer reads
//   matmul_register    <= 64    (N/64, M/64) x 256        a thread makes 4 x 4 elements: 8 reads of
//                                                         shared memory for 16 products (8.7 KB)
//
// 2 * M * N * K operations. Elements read: naive 2 * M * N * K, tiled 2 * M * N * K / 16, register
// 2 * M * N * K / 64; what must be read is M * K + N * K. No tensor cores: cuBLAS is far ahead.
//
// Measured, f32, M = 64, N = 128, K = 256    naive        tiled       register
//   x-ray: bytes moved                       37.8 MB      1.08 MB     0.39 MB     (needed: 0.23 MB)
//   x-ray: requests to shared memory         0            139,264     10,240
//   x-ray: bank conflicts, extra passes      0            4,096       2,048
//   CPU                                      1.6 ms       7.5 ms      1.0 ms
// Of the conflicts, tiled's are in writing w_tile (2 passes: the second row of a warp starts 17
// words after the first), register's in writing the transposed tiles. Reads are free of conflicts.

#include "common.cuh"

template <typename T>
__device__ void matmul_naive(T* c, const T* a, const T* w, int m, int n, int k) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum += to_float(a[(int64)row * k + i]) * to_float(w[(int64)col * k + i]);
    c[(int64)row * n + col] = from_float<T>(sum);
}

constexpr int TILE = 16;

template <typename T>
__device__ void matmul_tiled(T* c, const T* a, const T* w, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    // One column more than needed, so that reading down a column meets 16 different banks.
    __shared__ float w_tile[TILE][TILE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    const int w_row = blockIdx.x * TILE + ty;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        const int i = start + tx;
        a_tile[ty][tx] = row < m && i < k ? to_float(a[(int64)row * k + i]) : 0.0f;
        w_tile[ty][tx] = w_row < n && i < k ? to_float(w[(int64)w_row * k + i]) : 0.0f;
        __syncthreads();
        for (int j = 0; j < TILE; ++j) sum += a_tile[ty][j] * w_tile[tx][j];
        __syncthreads();  // nobody loads the next tile while somebody still reads this one
    }
    if (row < m && col < n) c[(int64)row * n + col] = from_float<T>(sum);
}

constexpr int BLOCK_TILE = 64;  // a block computes 64 x 64 outputs
constexpr int DEPTH = 16;       // from slices of 16 of the inner dimension
constexpr int PATCH = 4;        // a thread keeps 4 x 4 of them in registers

// Copies rows first_row.. of a [rows, k] matrix, columns start..start+15, transposed into `tile`.
template <typename T>
__device__ __forceinline__ void load_slice(float (*tile)[BLOCK_TILE + PATCH], const T* matrix,
                                           int first_row, int rows, int start, int k) {
    for (int e = threadIdx.x; e < BLOCK_TILE * DEPTH; e += 256) {
        const int r = e / DEPTH, i = e % DEPTH, row = first_row + r;
        tile[i][r] = row < rows && start + i < k ? to_float(matrix[(int64)row * k + start + i]) : 0;
    }
}

template <typename T>
__device__ void matmul_register(T* c, const T* a, const T* w, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[DEPTH][BLOCK_TILE + PATCH];
    __shared__ __align__(16) float w_tile[DEPTH][BLOCK_TILE + PATCH];
    const int tx = threadIdx.x % 16 * PATCH, ty = threadIdx.x / 16 * PATCH;
    const int first_row = blockIdx.y * BLOCK_TILE, first_col = blockIdx.x * BLOCK_TILE;
    float sum[PATCH][PATCH] = {};
    for (int start = 0; start < k; start += DEPTH) {
        load_slice(a_tile, a, first_row, m, start, k);
        load_slice(w_tile, w, first_col, n, start, k);
        __syncthreads();
        for (int i = 0; i < DEPTH; ++i) {
            const Pack<float> x = load_pack(&a_tile[i][ty]), y = load_pack(&w_tile[i][tx]);
            for (int r = 0; r < PATCH; ++r)
                for (int s = 0; s < PATCH; ++s) sum[r][s] += x.at[r] * y.at[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < PATCH; ++r)
        for (int s = 0; s < PATCH; ++s) {
            const int row = first_row + ty + r, col = first_col + tx + s;
            if (row < m && col < n) c[(int64)row * n + col] = from_float<T>(sum[r][s]);
        }
}

#define MATMUL_KERNELS(DTYPE, T)                                                                   \
    KERNEL(256, 4)                                                                                 \
    matmul_naive_##DTYPE(T* c, const T* __restrict__ a, const T* __restrict__ w, int m, int n,     \
                         int k) {                                                                  \
        matmul_naive<T>(c, a, w, m, n, k);                                                         \
    }                                                                                              \
    KERNEL(256, 4)                                                                                 \
    matmul_tiled_##DTYPE(T* c, const T* __restrict__ a, const T* __restrict__ w, int m, int n,     \
                         int k) {                                                                  \
        matmul_tiled<T>(c, a, w, m, n, k);                                                         \
    }                                                                                              \
    KERNEL(256, 4)                                                                                 \
    matmul_register_##DTYPE(T* c, const T* __restrict__ a, const T* __restrict__ w, int m, int n,  \
                            int k) {                                                               \
        matmul_register<T>(c, a, w, m, n, k);                                                      \
    }
FOR_EACH_DTYPE(MATMUL_KERNELS)
