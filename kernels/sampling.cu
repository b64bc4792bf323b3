// sampling.cu: draw a token from the likeliest ones: temperature, top-k, top-p         (chapter 04)
//
// kernel             registers  launch               what changes
//   sample_rounds      <= 64    R x min(V/8, 1024)   finds the border from the top down: a walk for
//                                                    the next logit, a walk for its weight, again
//   sample_bisect      <= 64    R x min(V/8, 1024)   finds the border's 32 bits: a walk for each
//   sample_radix       <= 64    R x min(V/8, 1024)   8 bits a walk, by a histogram in shared memory
//                                                    (2 KB each for top-k and top-p)
//
// Nobody sorts. Top-k keeps the logits at or above the k-th largest, top-p those at or above the
// one at which the probabilities, summed from the top, reach p. Each is a border between logits,
// and a float's bits can be searched for it. Logits equal to the border are kept together.
// Then the kept tokens stand end to end in the order of their ids, each as long as its probability,
// and the random number (uniform, in [0, 1), one for a row) says where to cut.
// temperature <= 0 takes the largest logit; top_k <= 0 and top_p >= 1 keep all.
//
// R rows of V logits. Bytes: R * V elements a walk, from the L2 cache after the first. Walks: 4 for
// largest, total and drawing, and for each of top-k and top-p 2 for every distinct kept logit
// (rounds), 32 (bisect), 4 (radix). Operations: an exponential for each logit and walk of top-p.
//
// Measured, f32, R = 1, V = 2048, k = 50, p = 0.9    rounds       bisect      radix
//   x-ray: requests for logits                       12,037       4,357       773
//   x-ray: barriers                                  375          135         39
//   CPU, R = 2                                       25 ms        9.0 ms      1.5 ms
// On a GPU, many logits in one bin make the histogram's atomics wait for each other: the first
// byte, sign and exponent, has few values.

#include "common.cuh"

// ---- what all versions share -------------------------------------------------------------------
// A token's share of probability is counted in whole units, 2^40 for the likeliest token of the
// row: integers add up to the same total in any order, so that every version, block size and run
// draws the same token. (A sum of floats would depend on the order.)
#define FULL_MASS 1099511627776.0f

// One row of logits and how to weigh its tokens.
template <typename T>
struct Row {
    const T* logits;
    int vocab;
    float largest;
    float inverse_temperature;  // 0: greedy, only the largest logit has mass

    __device__ __forceinline__ unsigned key(int id) const { return sort_key(to_float(logits[id])); }

    __device__ __forceinline__ uint64 mass(int id) const {
        const float value = to_float(logits[id]);
        if (value == largest) return (uint64)FULL_MASS;
        if (inverse_temperature == 0.0f || !(value < largest)) return 0;
        return (uint64)(__expf((value - largest) * inverse_temperature) * FULL_MASS);
    }
};

// How much a token counts in a search: 1 for top-k, its mass for top-p.
enum Weight { COUNT, MASS };
template <Weight WEIGHT, typename T>
__device__ __forceinline__ uint64 weight(const Row<T>& row, int id) {
    return WEIGHT == COUNT ? 1 : row.mass(id);
}

// The weight of all tokens whose key is at least `lowest`.
template <Weight WEIGHT, typename T>
__device__ __forceinline__ uint64 weight_from(const Row<T>& row, unsigned lowest) {
    uint64 sum = 0;
    for (int id = threadIdx.x; id < row.vocab; id += blockDim.x)
        if (row.key(id) >= lowest) sum += weight<WEIGHT>(row, id);
    return block_sum(sum);
}

// ---- three ways to find the border -------------------------------------------------------------
// Each returns the largest key such that the tokens at or above it weigh at least `target`:
// the k-th largest logit (weight 1, target k), or where the most likely tokens reach p.

// From the top down, one distinct logit per round.
struct Rounds {
    template <Weight WEIGHT, typename T>
    static __device__ __forceinline__ unsigned find(const Row<T>& row, uint64 target) {
        unsigned border = 0xffffffffu;
        for (uint64 reached = 0; reached < target && border > 0;) {
            unsigned next = 0;
            for (int id = threadIdx.x; id < row.vocab; id += blockDim.x) {
                const unsigned key = row.key(id);
                if (key < border && key > next) next = key;
            }
            border = block_max(next, 0u);
            reached = weight_from<WEIGHT>(row, border);
        }
        return border;
    }
};

// Guess the border's 32 bits, from the highest: a bit stays if enough weight lies above.
struct Bisect {
    template <Weight WEIGHT, typename T>
    static __device__ __forceinline__ unsigned find(const Row<T>& row, uint64 target) {
        unsigned border = 0;
        for (unsigned bit = 0x80000000u; bit > 0; bit /= 2)
            if (weight_from<WEIGHT>(row, border | bit) >= target) border |= bit;
        return border;
    }
};

// Eight bits a pass: a histogram of the next byte of all keys that share the bytes found so far.
struct Radix {
    // Walks the 256 bins from the top, 32 at a time: the one in which the sum reaches `target`, and
    // the weight above it. One warp does it.
    static __device__ __forceinline__ void find_bin(const uint64* bins, uint64 target, int* bin,
                                                    uint64* above) {
        const int lane = threadIdx.x;
        uint64 sum = 0;
        for (int top = 255; top > 0; top -= 32) {
            const uint64 own = bins[top - lane], up_to = sum + warp_prefix_sum(own);
            const unsigned hit = __ballot_sync(FULL_MASK, up_to >= target);
            if (hit) {
                if (lane == __ffs(hit) - 1) *bin = top - lane, *above = up_to - own;
                return;
            }
            sum = __shfl_sync(FULL_MASK, up_to, 31);
        }
    }

    template <Weight WEIGHT, typename T>
    static __device__ __forceinline__ unsigned find(const Row<T>& row, uint64 target) {
        __shared__ uint64 bins[256];
        __shared__ uint64 above;
        __shared__ int bin;
        unsigned border = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            const unsigned known = shift == 24 ? 0u : FULL_MASK << (shift + 8);
            for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
            if (threadIdx.x == 0) bin = 0, above = 0;
            __syncthreads();
            for (int id = threadIdx.x; id < row.vocab; id += blockDim.x) {
                const unsigned key = row.key(id);
                if ((key & known) == border)
                    atomicAdd(&bins[key >> shift & 255u], weight<WEIGHT>(row, id));
            }
            __syncthreads();
            if (threadIdx.x < 32) find_bin(bins, target, &bin, &above);
            __syncthreads();
            border |= (unsigned)bin << shift;
            target -= above;
            __syncthreads();  // everybody has read bin and above; the next pass clears them
        }
        return border;
    }
};

// ---- the draw ----------------------------------------------------------------------------------
// Puts the kept tokens' masses end to end in the order of their ids, and returns through `out` the
// token on which `ticket` (0 .. total - 1) falls. Every warp owns a run of neighbouring ids.
template <typename T>
__device__ __forceinline__ void draw(int* out, const Row<T>& row, unsigned border, uint64 ticket) {
    __shared__ uint64 warp_mass[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int run = ((row.vocab + warps - 1) / warps + 31) / 32 * 32;
    const int begin = warp * run, end = min(begin + run, row.vocab);

    uint64 own = 0;
    for (int id = begin + lane; id < end; id += 32)
        if (row.key(id) >= border) own += row.mass(id);
    own = warp_sum(own);
    if (lane == 0) warp_mass[warp] = own;
    __syncthreads();

    uint64 start = 0;
    for (int w = 0; w < warp; ++w) start += warp_mass[w];
    if (ticket < start || ticket >= start + own) return;  // another warp's run
    for (int base = begin; base < end; base += 32) {
        const int id = base + lane;
        const bool kept = id < end && row.key(id) >= border;
        const uint64 up_to = start + warp_prefix_sum(kept ? row.mass(id) : uint64(0));
        const unsigned hit = __ballot_sync(FULL_MASK, up_to > ticket);
        if (hit) {
            if (lane == 0) *out = base + __ffs(hit) - 1;
            return;
        }
        start = __shfl_sync(FULL_MASK, up_to, 31);
    }
}

template <typename Search, typename T>
__device__ __forceinline__ void sample_row(int* out, const T* logits, float temperature, int top_k,
                                           float top_p, float uniform, int vocab) {
    float largest = NEG_INF;
    for (int id = threadIdx.x; id < vocab; id += blockDim.x)
        largest = fmaxf(largest, to_float(logits[id]));  // fmaxf drops NaN
    largest = block_max(largest, NEG_INF);
    const Row<T> row = {logits, vocab, largest, temperature > 0.0f ? 1.0f / temperature : 0.0f};

    unsigned border = 0;
    if (top_k > 0 && top_k < vocab) border = Search::template find<COUNT>(row, top_k);
    uint64 total = weight_from<MASS>(row, border);
    if (top_p < 1.0f) {
        const uint64 target = (uint64)ceil((double)top_p * (double)total);
        border = Search::template find<MASS>(row, target > 0 ? target : 1);
        total = weight_from<MASS>(row, border);
    }
    if (total == 0) {  // only NaN
        if (threadIdx.x == 0) *out = 0;
        return;
    }
    const uint64 ticket = (uint64)((double)uniform * (double)total);
    draw(out, row, border, ticket < total ? ticket : total - 1);
}

#define SAMPLING_KERNEL(NAME, SEARCH, T)                                                           \
    KERNEL(1024, 1)                                                                                \
    NAME(int* out, const T* __restrict__ logits, const float* __restrict__ temperature,            \
         const int* __restrict__ top_k, const float* __restrict__ top_p,                           \
         const float* __restrict__ uniform, int vocab) {                                           \
        const int r = blockIdx.x;                                                                  \
        sample_row<SEARCH>(out + r, logits + (int64)r * vocab, temperature[r], top_k[r], top_p[r], \
                           uniform[r], vocab);                                                     \
    }
#define SAMPLING_KERNELS(DTYPE, T)                                                                 \
    SAMPLING_KERNEL(sample_rounds_##DTYPE, Rounds, T)                                              \
    SAMPLING_KERNEL(sample_bisect_##DTYPE, Bisect, T)                                              \
    SAMPLING_KERNEL(sample_radix_##DTYPE, Radix, T)
FOR_EACH_DTYPE(SAMPLING_KERNELS)
