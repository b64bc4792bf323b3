// What CUDA promises, one small kernel for each promise.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FULL 0xffffffffu

extern "C" __global__ void shuffles(int* out, const int* value, const int* arg, int width, int mode) {
    const int v = value[threadIdx.x], a = arg[threadIdx.x];
    int got = 0;
    if (mode == 0) got = __shfl_sync(FULL, v, a, width);
    if (mode == 1) got = __shfl_xor_sync(FULL, v, a, width);
    if (mode == 2) got = __shfl_down_sync(FULL, v, a, width);
    if (mode == 3) got = __shfl_up_sync(FULL, v, a, width);
    out[threadIdx.x] = got;
}

extern "C" __global__ void votes(unsigned* out, const int* p) {
    const int t = threadIdx.x, n = blockDim.x;
    out[t] = __ballot_sync(FULL, p[t]);
    out[n + t] = __any_sync(FULL, p[t]);
    out[2 * n + t] = __all_sync(FULL, p[t]);
    out[3 * n + t] = __syncthreads_count(p[t]);
    out[4 * n + t] = __syncthreads_and(p[t]);
    out[5 * n + t] = __syncthreads_or(p[t]);
}

extern "C" __global__ void warp_reductions(int* out, const int* x) {
    const int t = threadIdx.x, n = blockDim.x;
    out[t] = __reduce_add_sync(FULL, x[t]);
    out[n + t] = __reduce_min_sync(FULL, x[t]);
    out[2 * n + t] = __reduce_max_sync(FULL, x[t]);
    out[3 * n + t] = __reduce_xor_sync(FULL, x[t]);
}

extern "C" __global__ void atomics(int* out, const int* x) {
    const int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&out[0], v);
    atomicSub(&out[1], v);
    atomicMin(&out[2], v);
    atomicMax(&out[3], v);
    atomicAnd((unsigned*)&out[4], (unsigned)v);
    atomicOr(&out[5], v);
    atomicXor(&out[6], v);
    atomicInc((unsigned*)&out[7], 6);
    int seen = out[8], expected;
    do {
        expected = seen;
        seen = atomicCAS(&out[8], expected, expected + v);
    } while (seen != expected);
}

extern "C" __global__ void float_atomics(float* total, double* total64, const float* x) {
    atomicAdd(total, x[threadIdx.x]);
    atomicAdd(total64, x[threadIdx.x]);
}

extern "C" __global__ void to_bf16(__nv_bfloat16* out, const float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __float2bfloat16(x[i]);
}

extern "C" __global__ void from_bf16(float* out, const __nv_bfloat16* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __bfloat162float(x[i]);
}

extern "C" __global__ void bf16_arithmetic(__nv_bfloat16* out, const __nv_bfloat16* a, const __nv_bfloat16* b) {
    const int t = threadIdx.x, n = blockDim.x;
    out[t] = a[t] + b[t];
    out[n + t] = a[t] - b[t];
    out[2 * n + t] = a[t] * b[t];
    out[3 * n + t] = a[t] / b[t];
    const __nv_bfloat162 pair = __floats2bfloat162_rn(__bfloat162float(a[t]), __bfloat162float(b[t]));
    const float2 both = __bfloat1622float2(pair);
    out[4 * n + t] = __float2bfloat16(both.x + both.y);
}

extern "C" __global__ void half_round_trip(__half* out, const float* x) {
    out[threadIdx.x] = __float2half(__half2float(__float2half(x[threadIdx.x])));
}

extern "C" __global__ void functions(float* out, const float* x) {
    const int t = threadIdx.x, n = blockDim.x;
    out[t] = rsqrtf(x[t]);
    out[n + t] = __expf(-x[t]);
    out[2 * n + t] = __logf(x[t]);
    out[3 * n + t] = fmaxf(x[t], 1) + min(t, 3u) + max(2, 1.5f);
    out[4 * n + t] = __int_as_float(__float_as_int(x[t])) + __saturatef(x[t]);
    out[5 * n + t] = __popc(t) + __clz(t) + __ffs(t) + (__brev(t) >> 27);
}

extern "C" __global__ void all_numbers(double* out, bool b, signed char c, unsigned char uc, short s, unsigned short us,
                                       int i, unsigned u, long long ll, unsigned long long ull, float f, double d) {
    const double values[] = {(double)b, (double)c,  (double)uc,  (double)s, (double)us, (double)i,
                             (double)u, (double)ll, (double)ull, (double)f, d};
    for (int k = 0; k < 11; ++k) out[k] = values[k];
}

template <typename T>
__device__ void scale(T* x, float by) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = (float)x[threadIdx.x] * by;
    __syncthreads();
    x[threadIdx.x] = (T)kept[blockDim.x - 1 - threadIdx.x];
}
#define SCALE(NAME, T) \
    extern "C" __global__ void __launch_bounds__(256) NAME(T* __restrict__ x, const float by) { scale<T>(x, by); }
SCALE(scale_f32, float)
SCALE(scale_bf16, __nv_bfloat16)

extern "C" __global__ void fails_in_block(int* out, int block) {
    assert(blockIdx.x != block);
    out[blockIdx.x] = 1;
}

extern "C" __global__ void waits_forever() {
    if (threadIdx.x < 16) __shfl_sync(FULL, 1, 0);
    else __syncthreads();
}

// Threads of one block that wait for another warp: they must let it run.
extern "C" __global__ void polite_wait(int* out, int* flag) {
    if (threadIdx.x == blockDim.x - 1) atomicExch(flag, 1);
    while (atomicAdd(flag, 0) == 0) __nanosleep(100);
    out[threadIdx.x] = 1;
}
