/*
 * The products of a walk by chunks (linear_attention_chunk_walk.cuh), and what the gates' gradients take of them.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_PRODUCTS_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_PRODUCTS_CUH

#include "linear_attention_chunk_state.cuh"

namespace attention_chunks
{

/* Numbers that may be split, as operands of products from registers. */
template <int COUNT, bool BOTH> struct Split {
    uint32_t high[COUNT][4], low[BOTH ? COUNT : 1][4];

    __device__ __forceinline__ void stay()
    {
        hold(high);
        if constexpr (BOTH) hold(low);
    }
    __device__ __forceinline__ void set(int at, int k, float first, float second)
    {
        if constexpr (BOTH)
            split(first, second, high[at][k], low[at][k]);
        else
            high[at][k] = pack_bfloats(first, second);
    }
};

template <int KEYS, Purpose PURPOSE> struct Products : State<KEYS, PURPOSE> {
    typedef attention_chunks::State<KEYS, PURPOSE> State;
    typedef typename State::Layout Layout;
    static constexpr int KEY_TURNS = KEYS / TURN, HALF = KEY_TURNS / 2;
    using State::args;
    using State::block_row;
    using State::GATES;
    using State::group;
    using State::head;
    using State::LEAVES;
    using State::mix;
    using State::pair;
    using State::place;
    using State::S;
    using State::sequence;
    using State::shared;
    using State::thread;
    using State::value_row;
    using State::warp;
    static constexpr bool SPLITS = !State::GATES; /* the state in products with Q */
    typedef Split<HALF, SPLITS> KeySplit;
    typedef Split<TURNS, LEAVES> StepSplit;

    using State::State;

    /* A half of the keys. */
    __device__ __forceinline__ void split_state(KeySplit &to, int half) const
    {
#pragma unroll
        for (int i = 0; i < HALF * 4; i++) {
            const int at = half * HALF * 8 + 2 * i;
            to.set(i / 4, i % 4, S[at], S[at + 1]);
        }
        to.stay();
    }
    __device__ __forceinline__ void multiply_state(float (&Y)[32], const KeySplit &by, const char *q, int half) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < HALF; turn++) {
            const uint64_t keys = keys_at(q, half * HALF + turn);
            product_of_registers<BF16, STEPS, false>(Y, by.high[turn], keys, half + turn > 0);
            if constexpr (SPLITS) product_of_registers<BF16, STEPS, false>(Y, by.low[turn], keys, true);
        }
        products_commit();
    }
    __device__ __forceinline__ void decay_answers(float (&Y)[32], const Decays &d) const
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
    /* The group's Vᵀ, or the partner's like it. */
    __device__ __forceinline__ void load_values(uint32_t (&V)[4], char *v, int turn) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
        matrices_load<4, true>(V,
                               piece_of(v + group * TILE, turn * TURN + block / 2 * 8 + row, warp() * 2 + block % 2));
    }
    __device__ __forceinline__ void load_values(uint32_t (&V)[TURNS][4], char *v) const
    {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) load_values(V[turn], v, turn);
        hold(V);
    }
    __device__ __forceinline__ void multiply_mix(float (&Y)[32], const uint32_t (&V)[TURNS][4], int chunk) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_registers<BF16, STEPS, true>(Y, V[turn], steps_at(mix(chunk), turn), true);
        products_commit();
    }
    __device__ __forceinline__ void weigh_values(StepSplit &to, char *v, const Decays &d) const
    {
        uint32_t V[TURNS][4];
        load_values(V, v);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            float2 decay = ((const float2 *)d.after)[block * 4 + pair()];
            decay.x *= d.behind[block];
            decay.y *= d.behind[block];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int k = block % 2 * 2 + upper;
                const uint32_t word = V[block / 2][k];
                to.set(block / 2, k, low_of(word) * decay.x, high_of(word) * decay.y);
            }
        }
        to.stay();
    }
    __device__ __forceinline__ void decay_state(const Decays &d)
    {
        const float carry = d.carry;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] *= carry;
    }
    __device__ __forceinline__ void add_inputs(const StepSplit &by, const char *k)
    {
        hold(S);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            product_of_registers<BF16, KEYS, true>(S, by.high[turn], steps_at(k, turn), true);
            if constexpr (LEAVES) product_of_registers<BF16, KEYS, true>(S, by.low[turn], steps_at(k, turn), true);
        }
        products_commit();
    }

    /* For the gates' gradients */

    __device__ __forceinline__ uint4 *kept_state(int chunk) const
    {
        return (uint4 *)args.states + place(chunk) * (KEYS / 16 * THREADS) + thread;
    }
    __device__ __forceinline__ void keep_half(const KeySplit &state, int chunk, int half) const
    {
        uint4 *to = kept_state(chunk) + half * HALF * THREADS;
#pragma unroll
        for (int i = 0; i < HALF; i++)
            to[i * THREADS] = uint4{state.high[i][0], state.high[i][1], state.high[i][2], state.high[i][3]};
    }
    __device__ __forceinline__ void recall_kept(uint32_t (&kept)[KEYS / 4], int chunk) const
    {
        const uint4 *from = kept_state(chunk);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) {
            const uint4 words = from[i * THREADS];
            kept[4 * i] = words.x, kept[4 * i + 1] = words.y, kept[4 * i + 2] = words.z, kept[4 * i + 3] = words.w;
        }
    }
    /* <G, S>, by warp. */
    __device__ __forceinline__ void cross_states(const uint32_t (&kept)[KEYS / 4], const Decays &d, int chunk) const
    {
        float sums[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            sums[0] = fmaf(low_of(kept[i]), S[2 * i], sums[0]);
            sums[1] = fmaf(high_of(kept[i]), S[2 * i + 1], sums[1]);
        }
        float sum = sums[0] + sums[1];
#pragma unroll
        for (int away = 16; away > 0; away /= 2) sum += __shfl_xor_sync(ALL, sum, away);
        if (thread % 32 == 0) args.cross[place(chunk) * WALK_WARPS + warp()] = sum * d.carry;
    }
    /* The partner's rows times Y, summed over the warp's values, to be added up over the warps. */
    __device__ __forceinline__ void sum_with_partner(const float (&Y)[32], int chunk, const Decays &d,
                                                     bool weighs) const
    {
        Columns sums;
        sums.clear();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            uint32_t words[4];
            load_values(words, this->partner(chunk), turn);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = turn * 2 + k / 2, at = block * 4 + k % 2 * 2;
                sums.at[2 * block] = fmaf(low_of(words[k]), Y[at], sums.at[2 * block]);
                sums.at[2 * block + 1] = fmaf(high_of(words[k]), Y[at + 1], sums.at[2 * block + 1]);
            }
        }
#pragma unroll
        for (int block = 0; block < BLOCKS && weighs; block++) {
            const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
            sums.at[2 * block] *= factor.x;
            sums.at[2 * block + 1] *= factor.y;
        }
        sums.store(this->row_sums(chunk, group) + warp() * STEPS, thread);
        shared_publish(); /* before the copy engine writes there again */
    }
    /* S as bfloat16 numbers in shared memory, by its values, for the other answer. */
    __device__ __forceinline__ void share_half(const KeySplit &state, int half) const
    {
        char *const tiles = shared + Layout::STATE + group * TILE;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const int turn = half * HALF + i;
            char *const tile = tiles + turn / 4 * (Layout::GROUPS * TILE);
            matrices_store<4, false>(block_row(tile, turn % 4 * 2, false), state.high[i]);
        }
    }

    /* Then the loop's order is taken for all of the head's gates. */
    __device__ __forceinline__ void mark_head() const
    {
        if (GATES && thread == 0) args.bad[(int64_t)sequence * args.heads + head] = 1;
    }
};

} // namespace attention_chunks

#endif
