// softmax.cu: out = e^x / sum(e^x), for every row                                     (chapter 07)
//
// kernel             registers  launch                what changes
//   softmax_naive      <= 56    ceil(R/256) x 256     a thread walks through a row three times:
//                                                     for the maximum, the sum, the result
//   softmax_tree       <= 32    R x min(C/8, 1024)    a block shares a row; two folds in shared
//                                                     memory (4 bytes a thread); still three walks
//   softmax_online     <= 32    R x min(C/8, 1024)    maximum and sum in one walk (Milakov and
//                                                     Gimelshein, 2018); shuffles
//
// The maximum is subtracted so that no exponential overflows; that changes nothing in the quotient.
// R rows of C elements. Bytes: 4 * R * C elements with three walks, 3 * R * C with two. Operations:
// one or two exponentials and about 4 more for each element.
//
// Measured, f32, R = 32, C = 2048    naive        tree        online
//   x-ray: bytes moved               8.39 MB      1.05 MB     0.79 MB
//   x-ray: barriers in a block       0            20          4
//   CPU                              0.55 ms      3.4 ms      5.2 ms

#include "common.cuh"

template <typename T>
__device__ void softmax_naive(T* out, const T* x, int rows, int cols) {
    const int64 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const T* in = x + row * cols;
    float largest = NEG_INF;
    for (int i = 0; i < cols; ++i) largest = fmaxf(largest, to_float(in[i]));
    float sum = 0.0f;
    for (int i = 0; i < cols; ++i) sum += __expf(to_float(in[i]) - largest);
    for (int i = 0; i < cols; ++i)
        out[row * cols + i] = from_float<T>(__expf(to_float(in[i]) - largest) / sum);
}

// Folds `shared` (one value per thread) with `max` or `+` until shared[0] holds the result.
__device__ __forceinline__ float tree_max(float* shared, float value) {
    __syncthreads();  // the previous result may still be read
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int width = blockDim.x; width > 1; width = (width + 1) / 2) {
        const int half = (width + 1) / 2;
        if (threadIdx.x < width / 2)
            shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    return shared[0];
}
__device__ __forceinline__ float tree_sum(float* shared, float value) {
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int width = blockDim.x; width > 1; width = (width + 1) / 2) {
        const int half = (width + 1) / 2;
        if (threadIdx.x < width / 2) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

template <typename T>
__device__ void softmax_tree(T* out, const T* x, int cols, float* shared) {
    const T* in = x + (int64)blockIdx.x * cols;
    float value = NEG_INF;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) value = fmaxf(value, to_float(in[i]));
    const float largest = tree_max(shared, value);
    value = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) value += __expf(to_float(in[i]) - largest);
    const float sum = tree_sum(shared, value);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(int64)blockIdx.x * cols + i] = from_float<T>(__expf(to_float(in[i]) - largest) / sum);
}

// One pass keeps the largest value so far and the sum of exponentials relative to it. When a
// larger value comes, the old sum shrinks by e^(old largest - new largest).
template <typename T>
__device__ void softmax_online(T* out, const T* x, int cols) {
    const T* in = x + (int64)blockIdx.x * cols;
    float largest = NEG_INF, sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        const float value = to_float(in[i]);
        if (value > largest) {
            sum *= __expf(largest - value);
            largest = value;
        }
        if (value > NEG_INF) sum += __expf(value - largest);
    }
    const float row_largest = block_max(largest, NEG_INF);
    // A thread that saw nothing has sum 0; -inf minus -inf would be NaN.
    const float share = sum > 0.0f ? sum * __expf(largest - row_largest) : 0.0f;
    const float inverse = 1.0f / block_sum(share);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(int64)blockIdx.x * cols + i] =
            from_float<T>(__expf(to_float(in[i]) - row_largest) * inverse);
}

#define SOFTMAX_KERNELS(DTYPE, T)                                                                  \
    KERNEL(256, 4) softmax_naive_##DTYPE(T* out, const T* __restrict__ x, int rows, int cols) {    \
        softmax_naive<T>(out, x, rows, cols);                                                      \
    }                                                                                              \
    KERNEL(1024, 1) softmax_tree_##DTYPE(T* out, const T* __restrict__ x, int cols) {              \
        extern __shared__ float shared[];                                                          \
        softmax_tree<T>(out, x, cols, shared);                                                     \
    }                                                                                              \
    KERNEL(1024, 1) softmax_online_##DTYPE(T* out, const T* __restrict__ x, int cols) {            \
        softmax_online<T>(out, x, cols);                                                           \
    }
FOR_EACH_DTYPE(SOFTMAX_KERNELS)
