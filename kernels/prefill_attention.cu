// prefill_attention.cu: causal attention of many queries over the paged cache     (chapters 07, 11)
//
// kernel                       registers  launch               what changes
//   prefill_attention_naive      <= 56    (T, Q) x 128         a block for each query and head; a
//                                                              thread scores a token, 128 at a time
//   prefill_attention_warp       <= 56    (T/4, Q) x 128       a warp for each; no barrier, no
//                                                              shared memory; two numbers of
//                                                              softmax state in registers
//   prefill_attention_flash      <= 170   (T/32 + S, Q) x 128  a block for 32 queries: keys and
//                                                              values come in tiles of 32 through
//                                                              shared memory, each read serves 32
//                                                              queries (FlashAttention, Dao 2022)
//
// S sequences, together T query rows, Q query heads that share K KV heads, head size D = 32, 64 or
// 128. One launch takes whole prompts, later chunks of prompts and single decode tokens. No version
// ever holds a row of scores: memory does not grow with the context.
// L tokens of context for n queries: 4 * n * L * Q * D operations (half of it for a whole prompt).
// Elements read: naive and warp 2 * n * L * Q * D, flash 2 * ceil(n / 32) * L * Q * D.
// Shared memory of flash: 12.8, 21 and 37.4 KB for D = 32, 64 and 128.
//
// Measured, f32, one prompt of 64, Q = K = 1, D = 64    naive       warp        flash
//   x-ray: bytes moved                                  4.98 MB     1.17 MB     0.086 MB
//   x-ray: requests to memory                           15,328      10,784      480
//   x-ray: warp operations                              5,120       10,400      800
//   CPU, prompt of 64 and chunk 32 of 128, Q = 32       282 ms      566 ms      45 ms
// Flash reads and writes its shared memory without bank conflicts: rows of the tile are padded by
// 16 bytes, and 16-byte accesses go 8 lanes at a time.

#include "common.cuh"

constexpr int THREADS = 128, WARPS = THREADS / 32;

// The batch is ragged: of the queries [tokens, heads, D], sequence s owns rows start[s] to
// start[s + 1] - 1. They are its newest tokens: row i of n is at position seq_len - n + i.
// (The tokens before them were computed in earlier steps: chunked prefill, or a prefix hit.)
struct Batch {
    const int* block_table;
    const int* seq_lens;
    const int* query_start_loc;
    int sequences, max_blocks;
};

// The last sequence s with first(s) <= index, for a function that does not fall.
template <typename First>
__device__ __forceinline__ int last_at_or_below(int count, int index, First first) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        const bool right = first(middle) <= index;
        low = right ? middle : low;
        high = right ? high : middle - 1;
    }
    return low;
}

// One query row: its sequence's blocks, and how many tokens it may look at (itself included).
struct Query {
    const int* block_table;
    int visible;
};
__device__ __forceinline__ Query find_query(const Batch& batch, int token) {
    const int* start = batch.query_start_loc;
    const int seq = last_at_or_below(batch.sequences, token, [=](int s) { return start[s]; });
    return {batch.block_table + (int64)seq * batch.max_blocks,
            batch.seq_lens[seq] - (start[seq + 1] - 1 - token)};
}

// Where a token's key or value of one KV head starts in the cache [blocks, block_size, heads, D].
__device__ __forceinline__ int64 cache_offset(const int* block_table, int token, int block_size,
                                              int kv_heads, int kv_head, int head_dim) {
    const int64 slot = (int64)block_table[token / block_size] * block_size + token % block_size;
    return (slot * kv_heads + kv_head) * head_dim;
}

template <typename T, int D>
__device__ void prefill_attention_naive(T* out, const T* q, const T* k_cache, const T* v_cache,
                                        const Batch& batch, int kv_heads, int block_size,
                                        float scale) {
    __shared__ float query[D];
    __shared__ float weights[THREADS];
    const int token = blockIdx.x, heads = gridDim.y, head = blockIdx.y, t = threadIdx.x;
    const int kv_head = head / (heads / kv_heads);
    const int64 row = ((int64)token * heads + head) * D;
    const Query info = find_query(batch, token);
    if (t < D) query[t] = to_float(q[row + t]) * scale;
    __syncthreads();

    float largest = NEG_INF, sum = 0.0f, acc = 0.0f;
    for (int start = 0; start < info.visible; start += THREADS) {
        float score = NEG_INF;
        if (start + t < info.visible) {
            const T* key = k_cache + cache_offset(info.block_table, start + t, block_size, kv_heads,
                                                  kv_head, D);
            score = 0.0f;
#pragma unroll 8
            for (int d = 0; d < D; ++d) score += query[d] * to_float(key[d]);
        }
        const float new_largest = fmaxf(largest, block_max(score, NEG_INF));
        const float shrink = __expf(largest - new_largest);
        weights[t] = __expf(score - new_largest);
        sum = sum * shrink + block_sum(weights[t]);
        largest = new_largest;
        acc *= shrink;
        const int tokens = min(THREADS, info.visible - start);
        for (int j = 0; j < tokens && t < D; ++j) {
            const int64 at =
                cache_offset(info.block_table, start + j, block_size, kv_heads, kv_head, D);
            acc += weights[j] * to_float(v_cache[at + t]);
        }
    }
    if (t < D) out[row + t] = from_float<T>(sum > 0.0f ? acc / sum : 0.0f);
}

template <typename T, int D>
__device__ void prefill_attention_warp(T* out, const T* q, const T* k_cache, const T* v_cache,
                                       const Batch& batch, int tokens, int kv_heads, int block_size,
                                       float scale) {
    constexpr int DIMS = D / 32;
    const int lane = threadIdx.x % 32, token = blockIdx.x * WARPS + threadIdx.x / 32;
    if (token >= tokens) return;  // a warp leaves as a whole, and no barrier follows
    const int heads = gridDim.y, head = blockIdx.y, kv_head = head / (heads / kv_heads);
    const int64 row = ((int64)token * heads + head) * D;
    const Query info = find_query(batch, token);

    float query[DIMS], acc[DIMS], largest = NEG_INF, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < DIMS; ++j) {
        query[j] = to_float(q[row + lane + 32 * j]) * scale;
        acc[j] = 0.0f;
    }
    for (int key = 0; key < info.visible; ++key) {
        const int64 at =
            cache_offset(info.block_table, key, block_size, kv_heads, kv_head, D) + lane;
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
#pragma unroll
    for (int j = 0; j < DIMS; ++j)
        out[row + lane + 32 * j] = from_float<T>(sum > 0.0f ? acc[j] / sum : 0.0f);
}

// ---- flash -------------------------------------------------------------------------------------
constexpr int ROWS = 8;                // query rows of a warp
constexpr int QUERIES = WARPS * ROWS;  // of a block: 32
constexpr int KEYS = 32;               // keys per step: one for each lane
constexpr int PAD = 4;                 // floats, so that 16-byte reads of 8 lanes meet all 32 banks

// Copies keys or values first .. first + 31 of one KV head from their blocks into shared memory, as
// floats. Rows at or past `end` become zero: a weight of 0 times a stale NaN would be NaN.
template <typename T, int D>
__device__ __forceinline__ void load_tile(float (*tile)[D + PAD], const T* cache,
                                          const int* block_table, int first, int end,
                                          int block_size, int kv_heads, int kv_head) {
    constexpr int SIZE = Pack<T>::SIZE, PACKS = D / SIZE;
#pragma unroll 1
    for (int e = threadIdx.x; e < KEYS * PACKS; e += THREADS) {
        const int key = e / PACKS, dim = e % PACKS * SIZE;
        Pack<T> pack = {};
        if (first + key < end) {
            const int64 at =
                cache_offset(block_table, first + key, block_size, kv_heads, kv_head, D);
            pack = load_pack(cache + at + dim);
        }
        float values[SIZE];
#pragma unroll
        for (int j = 0; j < SIZE; ++j) values[j] = to_float(pack.at[j]);
        store_floats(&tile[key][dim], values);
    }
}

// scores[r] = query row r of this warp . the key of this lane. One read of four of the key's
// numbers serves all eight rows.
template <int D>
__device__ __forceinline__ void score_tile(float (&scores)[ROWS], const float (*queries)[D],
                                           const float (*tile)[D + PAD], int lane) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) scores[r] = 0.0f;
#pragma unroll 2
    for (int d = 0; d < D; d += 4) {
        const Pack<float> key = load_pack(&tile[lane][d]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Pack<float> query = load_pack(&queries[r][d]);
#pragma unroll
            for (int j = 0; j < 4; ++j) scores[r] += query.at[j] * key.at[j];
        }
    }
}

// acc[r] += weights of row r * values, for this lane's dimensions. Four keys at a time: one read of
// four weights serves all of the lane's dimensions.
template <int D>
__device__ __forceinline__ void add_values(float (&acc)[ROWS][D / 32], const float (*weights)[KEYS],
                                           const float (*tile)[D + PAD], int lane) {
    for (int key = 0; key < KEYS; key += 4) {
        float value[4][D / 32];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < D / 32; ++j) value[i][j] = tile[key + i][lane + 32 * j];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Pack<float> weight = load_pack(&weights[r][key]);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < D / 32; ++j) acc[r][j] += weight.at[i] * value[i][j];
        }
    }
}

template <typename T, int D>
__device__ void prefill_attention_flash(T* out, const T* q, const T* k_cache, const T* v_cache,
                                        const Batch& batch, int kv_heads, int block_size,
                                        float scale) {
    constexpr int DIMS = D / 32;
    __shared__ __align__(16) float queries[QUERIES][D];
    __shared__ __align__(16) float tile[KEYS][D + PAD];  // first of keys, then of values
    __shared__ __align__(16) float weights[QUERIES][KEYS];
    const int heads = gridDim.y, head = blockIdx.y, kv_head = head / (heads / kv_heads);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    // Which 32 query rows of which sequence? Sequence s has the blocks start[s] / 32 + s and on:
    // enough for its rows, without anybody counting on the host. Blocks too many leave here.
    const int* start = batch.query_start_loc;
    const auto first_block = [=](int s) { return start[s] / QUERIES + s; };
    const int seq = last_at_or_below(batch.sequences, blockIdx.x, first_block);
    const int first_row = start[seq] + (blockIdx.x - first_block(seq)) * QUERIES;
    const int rows = min(QUERIES, start[seq + 1] - first_row);
    if (rows <= 0) return;
    const int* block_table = batch.block_table + (int64)seq * batch.max_blocks;
    const int first_position = batch.seq_lens[seq] - (start[seq + 1] - first_row);
    const int end = first_position + rows;  // the last row sees this many tokens

    for (int e = threadIdx.x; e < QUERIES * D; e += THREADS) {
        const int r = e / D, d = e % D;
        const int64 at = ((int64)(first_row + r) * heads + head) * D + d;
        queries[r][d] = r < rows ? to_float(q[at]) * scale : 0.0f;
    }

    float acc[ROWS][DIMS] = {}, largest[ROWS], sum[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) largest[r] = NEG_INF;
    for (int first = 0; first < end; first += KEYS) {
        __syncthreads();  // the queries are in place; nobody reads the last values any more
        load_tile<T, D>(tile, k_cache, block_table, first, end, block_size, kv_heads, kv_head);
        __syncthreads();
        float scores[ROWS];
        score_tile<D>(scores, queries + warp * ROWS, tile, lane);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int visible = first_position + warp * ROWS + r + 1;  // causal
            const float score = first + lane < visible ? scores[r] : NEG_INF;
            const float new_largest = fmaxf(largest[r], warp_max(score));
            const float shrink = __expf(largest[r] - new_largest), p = __expf(score - new_largest);
            sum[r] = sum[r] * shrink + p;  // of this lane's keys; the lanes meet at the end
            largest[r] = new_largest;
            weights[warp * ROWS + r][lane] = p;
#pragma unroll
            for (int j = 0; j < DIMS; ++j) acc[r][j] *= shrink;
        }
        __syncthreads();  // all have used the keys: the values may take their place
        load_tile<T, D>(tile, v_cache, block_table, first, end, block_size, kv_heads, kv_head);
        __syncthreads();
        add_values<D>(acc, weights + warp * ROWS, tile, lane);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float total = warp_sum(sum[r]);
        if (warp * ROWS + r >= rows) continue;
        const int64 at = ((int64)(first_row + warp * ROWS + r) * heads + head) * D + lane;
#pragma unroll
        for (int j = 0; j < DIMS; ++j)
            out[at + 32 * j] = from_float<T>(total > 0.0f ? acc[r][j] / total : 0.0f);
    }
}

#define PREFILL_ATTENTION_KERNELS(DTYPE, T, D)                                                     \
    KERNEL(THREADS, 8)                                                                             \
    prefill_attention_naive_##DTYPE##_d##D(                                                        \
        T* out, const T* __restrict__ q, const T* __restrict__ k_cache,                            \
        const T* __restrict__ v_cache, const int* __restrict__ block_table,                        \
        const int* __restrict__ seq_lens, const int* __restrict__ query_start_loc, int sequences,  \
        int kv_heads, int block_size, int max_blocks, float scale) {                               \
        prefill_attention_naive<T, D>(                                                             \
            out, q, k_cache, v_cache,                                                              \
            Batch{block_table, seq_lens, query_start_loc, sequences, max_blocks}, kv_heads,        \
            block_size, scale);                                                                    \
    }                                                                                              \
    KERNEL(THREADS, 8)                                                                             \
    prefill_attention_warp_##DTYPE##_d##D(                                                         \
        T* out, const T* __restrict__ q, const T* __restrict__ k_cache,                            \
        const T* __restrict__ v_cache, const int* __restrict__ block_table,                        \
        const int* __restrict__ seq_lens, const int* __restrict__ query_start_loc, int tokens,     \
        int sequences, int kv_heads, int block_size, int max_blocks, float scale) {                \
        prefill_attention_warp<T, D>(                                                              \
            out, q, k_cache, v_cache,                                                              \
            Batch{block_table, seq_lens, query_start_loc, sequences, max_blocks}, tokens,          \
            kv_heads, block_size, scale);                                                          \
    }                                                                                              \
    KERNEL(THREADS, 3)                                                                             \
    prefill_attention_flash_##DTYPE##_d##D(                                                        \
        T* out, const T* __restrict__ q, const T* __restrict__ k_cache,                            \
        const T* __restrict__ v_cache, const int* __restrict__ block_table,                        \
        const int* __restrict__ seq_lens, const int* __restrict__ query_start_loc, int sequences,  \
        int kv_heads, int block_size, int max_blocks, float scale) {                               \
        prefill_attention_flash<T, D>(                                                             \
            out, q, k_cache, v_cache,                                                              \
            Batch{block_table, seq_lens, query_start_loc, sequences, max_blocks}, kv_heads,        \
            block_size, scale);                                                                    \
    }
#define PREFILL_ATTENTION_DIMS(DTYPE, T)                                                           \
    PREFILL_ATTENTION_KERNELS(DTYPE, T, 32)                                                        \
    PREFILL_ATTENTION_KERNELS(DTYPE, T, 64)                                                        \
    PREFILL_ATTENTION_KERNELS(DTYPE, T, 128)
FOR_EACH_DTYPE(PREFILL_ATTENTION_DIMS)
