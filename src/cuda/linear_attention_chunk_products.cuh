/*
 * The products of a walk by chunks (linear_attention_chunk_walk.cuh), and what the gates' gradients take of them.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_PRODUCTS_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_PRODUCTS_CUH

#include <machine/mma.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_chunk_ground.cuh"

namespace attention_chunks
{

/* Which operands that are rounded on the way are two numbers; without, outputs keep the 8 bits of their type. */
constexpr bool SPLITS_STATE = true, SPLITS_MIX = true, SPLITS_VALUES = true;

/* Two numbers as sums of two bfloat16 numbers each. */
__device__ inline void split(float first, float second, uint32_t &high, uint32_t &low)
{
    high = pack_bfloats(first, second);
    low = pack_bfloats(first - low_of(high), second - high_of(high));
}

/* Numbers split so, as operands of products from registers. */
template <int COUNT, bool BOTH> struct Split {
    uint32_t high[COUNT][4], low[COUNT][4];

    __device__ __forceinline__ void stay()
    {
        hold(high);
        if constexpr (BOTH) hold(low);
    }
};

template <int KEYS, Purpose PURPOSE> struct Products : Ground<KEYS, PURPOSE> {
    typedef attention_chunks::Ground<KEYS, PURPOSE> Ground;
    typedef typename Ground::Layout Layout;
    using Ground::args;
    using Ground::course;
    using Ground::decays;
    using Ground::first;
    using Ground::first_value;
    using Ground::GATES;
    using Ground::group;
    using Ground::HALF;
    using Ground::head;
    using Ground::KEY_TURNS;
    using Ground::mix;
    using Ground::pair;
    using Ground::partner;
    using Ground::S;
    using Ground::sequence;
    using Ground::shared;
    using Ground::thread;
    using Ground::value_row;
    using Ground::warp;
    typedef Split<HALF, SPLITS_STATE> KeySplit;
    typedef Split<TURNS / 2, SPLITS_VALUES> StepSplit;

    using Ground::Ground;

    /* Products */

    __device__ __forceinline__ uint64_t keys_at(const char *tiles, int turn) const
    {
        return tile_descriptor(tiles + turn / 4 * TILE + turn % 4 * (TURN * 2), 0, BLOCK * ROW, SWIZZLE_128);
    }
    __device__ __forceinline__ uint64_t steps_at(const char *tiles, int turn) const
    {
        return tile_descriptor(tiles + turn * (TURN * ROW), TILE, BLOCK * ROW, SWIZZLE_128);
    }
    __device__ __forceinline__ void multiply_steps(float (&P)[32], const char *q, const char *k) const
    {
        hold(P);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < KEY_TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(P, keys_at(k, turn), keys_at(q, turn), turn > 0);
        products_commit();
    }
    /* A half of the keys, which takes registers only while its products are at work. */
    __device__ __forceinline__ void split_state(KeySplit &to, int half) const
    {
#pragma unroll
        for (int i = 0; i < HALF * 4; i++) {
            const int at = half * HALF * 8 + 2 * i;
            split(S[at], S[at + 1], to.high[i / 4][i % 4], to.low[i / 4][i % 4]);
        }
        to.stay();
    }
    __device__ __forceinline__ void multiply_state(float (&Y)[32], const KeySplit &by, const char *q, int half) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < HALF; turn++) {
            product_of_registers<BF16, STEPS, false>(Y, by.high[turn], keys_at(q, half * HALF + turn),
                                                     half + turn > 0);
            if (SPLITS_STATE)
                product_of_registers<BF16, STEPS, false>(Y, by.low[turn], keys_at(q, half * HALF + turn), true);
        }
        products_commit();
    }
    /* P with its decays, to shared memory: the high parts, and the low ones in the tile behind. */
    __device__ __forceinline__ void weigh_steps(const float (&P)[32], const Decays &d, const float (&own_pairs)[32],
                                                Pairs &pairs) const
    {
        const float2 *until = (const float2 *)d.until + pair();
        float after[2];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) after[upper] = d.after[value_row(upper)];
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t high[4], low[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = column + k / 2, upper = k % 2, own = warp() * 2 + upper;
                float2 decay = until[block * 4];
                const float between = after[upper] * d.between[own][block];
                decay.x *= between;
                decay.y *= between;
                if (block == own) decay = *(const float2 *)&d.within[own][group()][pair() * 2];
                const int at = block * 4 + upper * 2;
                const float first = P[at] * decay.x, second = P[at + 1] * decay.y;
                split(first, second, high[k], low[k]);
                if (PURPOSE != READ_GRADIENTS) continue;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                pairs.take(first * own_pairs[at] * factor.x, second * own_pairs[at + 1] * factor.y, block, upper,
                           value_row(upper), pair());
            }
            char *to = block_row(column, false);
            matrices_store<4, false>(to, high);
            if (SPLITS_MIX) matrices_store<4, false>(to + TILE, low);
        }
    }
    /* The thread's row for a store of four blocks, of the warp()'s 16 rows or, turned, of its 16 columns. */
    __device__ __forceinline__ char *block_row(int column, bool turned) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
        if (turned) return piece_of(mix(), (column + block / 2) * 8 + row, warp() * 2 + block % 2);
        return piece_of(mix(), warp() * 16 + block % 2 * 8 + row, column + block / 2);
    }
    __device__ __forceinline__ void decay_state(float (&Y)[32], const Decays &d) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            float2 decay = ((const float2 *)d.until)[block * 4 + pair()];
            decay.x *= d.before[block];
            decay.y *= d.before[block];
#pragma unroll
            for (int k = 0; k < 4; k++) Y[block * 4 + k] *= k % 2 ? decay.y : decay.x;
        }
    }
    /* Vᵀ of the steps from a turn on. */
    template <int COUNT> __device__ __forceinline__ void load_values(uint32_t (&V)[COUNT][4], char *v, int from) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
#pragma unroll
        for (int turn = 0; turn < COUNT; turn++)
            matrices_load<4, true>(V[turn],
                                   piece_of(v, (from + turn) * TURN + block / 2 * 8 + row, warp() * 2 + block % 2));
    }
    __device__ __forceinline__ void multiply_mix(float (&Y)[32], const uint32_t (&V)[TURNS][4]) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            product_of_registers<BF16, STEPS, true>(Y, V[turn], steps_at(mix(), turn), true);
            if (SPLITS_MIX) product_of_registers<BF16, STEPS, true>(Y, V[turn], steps_at(mix() + TILE, turn), true);
        }
        products_commit();
    }
    /* A half of the steps. */
    __device__ __forceinline__ void weigh_values(StepSplit &to, char *v, const Decays &d, int half) const
    {
        uint32_t V[TURNS / 2][4];
        load_values(V, v, half * (TURNS / 2));
#pragma unroll
        for (int i = 0; i < BLOCKS / 2; i++) {
            const int block = half * (BLOCKS / 2) + i;
            float2 decay = ((const float2 *)d.after)[block * 4 + pair()];
            decay.x *= d.behind[block];
            decay.y *= d.behind[block];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int k = i % 2 * 2 + upper;
                const uint32_t word = V[i / 2][k];
                split(low_of(word) * decay.x, high_of(word) * decay.y, to.high[i / 2][k], to.low[i / 2][k]);
            }
        }
        to.stay();
    }
    __device__ __forceinline__ void multiply_inputs(float (&U)[KEYS / 2], const StepSplit &by, const char *k,
                                                    int half) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS / 2; turn++) {
            const uint64_t steps = steps_at(k, half * (TURNS / 2) + turn);
            product_of_registers<BF16, KEYS, true>(U, by.high[turn], steps, half + turn > 0);
            if (SPLITS_VALUES) product_of_registers<BF16, KEYS, true>(U, by.low[turn], steps, true);
        }
        products_commit();
    }
    /* The state that leaves is made twice, to be looked at and, behind a vote, to stay: so S needs no second place.
     */
    __device__ __forceinline__ void look_at_state(float &finite, const float (&U)[KEYS / 2], float carry) const
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) look_at(finite, fmaf(carry, S[i], U[i]));
    }
    __device__ __forceinline__ void take_state(const float (&U)[KEYS / 2], float carry)
    {
        const float again = __int_as_float(hidden(__float_as_int(carry))); /* or the compiler would keep the first */
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = fmaf(again, S[i], U[i]);
    }

    /* For the gates' gradients */

    /* The chunk's, by the order of the recurrence itself. */
    __device__ __forceinline__ int64_t place(int chunk) const
    {
        const int64_t line = (int64_t)head * args.slabs + first_value / VALUES;
        return place_of(args, course, sequence, line, args.backward ? course.chunks - 1 - chunk : chunk);
    }
    __device__ __forceinline__ float *sums_at(int chunk, Kind kind) const
    {
        const int kinds = PURPOSE == READ_STATES ? 1 : KINDS;
        return args.sums + (place(chunk) * kinds + kind) * KIND + warp() * STEPS;
    }
    __device__ __forceinline__ uint32_t *kept_state(int chunk) const
    {
        return args.states + place(chunk) * (KEYS / 4 * THREADS) + thread;
    }
    __device__ __forceinline__ void keep_half(const KeySplit &state, int chunk, int half) const
    {
        uint32_t *to = kept_state(chunk) + half * HALF * 4 * THREADS;
#pragma unroll
        for (int i = 0; i < HALF * 4; i++) to[i * THREADS] = state.high[i / 4][i % 4];
    }
    /* <G, S>, by warp. */
    __device__ __forceinline__ void cross_states(const Decays &d, int chunk) const
    {
        const uint32_t *from = kept_state(chunk);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            const uint32_t word = from[i * THREADS];
            sum = fmaf(low_of(word), S[2 * i], fmaf(high_of(word), S[2 * i + 1], sum));
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) sum += __shfl_xor_sync(ALL, sum, away);
        if (thread % 32 == 0) args.cross[place(chunk) * WALK_WARPS + warp()] = sum * (float)(d.carry[0] * d.carry[1]);
    }
    /* The partner's rows times Y, summed over the warp's values. */
    __device__ __forceinline__ void sum_with_partner(const float (&Y)[32], float *to, const Decays &d,
                                                     bool weighs) const
    {
        Columns sums;
        sums.clear();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            uint32_t words[1][4];
            load_values(words, partner(), turn);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = turn * 2 + k / 2, at = block * 4 + k % 2 * 2;
                sums.at[2 * block] = fmaf(low_of(words[0][k]), Y[at], sums.at[2 * block]);
                sums.at[2 * block + 1] = fmaf(high_of(words[0][k]), Y[at + 1], sums.at[2 * block + 1]);
            }
        }
#pragma unroll
        for (int block = 0; block < BLOCKS && weighs; block++) {
            const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
            sums.at[2 * block] *= factor.x;
            sums.at[2 * block + 1] *= factor.y;
        }
        sums.store(to, thread);
    }
    /* q_s · k_j of the slab's keys. */
    __device__ __forceinline__ void multiply_pairs(float (&M)[32], const char *v) const
    {
        hold(M);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(M, keys_at(v, turn), keys_at(partner(), turn), turn > 0);
        products_commit();
    }
    /* Then the loop's order is taken for all of the head's gates. */
    __device__ __forceinline__ void mark_head() const
    {
        if (GATES && thread == 0) args.bad[(int64_t)sequence * args.heads + head] = 1;
    }
};

} // namespace attention_chunks

#endif
