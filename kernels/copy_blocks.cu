#include "common.cuh"

template <typename T>
__device__ void copy_blocks_naive(T* k_cache, T* v_cache, const int64* pairs,
                                  int64 block_elements) {
    const int64 source = pairs[2 * blockIdx.x] * block_elements;
    const int64 target = pairs[2 * blockIdx.x + 1] * block_elements;
    for (int64 i = threadIdx.x; i < block_elements; i += blockDim.x) {
        k_cache[target + i] = k_cache[source + i];
        v_cache[target + i] = v_cache[source + i];
    }
}

template <typename T>
__device__ void copy_blocks_vec(T* k_cache, T* v_cache, const int64* pairs, int64 block_elements) {
    T* cache = blockIdx.z == 0 ? k_cache : v_cache;
    copy_elements(cache + pairs[2 * blockIdx.x + 1] * block_elements,
                  cache + pairs[2 * blockIdx.x] * block_elements, block_elements,
                  (int64)blockIdx.y * blockDim.x + threadIdx.x, (int64)gridDim.y * blockDim.x);
}

#define COPY_BLOCKS_KERNELS(DTYPE, T)                                                              \
    KERNEL(1024, 1)                                                                                \
    copy_blocks_naive_##DTYPE(T* k_cache, T* v_cache, const long long* __restrict__ pairs,         \
                              long long block_elements) {                                          \
        copy_blocks_naive<T>(k_cache, v_cache, pairs, block_elements);                             \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    copy_blocks_vec_##DTYPE(T* k_cache, T* v_cache, const long long* __restrict__ pairs,           \
                            long long block_elements) {                                            \
        copy_blocks_vec<T>(k_cache, v_cache, pairs, block_elements);                               \
    }
FOR_EACH_DTYPE(COPY_BLOCKS_KERNELS)
