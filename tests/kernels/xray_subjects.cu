// Kernels whose memory traffic a few lines of Python can predict.
extern "C" __global__ void gather(float* out, const float* x, const int* index) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[index[i]];
}

extern "C" __global__ void gather_shared(float* out, const float* x, const int* index) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    out[threadIdx.x] = s[index[threadIdx.x]];
}

extern "C" __global__ void gather_shared_vectors(float4* out, const float4* x, const int* index) {
    extern __shared__ float4 vectors[];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) vectors[i] = x[i];
    __syncthreads();
    out[threadIdx.x] = vectors[index[threadIdx.x]];
}

extern "C" __global__ void even_and_odd(int* out, int rounds) {
    int v = 0;
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x % 2 == 0)
            v += out[threadIdx.x];
        else
            v -= 1;
        v += __shfl_xor_sync(0xffffffffu, v, 1);
    }
    __syncthreads();
    out[threadIdx.x] = v;
}

extern "C" __global__ void does_nothing() {}
