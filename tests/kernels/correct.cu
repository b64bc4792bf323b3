// Correct kernels that a careless checker would accuse.
#include <cuda_bf16.h>

#define FULL 0xffffffffu

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(FULL, v, offset);
    return v;
}

// Called twice in a row: the first barrier keeps the second call off the first one's slots.
__device__ float block_sum(float v) {
    __shared__ float partial[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) / 32;
    v = warp_sum(v);
    __syncthreads();
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : 0.0f);
}

extern "C" __global__ void two_block_sums(float* out, const float* x, int n) {
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    const float mean = block_sum(sum) / n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float d = x[blockIdx.x * n + i] - mean;
        squares += d * d;
    }
    const float variance = block_sum(squares) / n;
    if (threadIdx.x == 0) out[blockIdx.x] = variance;
}

extern "C" __global__ void tree_sum(float* out, const float* x) {
    extern __shared__ float s[];
    const int t = threadIdx.x;
    s[t] = x[t];
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) out[0] = s[0];
}

// The last warp needs no block barrier, only its own.
extern "C" __global__ void tree_sum_with_syncwarp(float* out, const float* x) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        float v = s[t] + s[t + 32];
        for (int half = 16; half > 0; half /= 2) {
            s[t] = v;
            __syncwarp();
            v += s[(t + half) & 31];
            __syncwarp();
        }
        if (t == 0) out[0] = v;
    }
}

// Two buffers: one barrier for each step is enough.
extern "C" __global__ void double_buffered_scan(float* out, const float* x) {
    __shared__ float s[2][64];
    const int t = threadIdx.x;
    int now = 0;
    s[now][t] = x[t];
    for (int offset = 1; offset < 64; offset *= 2) {
        __syncthreads();
        s[1 - now][t] = s[now][t] + (t >= offset ? s[now][t - offset] : 0.0f);
        now = 1 - now;
    }
    out[t] = s[now][t];
}

extern "C" __global__ void tiled_transpose(float* out, const float* x, int rows, int columns) {
    __shared__ float tile[16][17];
    const int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
    __syncthreads();
    const int to_c = blockIdx.y * 16 + threadIdx.x, to_r = blockIdx.x * 16 + threadIdx.y;
    if (to_r < columns && to_c < rows) out[to_r * rows + to_c] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void shared_histogram(int* bins, const int* x, int n) {
    __shared__ int mine[8];
    if (threadIdx.x < 8) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

// Each half of a warp shuffles on its own, one of them twice as often.
extern "C" __global__ void half_warps(int* out) {
    const unsigned half = threadIdx.x & 16 ? 0xffff0000u : 0x0000ffffu;
    int v = threadIdx.x;
    for (int i = 0; i < (threadIdx.x & 16 ? 2 : 1); ++i) v += __shfl_xor_sync(half, v, 1);
    out[threadIdx.x] = v;
}

extern "C" __global__ void segments_of_eight(int* out) {
    int v = threadIdx.x;
    for (int offset = 4; offset > 0; offset /= 2) v += __shfl_down_sync(FULL, v, offset, 8);
    out[threadIdx.x] = __shfl_sync(FULL, v, 0, 8);
}

// Keeps the positive numbers, in order; the counter is shared by all warps of all blocks.
extern "C" __global__ void compact(float* out, int* count, const float* x) {
    const int lane = threadIdx.x & 31;
    const float v = x[threadIdx.x];
    const unsigned keep = __ballot_sync(FULL, v > 0);
    int base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(keep));
    base = __shfl_sync(FULL, base, 0);
    if (v > 0) out[base + __popc(keep & ((1u << lane) - 1))] = v;
}

extern "C" __global__ void last_block_adds_up(float* out, float* partial, unsigned* tickets, const float* x, int n) {
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    float total = 0;
    for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) total += partial[b];
    total = block_sum(total);
    if (threadIdx.x == 0) out[0] = total;
}

extern "C" __global__ void until_all_agree(int* steps, const int* wanted) {
    int n = 0;
    while (__syncthreads_or(n < wanted[threadIdx.x])) ++n;
    steps[threadIdx.x] = n;
}

extern "C" __global__ void bf16_neighbours(__nv_bfloat16* x) {
    x[threadIdx.x] = x[threadIdx.x] * __float2bfloat16(2.0f);
}

extern "C" __global__ void vector_copy(float4* out, const float4* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}

extern "C" __global__ void bytes_then_words(unsigned* out, const unsigned char* x) {
    __shared__ unsigned char s[128];
    for (int i = 0; i < 4; ++i) s[threadIdx.x * 4 + i] = x[threadIdx.x * 4 + i];
    __syncthreads();
    out[threadIdx.x] = reinterpret_cast<unsigned*>(s)[31 - threadIdx.x];
}

struct Pair {
    float4 first;
    float second;
    short third;
};
extern "C" __global__ void structs(float* out, const float* x) {
    __shared__ Pair pairs[32];
    __shared__ __align__(16) float3 triples[32];
    const int t = threadIdx.x;
    Pair pair = {{x[t], 1, 2, 3}, 4, 5};
    pairs[t] = pair;
    triples[t] = make_float3(x[t], x[t], 1);
    __syncthreads();
    const Pair other = pairs[31 - t];
    const float3 triple = triples[31 - t];
    out[t] = other.first.x + other.second + other.third + triple.y + triple.z;
}

extern "C" __global__ void copied_by_the_library(float* out, const float* x) {
    __shared__ float s[64];
    if (threadIdx.x == 0) {
        memset(s, 0, sizeof s);
        memcpy(s, x, 32 * sizeof(float));
    }
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int launches;
extern "C" __global__ void module_variables(float* out) {
    if (threadIdx.x == 0) launches += 1;
    __syncthreads();
    out[threadIdx.x] = weights[threadIdx.x & 3] * launches;
}

extern "C" __global__ void three_dimensions(int* out) {
    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 100 + t;
}
