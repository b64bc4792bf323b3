// Classic mistakes, one in each kernel. A comment names what the checker must report, and the line it
// stands on is the line it must report: `// BUG kind` or `// BUG kind array`.
#include <cuda_bf16.h>

#define FULL 0xffffffffu

// ---- barriers -----------------------------------------------------------------------------------
extern "C" __global__ void missing_barrier(float* out, const float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[63 - threadIdx.x];  // BUG uninitialised s
}

extern "C" __global__ void tree_without_barrier(float* out, const float* x) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];  // BUG race s
    }
    if (t == 0) out[0] = s[0];
}

__device__ float sum_in_slot(float v, float* slot) {
    if (threadIdx.x == 0) *slot = 0.0f;  // BUG race slot
    __syncthreads();
    atomicAdd(slot, v);
    __syncthreads();
    return *slot;  // a fast thread may come round and write 0 before a slow one reads
}
extern "C" __global__ void reduction_slot_reused(float* out, const float* x) {
    __shared__ float slot;
    const float sum = sum_in_slot(x[threadIdx.x], &slot);
    const float centred = x[threadIdx.x] - sum / blockDim.x;
    out[threadIdx.x] = centred / sum_in_slot(centred * centred, &slot);
}

extern "C" __global__ void warp_synchronous(float* out, const float* x) {
    __shared__ volatile float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        s[t] += s[t + 16];  // BUG race s
        s[t] += s[t + 8];
    }
    if (t == 0) out[0] = s[0];
}

extern "C" __global__ void shuffle_is_no_fence(float* out, const float* x) {
    __shared__ float s[32];
    const int lane = threadIdx.x;
    s[lane] = x[lane];
    const float next = __shfl_down_sync(FULL, x[lane], 1);
    out[lane] = s[lane ^ 1] + next;  // BUG race s
}

extern "C" __global__ void divergent_barrier(float* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = 1;
        __syncthreads();
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();  // BUG divergent_barrier
    }
}

extern "C" __global__ void barrier_in_branch(float* out) {
    if (threadIdx.x < 16) __syncthreads();  // BUG early_exit
    out[threadIdx.x] = 1;
}

extern "C" __global__ void barrier_in_uneven_loop(float* out, const float* x, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum += x[i];
        __syncthreads();  // BUG early_exit
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void early_return(float* out, int n) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = 1;
    __syncthreads();  // BUG early_exit
}

// ---- bounds -------------------------------------------------------------------------------------
extern "C" __global__ void off_by_one(float* out, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        out[i] = x[i];  // BUG out_of_bounds x
}

extern "C" __global__ void ragged_grid(float* out, float value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = value;  // BUG out_of_bounds out
}

extern "C" __global__ void before_the_start(float* out, const float* x) {
    out[threadIdx.x] = x[(int)threadIdx.x - 1];  // BUG out_of_bounds x
}

extern "C" __global__ void wrong_row_stride(float* out, const float* x, int rows, int columns) {
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * rows + c] = x[blockIdx.x * rows + c];  // BUG out_of_bounds x
}

extern "C" __global__ void unset_table_entry(float* out, const float* cache, const int* table) {
    const int block = table[blockIdx.x];  // -1 says: not allocated
    out[blockIdx.x * 16 + threadIdx.x] = cache[block * 16 + threadIdx.x];  // BUG out_of_bounds cache
}

extern "C" __global__ void null_pointer(float* out, const float* bias) {
    out[threadIdx.x] = 1;
    out[threadIdx.x] += bias[threadIdx.x];  // BUG out_of_bounds
}

extern "C" __global__ void static_shared_too_small(float* out) {
    __shared__ float s[32];
    s[threadIdx.x + 1] = 1;  // BUG bad_index s
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x + 1];
}

extern "C" __global__ void tile_indices_swapped(float* out, const float* x) {
    __shared__ float tile[8][32];
    tile[threadIdx.x][threadIdx.y] = x[threadIdx.y * 32 + threadIdx.x];  // BUG bad_index tile
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.y][threadIdx.x];
}

__device__ void put(float* where, int i, float v) {
    where[i] = v;  // BUG out_of_bounds s
}
extern "C" __global__ void shared_through_pointer(float* out) {
    __shared__ float s[32];
    put(s, threadIdx.x + 1, 1);
    out[threadIdx.x] = 1;
}

extern "C" __global__ void dynamic_shared_too_small(float* out, const float* x) {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = x[threadIdx.x];  // BUG out_of_bounds dynamic
    __syncthreads();
    out[threadIdx.x] = dynamic[threadIdx.x ^ 1];
}

extern "C" __global__ void local_array_too_small(float* out, int n) {
    float kept[4];
    for (int i = 0; i < n; ++i)
        kept[i] = i * out[i];  // BUG bad_index kept
    out[threadIdx.x] = kept[n % 4];
}

extern "C" __global__ void above_the_stack(float* out, int far) {
    volatile float local = out[0];
    out[0] = (&local)[far];  // BUG out_of_bounds
}

extern "C" __global__ void misaligned_vector(float* out, const float* x) {
    const float4 v = *reinterpret_cast<const float4*>(x + 1);  // BUG misaligned x
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void write_through_const(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x];
    const_cast<float*>(x)[threadIdx.x] = 0;  // BUG read_only_write x
}

// ---- races and uninitialised memory -------------------------------------------------------------
extern "C" __global__ void histogram_without_atomics(int* bins, const int* x) {
    bins[x[blockIdx.x * blockDim.x + threadIdx.x]] += 1;  // BUG race bins
}

extern "C" __global__ void every_block_adds(float* total, const float* x) {
    if (threadIdx.x == 0) total[0] += x[blockIdx.x];  // BUG race total
}

extern "C" __global__ void histogram_not_zeroed(int* bins, const int* x) {
    __shared__ int mine[8];
    atomicAdd(&mine[x[threadIdx.x]], 1);  // BUG uninitialised mine
    __syncthreads();
    if (threadIdx.x < 8) bins[threadIdx.x] = mine[threadIdx.x];
}

extern "C" __global__ void padding_not_written(float* out, const float* x, int n) {
    __shared__ float s[32];
    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];  // BUG uninitialised s
}

extern "C" __global__ void atomic_read_plainly(int* out, int* counter) {
    atomicAdd(counter, 1);
    out[threadIdx.x] = *counter;  // BUG race counter
}

extern "C" __global__ void neighbour_in_place(float* x) {
    const float left = threadIdx.x ? x[threadIdx.x - 1] : 0.0f;  // BUG race x
    x[threadIdx.x] += left;
}

extern "C" __global__ void last_block_without_fence(float* out, float* partial, int* tickets) {
    __shared__ int ticket;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = blockIdx.x;
        ticket = atomicAdd(tickets, 1);
        if (ticket == gridDim.x - 1) {
            float sum = 0;
            for (int b = 0; b < gridDim.x; ++b)
                sum += partial[b];  // BUG race partial
            out[0] = sum;
        }
    }
}

// ---- warps --------------------------------------------------------------------------------------
extern "C" __global__ void half_warp_full_mask(float* out) {
    float v = threadIdx.x;
    if (threadIdx.x < 16)
        v += __shfl_xor_sync(FULL, v, 1);  // BUG deadlock
    else
        __syncthreads();
    out[threadIdx.x] = v;
}

extern "C" __global__ void own_bit_missing(float* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffffu, threadIdx.x, 0);  // BUG bad_warp_mask
}

extern "C" __global__ void source_takes_no_part(float* out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, (float)threadIdx.x, 1);  // BUG inactive_source
}

extern "C" __global__ void lane_returned(float* out, int n) {
    if (threadIdx.x >= n) return;
    float v = out[threadIdx.x];
    v += __shfl_xor_sync(FULL, v, 1);  // BUG early_exit
    out[threadIdx.x] = v;
}

extern "C" __global__ void different_warp_operations(int* out) {
    if (threadIdx.x % 2)
        out[threadIdx.x] = __any_sync(FULL, 1);  // BUG divergent_warp_op
    else
        out[threadIdx.x] = __shfl_sync(FULL, 1, 0);
}

// ---- what never ends, and what crashes ------------------------------------------------------------
extern "C" __global__ void spin_wait(float* out, volatile int* flag) {
    if (threadIdx.x == 0)
        while (*flag == 0) {}  // BUG time_limit
    else
        *flag = 1;
    out[threadIdx.x] = 1;
}

extern "C" __global__ void endless_loop(float* out, int step) {
    unsigned n = 1;
    while (n != 0) n = n * 5u + step * 2u;  // BUG time_limit
    out[0] = n;
}

// On one line, because any instruction of a frame can be the first to touch the guard page.
__device__ __noinline__ float deeper(volatile float* up) { volatile float here[256]; here[0] = up[0]; return deeper(here) + here[1]; }  // BUG stack_overflow
extern "C" __global__ void endless_recursion(float* out) { out[0] = deeper(out); }

extern "C" __global__ void crash(float* out) {
    out[0] = 1;
    asm volatile("ud2");  // BUG crash
}

extern "C" __global__ void heads_per_group_zero(float* out, int heads, int kv_heads) {
    out[threadIdx.x] = threadIdx.x / (heads / kv_heads);  // BUG division_by_zero
}

extern "C" __global__ void assert_in_range(float* out, const int* ids, int vocab) {
    assert(ids[threadIdx.x] < vocab);  // BUG trap
    out[threadIdx.x] = ids[threadIdx.x];
}
