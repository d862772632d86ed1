/*
 * What the gates' gradients need of the walks of dq and dk.  By chunk, with S the state that enters it, G the
 * gradient that enters it from behind, decays as in linear_attention_chunk_walk.cuh and j < t <= s,
 *
 *     g_t dg_t = Σ_{j<t<=s} N_sj  +  Σ_{s>=t} u_s  +  Σ_{j<t} w_j  +  c
 *     N_sj = D_sj β_j (scale q_s · k_j) (dy_s · v_j)       u_s = b_s scale q_s · S dy_s
 *     w_j  = e_j β_j k_j · G v_j                           c   = b_last <G, S>
 *
 * all of them sums over what the slabs of keys hold.  The walk of dq leaves u and every S, rounded to bfloat16; the
 * walk of dk has N, w and c.  A warp leaves the sums over its own rows, and linear_attention_chunk_gates.cu adds up
 * and goes through the steps.  No term is the small difference of large ones.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_GATES_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_GATES_CUH

#include <machine/held.cuh>
#include <machine/mma.cuh>

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

/*
 * N summed over j < t for a warp's 16 rows s >= t, as its columns come by in the order of time: of 16 of them a
 * product with a triangle of ones, on top of what the ones before sum up to.
 */
struct Pairs {
    static constexpr uint32_t ONES = 0x3f803f80; /* two, as bfloat16 numbers */
    Columns sums;
    float so_far[4]; /* of the thread's two rows, twice: as a product has them */

    __device__ __forceinline__ void clear()
    {
        sums.clear();
#pragma unroll
        for (int i = 0; i < 4; i++) so_far[i] = 0;
    }
    /* Of N the sum of two bfloat16 numbers, as operands of the warp's product; `row` is the thread's first. */
    __device__ __forceinline__ void take(const uint32_t (&high)[4], const uint32_t (&low)[4], int turn, int row)
    {
        const int pair = (int)threadIdx.x % 4, place = (int)threadIdx.x % 32 / 4;
        const uint32_t triangle = (2 * pair < place ? ONES & 0xffffu : 0) | (2 * pair + 1 < place ? ONES << 16 : 0);
        const uint32_t first[2] = {triangle, 0}, second[2] = {ONES, triangle}, all[2] = {ONES, ONES};
        take_block(high, low, first, 2 * turn, row, pair);
        take_block(high, low, second, 2 * turn + 1, row, pair);
        product_of_warp<BF16>(so_far, high, all);
        product_of_warp<BF16>(so_far, low, all);
    }
    __device__ __forceinline__ void take_block(const uint32_t (&high)[4], const uint32_t (&low)[4],
                                               const uint32_t (&ones)[2], int block, int row, int pair)
    {
        const int column = block * BLOCK + pair * 2;
        float before[4];
#pragma unroll
        for (int i = 0; i < 4; i++) before[i] = so_far[i];
        product_of_warp<BF16>(before, high, ones);
        product_of_warp<BF16>(before, low, ones);
#pragma unroll
        for (int i = 0; i < 4; i++) sums.at[2 * block + i % 2] += column + i % 2 <= row + i / 2 * 8 ? before[i] : 0;
    }
};

/* Sums of a chunk and slab, by warp of the walk and step: those of dq's walk have the first kind alone. */
enum Kind { INNER, PAIRS, WHOLE, KINDS };
constexpr int WALK_WARPS = RL_CHUNKS_WARPS, KIND = WALK_WARPS * STEPS;

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
