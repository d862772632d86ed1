/* Sums over pairs of tiles for the gates of a strip (linear_attention_floats_strips_back.cu). */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_FLOW_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_FLOW_CUH

#include "linear_attention_floats_strips.cuh"

namespace attention_floats
{

/* What the pairs of tiles that a warp has met add to the strip's gates. */
struct Flow {
    float row[2], column[2][2]; /* of N: sums over steps j before the strip, and over steps s behind it */
    float own[2][2], whole;     /* what goes to each step of the strip, of the strip by itself; and to all of them */

    __device__ __forceinline__ Flow() : row{}, column{}, own{}, whole(0)
    {
    }
    /* Rows s and columns j of the strip itself: over s >= t and j < t. */
    __device__ __forceinline__ void add_own(const float (&N)[2][4])
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float before = 0; /* the columns of the eights before */
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float first = N[n][half * 2], both = first + N[n][half * 2 + 1];
                float until = both;
#pragma unroll
                for (int away = 1; away < 4; away *= 2) {
                    const float earlier = __shfl_up_sync(ALL, until, away, 4);
                    if (pair_of_lane() >= away) until += earlier;
                }
                float earlier = __shfl_up_sync(ALL, until, 1, 4);
                earlier = before + (pair_of_lane() > 0 ? earlier : 0);
                const int step = group_of_lane() + half * 8, t = n * 8 + 2 * pair_of_lane();
                own[n][0] += step >= t ? earlier : 0;
                own[n][1] += step >= t + 1 ? earlier + first : 0;
                before += __shfl_sync(ALL, until, 3, 4);
            }
        }
    }
    __device__ __forceinline__ void add(const float (&N)[2][4], bool high_is_own, bool low_is_own)
    {
        if (high_is_own && low_is_own) {
            add_own(N);
            return;
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) (high_is_own ? row[i / 2] : low_is_own ? column[n][i % 2] : whole) += N[n][i];
    }
    /* A warp's to shared memory: by steps of the strip what rows, columns and the strip itself add; and all. */
    __device__ __forceinline__ void leave(float *to)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int away = 1; away < 4; away *= 2) row[i] += __shfl_xor_sync(ALL, row[i], away);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int away = 4; away < 32; away *= 2) {
                column[i / 2][i % 2] += __shfl_xor_sync(ALL, column[i / 2][i % 2], away);
                own[i / 2][i % 2] += __shfl_xor_sync(ALL, own[i / 2][i % 2], away);
            }
#pragma unroll
        for (int away = 1; away < 32; away *= 2) whole += __shfl_xor_sync(ALL, whole, away);
        if (pair_of_lane() == 0) to[group_of_lane()] = row[0], to[8 + group_of_lane()] = row[1];
        if (group_of_lane() == 0)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int step = i / 2 * 8 + 2 * pair_of_lane() + i % 2;
                to[STRIP + step] = column[i / 2][i % 2];
                to[2 * STRIP + step] = own[i / 2][i % 2];
            }
        if (lane_of_warp() == 0) to[3 * STRIP] = whole;
    }
    static constexpr int FLOATS = 3 * STRIP + 1;
};

} // namespace attention_floats

#endif
