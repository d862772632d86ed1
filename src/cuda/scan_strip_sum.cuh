/* The summaries of a strip's sub-chunks, of which each thread has one. */
#ifndef RL_CUDA_SCAN_STRIP_SUM_CUH
#define RL_CUDA_SCAN_STRIP_SUM_CUH

#include "scan_split_chain.cuh"
#include "scan_strip.h"

namespace
{

constexpr int LANES = RL_STRIP_LANES;
typedef Summary<float> Sum;
typedef Told<double> Word;

template <typename Shuffle> __device__ __forceinline__ Sum moved(const Sum &sum, const Shuffle &shuffle)
{
    return {{}, shuffle(sum.P), shuffle(sum.S), shuffle(sum.mass)};
}

/* Of each of the strip's channels, the sums up to and with each thread's own. */
template <int channels> __device__ __forceinline__ void sums_in_strip(Sum (&sum)[channels], int lane)
{
    bool is_finite = true;
    unsigned resets[channels];
#pragma unroll
    for (int j = 0; j < channels; j++) {
        is_finite &= is_finite_sum(sum[j]);
        resets[j] = __ballot_sync(~0u, has_reset(sum[j])) & (0xffffffffu >> (31 - lane));
    }
    const auto up = [&](const Sum &one, int distance) {
        return moved(one, [&](auto x) { return __shfl_up_sync(~0u, x, (unsigned)distance); });
    };
    if (__all_sync(~0u, is_finite)) {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
            for (int j = 0; j < channels; j++) {
                const Sum both = joined_plainly(up(sum[j], distance), sum[j]);
                if (lane >= distance) sum[j] = both;
            }
        }
#pragma unroll
        for (int j = 0; j < channels; j++) mark(sum[j], resets[j]);
        return;
    }
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
        for (int j = 0; j < channels; j++) {
            const Sum both = joined(up(sum[j], distance), sum[j]);
            if (lane >= distance) sum[j] = both;
        }
    }
}

} // namespace

#endif
