// copy_blocks.cu: copy whole KV blocks, for copy-on-write                             (chapter 12)
//
// kernel                 registers  launch                   what changes
//   copy_blocks_naive      <= 48    P x 256                  a block of threads copies a pair, keys
//                                                            and values one after the other
//   copy_blocks_vec        <= 64    (P, E/1024, 2) x 256     16 bytes a thread; a long block is cut
//                                                            into pieces (at most 16), keys and
//                                                            values apart: the GPU is filled even
//                                                            by one pair
//
// pairs [P, 2] are (source, target) block numbers; E elements in a block. All pairs are copied at
// once: a target must not be a source, nor occur twice.
// Bytes: 4 * P * E elements. Operations: none.
//
// Measured, f32, P = 2, E = 8192     naive        vec
//   x-ray: bytes moved               0.26 MB      0.28 MB
//   x-ray: requests to memory        2,080        1,024
//   thread blocks                    2            32
//   CPU                              0.16 ms      0.12 ms

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
