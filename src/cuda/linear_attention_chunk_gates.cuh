/*
 * What the gates' gradients need of the walks of dq and dk.  By chunk, with S the state that enters it, G the
 * gradient that enters it from behind, decays as in linear_attention_chunk_walk.cuh and j < t <= s,
 *
 *     g_t dg_t = Σ_{j<t<=s} N_sj  +  Σ_{s>=t} u_s  +  Σ_{j<t} w_j  +  c
 *     N_sj = D_sj β_j (scale q_s · k_j) (dy_s · v_j)       u_s = b_s scale q_s · S dy_s
 *     w_j  = e_j β_j k_j · G v_j                           c   = b_last <G, S>
 *
 * all of them sums over what the slabs of keys hold.  The walk of dq leaves u and every S, rounded to bfloat16; the
 * walk of dk has N, w and c.  A warpgroup leaves the sums over its own rows, and linear_attention_chunk_gates.cu adds
 * up and goes through the steps.  No term is the small difference of large ones.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_GATES_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_GATES_CUH

#include <machine/held.cuh>

#include "linear_attention_chunk_decays.cuh"

namespace attention_chunks
{

/* Sums over a warp's rows: a thread's columns are 2 pair and the next of each block. */
struct Columns {
    float at[2 * BLOCKS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) at[i] = 0;
    }
    /*
     * Over the 8 threads that share them; each time a thread gives half of what it has and keeps the other, so that
     * it ends with the two of one block, which are its first.
     */
    template <int KEEP> __device__ __forceinline__ int add_up(int thread)
    {
        constexpr int AWAY = 4 * BLOCKS / KEEP;
        const bool upper = thread & AWAY;
#pragma unroll
        for (int i = 0; i < KEEP; i++) {
            const float low = at[i], high = at[i + KEEP];
            at[i] = (upper ? high : low) + __shfl_xor_sync(ALL, upper ? low : high, AWAY);
        }
        const int first = upper ? KEEP / 2 : 0;
        if constexpr (KEEP > 2)
            return first + add_up<KEEP / 2>(thread);
        else
            return first;
    }
    /* `to`: a warp's row of STEPS sums. */
    __device__ __forceinline__ void store(float *to, int thread) const
    {
        Columns own = *this;
        hold(own.at); /* or the compiler would choose halves by address, in memory */
        const int block = own.add_up<BLOCKS>(thread);
        *(float2 *)(to + block * BLOCK + thread % 4 * 2) = float2{own.at[0], own.at[1]};
    }
};

/* N summed over j < t for the thread's rows s >= t, as its columns come by in the order of time. */
struct Pairs {
    Columns sums;
    float so_far[2]; /* of a row, up to the block at hand */

    __device__ __forceinline__ void clear()
    {
        sums.clear();
        so_far[0] = so_far[1] = 0;
    }
    /* Two neighbours of a row's block. */
    __device__ __forceinline__ void take(float first, float second, int block, int upper, int row, int pair)
    {
        float until = first + second;
        float other = __shfl_up_sync(ALL, until, 1, 4);
        if (pair >= 1) until += other;
        other = __shfl_up_sync(ALL, until, 2, 4);
        if (pair >= 2) until += other;
        other = __shfl_up_sync(ALL, until, 1, 4);
        const float before = so_far[upper] + (pair > 0 ? other : 0), column = block * BLOCK + pair * 2;
        sums.at[2 * block] += column <= row ? before : 0;
        sums.at[2 * block + 1] += column + 1 <= row ? before + first : 0;
        so_far[upper] += __shfl_sync(ALL, until, 3, 4);
    }
};

/* Sums of a chunk and slab, by step: those of dq's walk have the first kind alone. */
enum Kind { INNER, PAIRS, WHOLE, KINDS };
constexpr int WALK_WARPS = RL_CHUNKS_WARPS;

/* Chunks of all sequences lie one after the other; with packed ones a few places stay empty. */
__device__ inline int64_t place_of(const rl_chunks_args &args, const Course &course, int64_t sequence, int64_t line,
                                   int64_t chunk)
{
    const int64_t most = (args.length + STEPS - 1) / STEPS;
    const int64_t base = args.offsets ? course.begin / STEPS + sequence : sequence * most;
    return line * (args.offsets ? args.length / STEPS + args.sequences : args.sequences * most) + base + chunk;
}

} // namespace attention_chunks

#endif
