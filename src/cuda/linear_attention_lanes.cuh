/* Sums over the lanes of a warp, in a fixed order. */
#ifndef RL_CUDA_LINEAR_ATTENTION_LANES_CUH
#define RL_CUDA_LINEAR_ATTENTION_LANES_CUH

#include "linear_attention_inputs.cuh"

namespace attention
{

constexpr unsigned ALL = 0xffffffffu;
constexpr int WARP = 32;

/*
 * Sums of ROWS numbers over the `lanes` neighbouring lanes that share a row group.  At each of the first steps a lane
 * keeps half of its rows and gives its neighbour the other half; in the end lane k of ROWS has the row it returns.
 */
template <typename N, int ROWS> __device__ inline int sum_over_lanes(N (&value)[ROWS], int lanes)
{
    const int lane = (int)threadIdx.x % WARP;
    int row = 0, away = 1;
#pragma unroll
    for (int keep = ROWS / 2; keep >= 1; keep /= 2, away *= 2) {
        const bool upper = lane & away;
#pragma unroll
        for (int i = 0; i < keep; i++) {
            const N given = upper ? value[i] : value[i + keep], own = upper ? value[i + keep] : value[i];
            value[i] = rounded_sum(own, __shfl_xor_sync(ALL, given, away));
        }
        row += upper ? keep : 0;
    }
    for (; away < lanes; away *= 2) value[0] = rounded_sum(value[0], __shfl_xor_sync(ALL, value[0], away));
    return row;
}

template <typename N> __device__ inline N sum_over_warp(N value)
{
#pragma unroll
    for (int away = WARP / 2; away > 0; away /= 2) value = rounded_sum(value, __shfl_xor_sync(ALL, value, away));
    return value;
}

} // namespace attention

#endif
