/* Sums over N of a chunk (linear_attention_floats_back.cuh), by a warp with 16 rows of it: no sum is taken apart
 * again. */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_PAIRS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_PAIRS_CUH

#include "linear_attention_floats_heads.cuh"

namespace attention_heads
{

/*
 * Of LEFT numbers a lane keeps half, the upper one where its bit `away` is set, and adds to them what the lane has
 * that differs from it in that bit alone.
 */
template <int LEFT, int COUNT> __device__ __forceinline__ void halve(float (&number)[COUNT], int away)
{
    const bool upper = lane_of_warp() & away;
#pragma unroll
    for (int i = 0; i < LEFT / 2; i++) {
        const float given = upper ? number[i] : number[i + LEFT / 2];
        const float own = upper ? number[i + LEFT / 2] : number[i];
        number[i] = own + __shfl_xor_sync(ALL, given, away);
    }
}

/* Rows are those of the earlier step.  A thread's numbers as products of tiles have them. */
__device__ __forceinline__ void sum_pairs(const float (&N)[WIDE / 2], Sums &to, int warp)
{
    const int group = group_of_lane(), pair = pair_of_lane();
    float blocks[16], columns[16], rows[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < EIGHTS; n++) {
        float column[2] = {0, 0};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool later = n > 2 * warp + half;
            const float first = later ? N[n * 4 + half * 2] : 0, second = later ? N[n * 4 + half * 2 + 1] : 0;
            column[0] += first, column[1] += second;
            blocks[half * 8 + n] = first + second;
            rows[half] += first + second;
        }
        columns[n] = column[0], columns[8 + n] = column[1];
    }
#pragma unroll
    for (int half = 0; half < 2; half++) { /* pairs within a block */
        float even = 0, odd = 0;
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            const bool is_own = hidden(n - 2 * warp - half) == 0; /* else the compiler picks from memory */
            even = is_own ? N[n * 4 + half * 2] : even;
            odd = is_own ? N[n * 4 + half * 2 + 1] : odd;
        }
        float since = even + odd;
        const float next = __shfl_down_sync(ALL, since, 1, 4);
        if (pair < 3) since += next;
        const float second = __shfl_down_sync(ALL, since, 2, 4);
        if (pair < 2) since += second;
        const float behind = __shfl_down_sync(ALL, since, 1, 4), later = pair < 3 ? behind : 0;
        float sums[2] = {group < 2 * pair ? later + odd + even : 0, group < 2 * pair + 1 ? later + odd : 0};
        halve<2>(sums, 16);
#pragma unroll
        for (int away = 8; away >= 4; away /= 2) sums[0] += __shfl_xor_sync(ALL, sums[0], away);
        if (group % 4 == 0) to.own[warp * STRIP + half * 8 + 2 * pair + group / 4] = sums[0];
#pragma unroll
        for (int away = 1; away < 4; away *= 2) rows[half] += __shfl_xor_sync(ALL, rows[half], away);
        if (pair == 0) to.rows[warp * STRIP + half * 8 + group] = rows[half];
    }
    halve<16>(columns, 16);
    halve<8>(columns, 8);
    halve<4>(columns, 4);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int block = (group / 2 % 2) * 4 + group % 2 * 2 + i;
        to.columns[warp][block * 8 + 2 * pair + group / 4] = columns[i];
    }
    halve<16>(blocks, 16);
    halve<8>(blocks, 8);
    halve<4>(blocks, 4);
    halve<2>(blocks, 2);
    blocks[0] += __shfl_xor_sync(ALL, blocks[0], 1);
    if (pair % 2 == 0) to.blocks[2 * warp + lane_of_warp() / 16][lane_of_warp() / 2 % 8] = blocks[0];
}

} // namespace attention_heads

#endif
