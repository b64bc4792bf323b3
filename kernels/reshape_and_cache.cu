// reshape_and_cache.cu: put new keys and values into their slots of the paged cache   (chapter 11)
//
// kernel                       registers  launch                what changes
//   reshape_and_cache_naive      <= 64    ceil(T/256) x 256     a thread copies a token by itself
//   reshape_and_cache_row        <= 32    T x min(W, 1024)      a block copies a token
//   reshape_and_cache_vec        <= 64    T x min(W/4, 1024)    16 bytes a thread (bf16: W/8)
//
// k, v [T, W] with W = KV heads * head_dim; a layer's cache is [blocks, block_size, W], so that
// slot s = block * block_size + offset is row s. A negative slot marks padding and is skipped. Two
// tokens must not have the same slot: nothing says who would win.
// Bytes: 2 * T * W elements read, as many written. Operations: none.
//
// Measured, f32, T = 32, W = 512     naive        row         vec
//   x-ray: bytes moved               2.10 MB      0.28 MB     0.27 MB     (needed: 0.26 MB)
//   x-ray: requests to memory        2,049        2,560       640
//   CPU                              0.06 ms      0.19 ms     0.10 ms

#include "common.cuh"

template <typename T>
__device__ void reshape_and_cache_naive(T* k_cache, T* v_cache, const T* k, const T* v,
                                        const int64* slot_mapping, int tokens, int width) {
    const int64 token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens || slot_mapping[token] < 0) return;
    const int64 slot = slot_mapping[token];
    for (int i = 0; i < width; ++i) {
        k_cache[slot * width + i] = k[token * width + i];
        v_cache[slot * width + i] = v[token * width + i];
    }
}

template <typename T>
__device__ void reshape_and_cache_row(T* k_cache, T* v_cache, const T* k, const T* v,
                                      const int64* slot_mapping, int width) {
    const int64 token = blockIdx.x, slot = slot_mapping[token];
    if (slot < 0) return;  // padding; the whole block leaves
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        k_cache[slot * width + i] = k[token * width + i];
        v_cache[slot * width + i] = v[token * width + i];
    }
}

template <typename T>
__device__ void reshape_and_cache_vec(T* k_cache, T* v_cache, const T* k, const T* v,
                                      const int64* slot_mapping, int width) {
    const int64 token = blockIdx.x, slot = slot_mapping[token];
    if (slot < 0) return;
    copy_elements(k_cache + slot * width, k + token * width, width, threadIdx.x, blockDim.x);
    copy_elements(v_cache + slot * width, v + token * width, width, threadIdx.x, blockDim.x);
}

#define RESHAPE_AND_CACHE_KERNELS(DTYPE, T)                                                        \
    KERNEL(256, 4)                                                                                 \
    reshape_and_cache_naive_##DTYPE(                                                               \
        T* k_cache, T* v_cache, const T* __restrict__ k, const T* __restrict__ v,                  \
        const long long* __restrict__ slot_mapping, int tokens, int width) {                       \
        reshape_and_cache_naive<T>(k_cache, v_cache, k, v, slot_mapping, tokens, width);           \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    reshape_and_cache_row_##DTYPE(T* k_cache, T* v_cache, const T* __restrict__ k,                 \
                                  const T* __restrict__ v,                                         \
                                  const long long* __restrict__ slot_mapping, int width) {         \
        reshape_and_cache_row<T>(k_cache, v_cache, k, v, slot_mapping, width);                     \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    reshape_and_cache_vec_##DTYPE(T* k_cache, T* v_cache, const T* __restrict__ k,                 \
                                  const T* __restrict__ v,                                         \
                                  const long long* __restrict__ slot_mapping, int width) {         \
        reshape_and_cache_vec<T>(k_cache, v_cache, k, v, slot_mapping, width);                     \
    }
FOR_EACH_DTYPE(RESHAPE_AND_CACHE_KERNELS)
