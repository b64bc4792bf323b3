// rope.cu: turn each pair (x[i], x[i + D/2]) of a head by an angle, in place           (chapter 07)
//
// kernel             registers  launch                what changes
//   rope_naive         <= 48    (T, heads) x D/2      one tensor; a block for each head
//   rope_fused         <= 48    T x min(256, ...)     queries and keys in one launch; a block turns
//                                                     all heads of a token
//   rope_vec           <= 64    T x min(256, ...)     16 bytes a thread, tables included
//
// The angles come from tables, cos and sin [positions, D/2] in float: whoever makes the tables
// decides on base and scaling (Llama 3 slows down the long wavelengths). positions may be null:
// then token t takes row t. Pairs are half-split, as in Hugging Face checkpoints.
//
// T tokens, Q + K heads of D. Bytes: 2 * T * (Q + K) * D elements, and the tables' rows, which the
// heads of a token share through the cache. Operations: 3 for each element.
//
// Measured, f32, T = 32, 32 + 8 heads of 64    naive (2 launches)   fused       vec
//   x-ray: bytes moved                         1.02 MB              0.99 MB     0.75 MB
//   x-ray: requests to memory                  8,960                7,936       2,176
//   CPU                                        0.50 ms              0.24 ms     0.18 ms

#include "common.cuh"

// Rotates the pair (head[i], head[i + half]) by the angle whose cosine and sine are given.
template <typename T>
__device__ __forceinline__ void rotate(T* head, int i, int half, float cos, float sin) {
    const float a = to_float(head[i]), b = to_float(head[i + half]);
    head[i] = from_float<T>(a * cos - b * sin);
    head[i + half] = from_float<T>(b * cos + a * sin);
}

template <typename T>
__device__ void rope_naive(T* x, const int64* positions, const float* cos_table,
                           const float* sin_table, int heads, int head_dim) {
    const int64 token = blockIdx.x;
    const int half = head_dim / 2;
    const int64 row = (positions ? positions[token] : token) * half;
    T* head = x + (token * heads + blockIdx.y) * head_dim;
    for (int i = threadIdx.x; i < half; i += blockDim.x)
        rotate(head, i, half, cos_table[row + i], sin_table[row + i]);
}

template <typename T>
__device__ void rope_fused(T* q, T* k, const int64* positions, const float* cos_table,
                           const float* sin_table, int q_heads, int k_heads, int head_dim) {
    const int64 token = blockIdx.x;
    const int half = head_dim / 2;
    const int64 row = (positions ? positions[token] : token) * half;
    for (int n = threadIdx.x; n < (q_heads + k_heads) * half; n += blockDim.x) {
        const int head = n / half, i = n % half;
        T* x = head < q_heads ? q + (token * q_heads + head) * head_dim
                              : k + (token * k_heads + head - q_heads) * head_dim;
        rotate(x, i, half, cos_table[row + i], sin_table[row + i]);
    }
}

// Rotates Pack<T>::SIZE neighbouring pairs at once: half-split puts both partners in whole packs.
template <typename T>
__device__ __forceinline__ void rotate_pack(T* head, int half, const float* cos, const float* sin) {
    Pack<T> a = load_pack(head), b = load_pack(head + half);
    float c[Pack<T>::SIZE], s[Pack<T>::SIZE];
    load_floats(c, cos);
    load_floats(s, sin);
#pragma unroll
    for (int j = 0; j < Pack<T>::SIZE; ++j) {
        const float x = to_float(a.at[j]), y = to_float(b.at[j]);
        a.at[j] = from_float<T>(x * c[j] - y * s[j]);
        b.at[j] = from_float<T>(y * c[j] + x * s[j]);
    }
    store_pack(head, a);
    store_pack(head + half, b);
}

template <typename T>
__device__ void rope_vec(T* q, T* k, const int64* positions, const float* cos_table,
                         const float* sin_table, int q_heads, int k_heads, int head_dim) {
    constexpr int SIZE = Pack<T>::SIZE;
    const int64 token = blockIdx.x;
    const int half = head_dim / 2, packs = half / SIZE;
    const int64 row = (positions ? positions[token] : token) * half;
    for (int n = threadIdx.x; n < (q_heads + k_heads) * packs; n += blockDim.x) {
        const int head = n / packs, i = n % packs * SIZE;
        T* x = head < q_heads ? q + (token * q_heads + head) * head_dim
                              : k + (token * k_heads + head - q_heads) * head_dim;
        rotate_pack(x + i, half, cos_table + row + i, sin_table + row + i);
    }
}

#define ROPE_KERNELS(DTYPE, T)                                                                     \
    KERNEL(1024, 1)                                                                                \
    rope_naive_##DTYPE(T* x, const long long* __restrict__ positions,                              \
                       const float* __restrict__ cos_table, const float* __restrict__ sin_table,   \
                       int heads, int head_dim) {                                                  \
        rope_naive<T>(x, positions, cos_table, sin_table, heads, head_dim);                        \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    rope_fused_##DTYPE(T* q, T* k, const long long* __restrict__ positions,                        \
                       const float* __restrict__ cos_table, const float* __restrict__ sin_table,   \
                       int q_heads, int k_heads, int head_dim) {                                   \
        rope_fused<T>(q, k, positions, cos_table, sin_table, q_heads, k_heads, head_dim);          \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    rope_vec_##DTYPE(T* q, T* k, const long long* __restrict__ positions,                          \
                     const float* __restrict__ cos_table, const float* __restrict__ sin_table,     \
                     int q_heads, int k_heads, int head_dim) {                                     \
        rope_vec<T>(q, k, positions, cos_table, sin_table, q_heads, k_heads, head_dim);            \
    }
FOR_EACH_DTYPE(ROPE_KERNELS)
