// paged_attention.cu: decode: one query per sequence looks at all its cached tokens   (chapter 11)
//
// kernel                      registers  launch                   what changes
//   paged_attention_naive       <= 56    (Q, S) x 128             a block for each query head: a
//                                                                 thread scores a token, 128 tokens
//                                                                 at a time; online softmax
//   paged_attention_warp        <= 64    (Q, S) x 128             a warp takes every 4th KV block:
//                                                                 lanes side by side in a key, no
//                                                                 barrier until the merge
//   paged_attention_split       <= 64    (K, S, parts) x 32 * Q/K split-K: the context is cut into
//                                        (at most 8 warps)        partitions, a block each, so that
//                                                                 one long sequence fills the GPU;
//                                                                 the query heads of a KV head sit
//                                                                 in one block; 16-byte loads
//   paged_attention_reduce      <= 56    (Q, S) x D               merges the partitions
//
// S sequences, Q query heads that share K KV heads (GQA), head size D = 32, 64 or 128. Tokens are
// found through the block table, whatever the block size. A sequence of length 0 gives zeros.
// L tokens of context: 2 * L * K * D elements must be read, for 4 * L * Q * D operations: Q/K * 2
// for each element, far too few to be bound by anything but memory.
//
// Measured, f32, S = 2, L = 512, Q = 32, K = 8, D = 64    naive       warp        split
//   x-ray: bytes moved (needed: 4.2 MB)                   77.7 MB     16.9 MB     17.3 MB
//   x-ray: requests to memory                             198,144     134,016     49,344
//   x-ray: warp operations                                20,480      163,840     65,920
//   CPU                                                   27 ms       100 ms      43 ms
// In naive, lanes read keys that lie K * D elements apart: 32 sectors a request, 12 % used. The
// four query heads of a group read the same keys. In warp they sit in four blocks that meet in the
// L2 cache at best, in split in one block, and three of four find them in L1.

#include "common.cuh"

constexpr int THREADS = 128, WARPS = THREADS / 32;

// Where a token's key or value of one KV head starts in the cache [blocks, block_size, heads, D].
struct PagedCache {
    const int* block_table;  // this sequence's row
    int block_size, kv_heads, kv_head, head_dim;

    __device__ __forceinline__ int64 offset(int token) const {
        const int64 slot = (int64)block_table[token / block_size] * block_size + token % block_size;
        return (slot * kv_heads + kv_head) * head_dim;
    }
};

template <typename T, int D>
__device__ void paged_attention_naive(T* out, const T* q, const T* k_cache, const T* v_cache,
                                      const int* block_table, const int* seq_lens, int kv_heads,
                                      int block_size, int max_blocks, float scale) {
    __shared__ float query[D];
    __shared__ float weights[THREADS];
    const int heads = gridDim.x, head = blockIdx.x, seq = blockIdx.y, t = threadIdx.x;
    const int64 row = ((int64)seq * heads + head) * D;
    const PagedCache cache = {block_table + (int64)seq * max_blocks, block_size, kv_heads,
                              head / (heads / kv_heads), D};
    const int length = seq_lens[seq];
    if (t < D) query[t] = to_float(q[row + t]) * scale;
    __syncthreads();

    float largest = NEG_INF, sum = 0.0f, acc = 0.0f;
    for (int start = 0; start < length; start += THREADS) {
        // Every thread scores one token of this stretch of 128 ...
        float score = NEG_INF;
        if (start + t < length) {
            const T* key = k_cache + cache.offset(start + t);
            score = 0.0f;
#pragma unroll 8
            for (int d = 0; d < D; ++d) score += query[d] * to_float(key[d]);
        }
        // ... the block makes weights of the scores, with the largest score so far ...
        const float new_largest = fmaxf(largest, block_max(score, NEG_INF));
        const float shrink = __expf(largest - new_largest);
        weights[t] = __expf(score - new_largest);
        sum = sum * shrink + block_sum(weights[t]);
        largest = new_largest;
        // ... and the first D threads add up the weighted values, one dimension each.
        acc *= shrink;
        const int tokens = min(THREADS, length - start);
        for (int j = 0; j < tokens && t < D; ++j)
            acc += weights[j] * to_float(v_cache[cache.offset(start + j) + t]);
    }
    if (t < D) out[row + t] = from_float<T>(sum > 0.0f ? acc / sum : 0.0f);
}

template <typename T, int D>
__device__ void paged_attention_warp(T* out, const T* q, const T* k_cache, const T* v_cache,
                                     const int* block_table, const int* seq_lens, int kv_heads,
                                     int block_size, int max_blocks, float scale) {
    constexpr int DIMS = D / 32;  // dimensions of a lane: lane, lane + 32, ...
    __shared__ float warp_largest[WARPS], warp_sums[WARPS], warp_acc[WARPS][D];
    const int heads = gridDim.x, head = blockIdx.x, seq = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 row = ((int64)seq * heads + head) * D;
    const PagedCache cache = {block_table + (int64)seq * max_blocks, block_size, kv_heads,
                              head / (heads / kv_heads), D};
    const int length = seq_lens[seq], blocks = (length + block_size - 1) / block_size;

    float query[DIMS], acc[DIMS], largest = NEG_INF, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < DIMS; ++j) {
        query[j] = to_float(q[row + lane + 32 * j]) * scale;
        acc[j] = 0.0f;
    }
    for (int block = warp; block < blocks; block += WARPS) {
        const int first = block * block_size, end = min(first + block_size, length);
        const int64 stride = (int64)kv_heads * D;
        int64 at = cache.offset(first) + lane;
        for (int token = first; token < end; ++token, at += stride) {
            float score = 0.0f;
#pragma unroll
            for (int j = 0; j < DIMS; ++j) score += query[j] * to_float(k_cache[at + 32 * j]);
            score = warp_sum(score);
            const float new_largest = fmaxf(largest, score);
            const float shrink = __expf(largest - new_largest), p = __expf(score - new_largest);
            sum = sum * shrink + p;
#pragma unroll
            for (int j = 0; j < DIMS; ++j)
                acc[j] = acc[j] * shrink + p * to_float(v_cache[at + 32 * j]);
            largest = new_largest;
        }
    }
    if (lane == 0) warp_largest[warp] = largest, warp_sums[warp] = sum;
#pragma unroll
    for (int j = 0; j < DIMS; ++j) warp_acc[warp][lane + 32 * j] = acc[j];
    __syncthreads();

    // Merge: every warp's result counts relative to the largest score of all.
    if (threadIdx.x >= D) return;
    float total = 0.0f, value = 0.0f;
    largest = NEG_INF;
    for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, warp_largest[w]);
    for (int w = 0; w < WARPS; ++w) {
        const float share = warp_sums[w] > 0.0f ? __expf(warp_largest[w] - largest) : 0.0f;
        total += share * warp_sums[w];
        value += share * warp_acc[w][threadIdx.x];
    }
    out[row + threadIdx.x] = from_float<T>(total > 0.0f ? value / total : 0.0f);
}

// A running softmax over some of the tokens: what a lane, a warp or a partition hands on.
template <int DIMS>
struct Running {
    float largest = NEG_INF, sum = 0.0f, acc[DIMS] = {};

    __device__ __forceinline__ void add(float score, const float* value) {
        const float new_largest = fmaxf(largest, score);
        const float shrink = __expf(largest - new_largest), p = __expf(score - new_largest);
        sum = sum * shrink + p;
#pragma unroll
        for (int j = 0; j < DIMS; ++j) acc[j] = acc[j] * shrink + p * value[j];
        largest = new_largest;
    }

    // Takes in the partial result of the lane whose number differs in bit `offset`.
    __device__ __forceinline__ void merge_lane(int offset) {
        const float other_largest = __shfl_xor_sync(FULL_MASK, largest, offset);
        const float other_sum = __shfl_xor_sync(FULL_MASK, sum, offset);
        const float new_largest = fmaxf(largest, other_largest);
        const float a = sum > 0.0f ? __expf(largest - new_largest) : 0.0f;
        const float b = other_sum > 0.0f ? __expf(other_largest - new_largest) : 0.0f;
#pragma unroll
        for (int j = 0; j < DIMS; ++j)
            acc[j] = a * acc[j] + b * __shfl_xor_sync(FULL_MASK, acc[j], offset);
        sum = a * sum + b * other_sum;
        largest = new_largest;
    }
};

// A warp is cut into teams just wide enough to load one row of D elements with 16 bytes a lane:
// 32, 16, 8 or 4 lanes. Each team takes its own token, so that a score needs fewer exchanges.
template <typename T, int D>
__device__ __forceinline__ Running<Pack<T>::SIZE> attend(const T* query, const T* k_cache,
                                                         const T* v_cache, const PagedCache& cache,
                                                         int begin, int end, float scale) {
    constexpr int SIZE = Pack<T>::SIZE, TEAM = D / SIZE, TEAMS = 32 / TEAM;
    const int lane = threadIdx.x % 32, team = lane / TEAM, first_dim = lane % TEAM * SIZE;
    const Pack<T> q = load_pack(query + first_dim);
    Running<SIZE> running;
    for (int start = begin; start < end; start += TEAMS) {
        const int token = start + team;
        const int64 at = token < end ? cache.offset(token) + first_dim : 0;
        float score = 0.0f;
        if (token < end) {
            const Pack<T> k = load_pack(k_cache + at);
#pragma unroll
            for (int j = 0; j < SIZE; ++j) score += to_float(q.at[j]) * to_float(k.at[j]);
        }
        for (int offset = TEAM / 2; offset > 0; offset /= 2)
            score += __shfl_xor_sync(FULL_MASK, score, offset);
        if (token < end) {
            const Pack<T> v = load_pack(v_cache + at);
            float value[SIZE];
#pragma unroll
            for (int j = 0; j < SIZE; ++j) value[j] = to_float(v.at[j]);
            running.add(score * scale, value);
        }
    }
    for (int offset = TEAM; offset < 32; offset *= 2) running.merge_lane(offset);
    return running;
}

// Block = the query heads of one KV head, a warp each: the first warp's loads serve them all from
// the L1 cache. Grid = (KV heads, sequences, partitions of the context).
template <typename T, int D>
__device__ void paged_attention_split(T* out, float* part_stats, float* part_acc, const T* q,
                                      const T* k_cache, const T* v_cache, const int* block_table,
                                      const int* seq_lens, int heads, int block_size,
                                      int max_blocks, int partition_size, float scale) {
    constexpr int SIZE = Pack<T>::SIZE, TEAM = D / SIZE;
    const int kv_heads = gridDim.x, kv_head = blockIdx.x, seq = blockIdx.y;
    const int part = blockIdx.z, parts = gridDim.z, group = heads / kv_heads;
    const int length = seq_lens[seq], begin = part * partition_size;
    if (begin >= length && part > 0) return;  // the reduce kernel does not look here
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const PagedCache cache = {block_table + (int64)seq * max_blocks, block_size, kv_heads, kv_head,
                              D};
    for (int g = warp; g < group; g += warps) {
        const int64 row = (int64)seq * heads + kv_head * group + g;
        const Running<SIZE> result = attend<T, D>(q + row * D, k_cache, v_cache, cache, begin,
                                                  min(begin + partition_size, length), scale);
        const int64 at = row * parts + part;
        if (parts > 1 && lane == 0) {
            part_stats[2 * at] = result.largest;
            part_stats[2 * at + 1] = result.sum;
        }
        if (lane >= TEAM) continue;  // after the merge all teams hold the same
        if (parts > 1) {
            store_floats(part_acc + at * D + lane * SIZE, result.acc);
            continue;
        }
        Pack<T> pack;
        const float inverse = result.sum > 0.0f ? 1.0f / result.sum : 0.0f;
#pragma unroll
        for (int j = 0; j < SIZE; ++j) pack.at[j] = from_float<T>(result.acc[j] * inverse);
        store_pack(out + row * D + lane * SIZE, pack);
    }
}

// Grid = (query heads, sequences), block = D threads: merges the partitions of one head.
template <typename T, int D>
__device__ void paged_attention_reduce(T* out, const float* part_stats, const float* part_acc,
                                       const int* seq_lens, int parts, int partition_size) {
    const int64 row = (int64)blockIdx.y * gridDim.x + blockIdx.x, first = row * parts;
    const int used = (seq_lens[blockIdx.y] + partition_size - 1) / partition_size;
    float largest = NEG_INF, sum = 0.0f, value = 0.0f;
    for (int p = 0; p < used; ++p) largest = fmaxf(largest, part_stats[2 * (first + p)]);
    for (int p = 0; p < used; ++p) {
        const float share = __expf(part_stats[2 * (first + p)] - largest);
        sum += share * part_stats[2 * (first + p) + 1];
        value += share * part_acc[(first + p) * D + threadIdx.x];
    }
    out[row * D + threadIdx.x] = from_float<T>(sum > 0.0f ? value / sum : 0.0f);
}

#define PAGED_ATTENTION_KERNELS(DTYPE, T, D)                                                       \
    KERNEL(THREADS, 8)                                                                             \
    paged_attention_naive_##DTYPE##_d##D(                                                          \
        T* out, const T* __restrict__ q, const T* __restrict__ k_cache,                            \
        const T* __restrict__ v_cache, const int* __restrict__ block_table,                        \
        const int* __restrict__ seq_lens, int kv_heads, int block_size, int max_blocks,            \
        float scale) {                                                                             \
        paged_attention_naive<T, D>(out, q, k_cache, v_cache, block_table, seq_lens, kv_heads,     \
                                    block_size, max_blocks, scale);                                \
    }                                                                                              \
    KERNEL(THREADS, 8)                                                                             \
    paged_attention_warp_##DTYPE##_d##D(                                                           \
        T* out, const T* __restrict__ q, const T* __restrict__ k_cache,                            \
        const T* __restrict__ v_cache, const int* __restrict__ block_table,                        \
        const int* __restrict__ seq_lens, int kv_heads, int block_size, int max_blocks,            \
        float scale) {                                                                             \
        paged_attention_warp<T, D>(out, q, k_cache, v_cache, block_table, seq_lens, kv_heads,      \
                                   block_size, max_blocks, scale);                                 \
    }                                                                                              \
    KERNEL(256, 4)                                                                                 \
    paged_attention_split_##DTYPE##_d##D(                                                          \
        T* out, float* part_stats, float* part_acc, const T* __restrict__ q,                       \
        const T* __restrict__ k_cache, const T* __restrict__ v_cache,                              \
        const int* __restrict__ block_table, const int* __restrict__ seq_lens, int heads,          \
        int block_size, int max_blocks, int partition_size, float scale) {                         \
        paged_attention_split<T, D>(out, part_stats, part_acc, q, k_cache, v_cache, block_table,   \
                                    seq_lens, heads, block_size, max_blocks, partition_size,       \
                                    scale);                                                        \
    }                                                                                              \
    KERNEL(D, 512 / D)                                                                             \
    paged_attention_reduce_##DTYPE##_d##D(                                                         \
        T* out, const float* __restrict__ part_stats, const float* __restrict__ part_acc,          \
        const int* __restrict__ seq_lens, int parts, int partition_size) {                         \
        paged_attention_reduce<T, D>(out, part_stats, part_acc, seq_lens, parts, partition_size);  \
    }
#define PAGED_ATTENTION_DIMS(DTYPE, T)                                                             \
    PAGED_ATTENTION_KERNELS(DTYPE, T, 32)                                                          \
    PAGED_ATTENTION_KERNELS(DTYPE, T, 64)                                                          \
    PAGED_ATTENTION_KERNELS(DTYPE, T, 128)
FOR_EACH_DTYPE(PAGED_ATTENTION_DIMS)
