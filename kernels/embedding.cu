#include "common.cuh"

template <typename T>
__device__ void embedding_naive(T* out, const T* table, const int64* ids, int tokens, int dim,
                                int vocab) {
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    const int64 id = ids[token];
    const bool known = id >= 0 && id < vocab;
    for (int i = 0; i < dim; ++i)
        out[(int64)token * dim + i] = known ? table[id * dim + i] : from_float<T>(0.0f);
}

template <typename T>
__device__ void embedding_row(T* out, const T* table, const int64* ids, int dim, int vocab) {
    const int64 token = blockIdx.x, id = ids[token];
    const bool known = id >= 0 && id < vocab;
    for (int i = threadIdx.x; i < dim; i += blockDim.x)
        out[token * dim + i] = known ? table[id * dim + i] : from_float<T>(0.0f);
}

template <typename T>
__device__ void embedding_vec(T* out, const T* table, const int64* ids, int dim, int vocab) {
    const int64 token = blockIdx.x, id = ids[token];
    T* target = out + token * dim;
    if (id >= 0 && id < vocab)
        copy_elements(target, table + id * dim, dim, threadIdx.x, blockDim.x);
    else
        for (int i = threadIdx.x; i < dim; i += blockDim.x) target[i] = from_float<T>(0.0f);
}

#define EMBEDDING_KERNELS(DTYPE, T)                                                                \
    KERNEL(256, 4)                                                                                 \
    embedding_naive_##DTYPE(T* out, const T* __restrict__ table,                                   \
                            const long long* __restrict__ ids, int tokens, int dim, int vocab) {   \
        embedding_naive<T>(out, table, ids, tokens, dim, vocab);                                   \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    embedding_row_##DTYPE(T* out, const T* __restrict__ table, const long long* __restrict__ ids,  \
                          int dim, int vocab) {                                                    \
        embedding_row<T>(out, table, ids, dim, vocab);                                             \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    embedding_vec_##DTYPE(T* out, const T* __restrict__ table, const long long* __restrict__ ids,  \
                          int dim, int vocab) {                                                    \
        embedding_vec<T>(out, table, ids, dim, vocab);                                             \
    }
FOR_EACH_DTYPE(EMBEDDING_KERNELS)
