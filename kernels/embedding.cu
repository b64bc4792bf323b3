// embedding.cu: out[t] = table[ids[t]], the first thing that happens to a token       (chapter 06)
//
// kernel             registers  launch                what changes
//   embedding_naive    <= 56    ceil(T/256) x 256     a thread copies a whole row by itself
//   embedding_row      <= 32    T x min(D, 256)       a block copies a row: neighbours side by side
//   embedding_vec      <= 64    T x min(D/4, 256)     16 bytes a thread: 4 floats or 8 bf16
//
// T tokens, rows of D elements. Bytes: T * D read, T * D written; operations: none. The time is
// memory's, so what counts is how many sectors a warp touches and how many of their bytes it uses.
// In the naive version the lanes of a warp are a whole row apart: 32 sectors for 32 floats.
// An id outside the table writes a row of zeros: it must not read somebody else's memory.
//
// Measured, f32, T = 32, D = 2048    naive        row         vec
//   x-ray: bytes moved               4.19 MB      0.53 MB     0.53 MB     (needed: 0.52 MB)
//   x-ray: sectors for a request     32           4           16, for four times the elements
//   x-ray: share of bytes used       12 %         100 %       100 %
//   CPU                              0.09 ms      0.15 ms     0.13 ms

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
