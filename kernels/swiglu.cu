// swiglu.cu: out = silu(gate) * up, element by element                                (chapter 07)
//
// kernel             registers  launch                what changes
//   silu_naive         <= 32    ceil(N/256) x 256     first silu(gate) ...
//   mul_naive          <= 24    ceil(N/256) x 256     ... then the product: what is between the two
//                                                     kernels goes out to memory and comes back
//   silu_mul_fused     <= 32    ceil(N/256) x 256     one kernel, the intermediate in a register
//   silu_mul_vec       <= 64    ceil(N/1024) x 256    16 bytes a thread, grid-stride loop
//                                                     (bf16: N/2048 blocks)
//
// N elements. Bytes: naive 5 * N elements, fused 3 * N. Operations: about 5 for each element.
//
// Measured, f32, N = 16 x 8192       naive (both)   fused       vec
//   x-ray: bytes moved               2.62 MB        1.57 MB     1.57 MB
//   x-ray: requests to memory        20,480         12,288      3,072
//   CPU                              2.3 ms         1.4 ms      0.9 ms

#include "common.cuh"

// silu(x) = x * sigmoid(x) = x / (1 + e^-x). For large negative x the exponential is infinite and
// the quotient is -0, which is right.
__device__ __forceinline__ float silu(float x) {
    return x / (1.0f + __expf(-x));
}

template <typename T>
__device__ void silu_naive(T* out, const T* gate, int64 count) {
    const int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = from_float<T>(silu(to_float(gate[i])));
}

template <typename T>
__device__ void mul_naive(T* out, const T* a, const T* b, int64 count) {
    const int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = from_float<T>(to_float(a[i]) * to_float(b[i]));
}

template <typename T>
__device__ void silu_mul_fused(T* out, const T* gate, const T* up, int64 count) {
    const int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = from_float<T>(silu(to_float(gate[i])) * to_float(up[i]));
}

// Each thread takes one pack; the grid strides over the rest, so any grid covers any count.
template <typename T>
__device__ void silu_mul_vec(T* out, const T* gate, const T* up, int64 count) {
    constexpr int SIZE = Pack<T>::SIZE;
    const int64 packs =
        min(min(whole_packs(gate, count), whole_packs(up, count)), whole_packs(out, count));
    const int64 first = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const int64 stride = (int64)gridDim.x * blockDim.x;
    for (int64 p = first; p < packs; p += stride) {
        Pack<T> g = load_pack(gate + p * SIZE);
        const Pack<T> u = load_pack(up + p * SIZE);
        for (int j = 0; j < SIZE; ++j)
            g.at[j] = from_float<T>(silu(to_float(g.at[j])) * to_float(u.at[j]));
        store_pack(out + p * SIZE, g);
    }
    for (int64 i = packs * SIZE + first; i < count; i += stride)
        out[i] = from_float<T>(silu(to_float(gate[i])) * to_float(up[i]));
}

#define SWIGLU_KERNELS(DTYPE, T)                                                                   \
    KERNEL(1024, 1) silu_naive_##DTYPE(T* out, const T* __restrict__ gate, long long count) {      \
        silu_naive<T>(out, gate, count);                                                           \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    mul_naive_##DTYPE(T* out, const T* a, const T* __restrict__ b, long long count) {              \
        mul_naive<T>(out, a, b, count);                                                            \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    silu_mul_fused_##DTYPE(T* out, const T* __restrict__ gate, const T* __restrict__ up,           \
                           long long count) {                                                      \
        silu_mul_fused<T>(out, gate, up, count);                                                   \
    }                                                                                              \
    KERNEL(1024, 1)                                                                                \
    silu_mul_vec_##DTYPE(T* out, const T* __restrict__ gate, const T* __restrict__ up,             \
                         long long count) {                                                        \
        silu_mul_vec<T>(out, gate, up, count);                                                     \
    }
FOR_EACH_DTYPE(SWIGLU_KERNELS)
