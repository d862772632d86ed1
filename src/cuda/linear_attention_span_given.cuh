/* dk and dv of a chunk of a span, and what the gates' gradients need of its steps as the earlier ones of two. */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPAN_GIVEN_CUH
#define RL_CUDA_LINEAR_ATTENTION_SPAN_GIVEN_CUH

#include "linear_attention_span_maker.cuh"

namespace attention_spans
{

/*
 * Sums of N over the thread's rows j, as its columns s come by from the last to the first.  `columns` are over the
 * rows whose block of steps lies before the column's; `later` over those likewise, and all columns behind the block;
 * `own` is the rows' own block: over j < t <= s, with what j has behind the block.
 */
struct Pairs {
    Columns columns;
    float later[BLOCKS], own[2][2];
    float behind[2]; /* of a row, over the thread's columns that came */

    __device__ __forceinline__ void clear()
    {
        columns.clear();
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) later[block] = 0;
        behind[0] = behind[1] = 0;
    }
    __device__ __forceinline__ void take(float even, float odd, int block, int upper)
    {
        columns.at[2 * block] += even;
        columns.at[2 * block + 1] += odd;
        later[block] += behind[upper];
        behind[upper] += even + odd;
    }
    __device__ __forceinline__ void take_own(float even, float odd, int upper, int row, int pair)
    {
        float since = even + odd; /* over this pair of columns and those behind it */
        float other = __shfl_down_sync(ALL, since, 1, 4);
        if (pair < 3) since += other;
        other = __shfl_down_sync(ALL, since, 2, 4);
        if (pair < 2) since += other;
        float all = behind[upper];
        all += __shfl_xor_sync(ALL, all, 1);
        all += __shfl_xor_sync(ALL, all, 2);
        const int column = 2 * pair;
        own[upper][0] = row < column ? all + since : 0;
        own[upper][1] = row < column + 1 ? all + (since - even) : 0;
        behind[upper] += even + odd;
    }
};

struct Given : Maker {
    __device__ Given(const rl_spans_args &args, char *shared, int group) : Maker(args, shared, group)
    {
    }

    /* Over a warp's rows, of a thread's two columns. */
    __device__ __forceinline__ float over_rows(float sum) const
    {
#pragma unroll
        for (int away = 16; away >= 4; away /= 2) sum += __shfl_xor_sync(ALL, sum, away);
        return sum;
    }
    __device__ __forceinline__ void note_pairs(const Pairs &pairs) const
    {
        Notes &n = notes();
        pairs.columns.store(n.columns[group][warp()], thread);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            const float sum = over_row(over_rows(pairs.later[block]));
            if (thread % 32 == block) n.later[group][warp()][block] = sum;
        }
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const float2 sums = {over_rows(pairs.own[upper][0]), over_rows(pairs.own[upper][1])};
            if (thread % 32 < 4)
                *(float2 *)(n.near + group * STEPS + warp() * 16 + upper * BLOCK + pair() * 2) = sums;
        }
    }
    __device__ __forceinline__ void note_crossing(const Pairs &pairs) const
    {
        pairs.columns.store(notes().crossing[warp()], thread);
        const float total[2] = {over_row(pairs.behind[0]), over_row(pairs.behind[1])};
        note_rows(notes().rows, total);
    }
    /* Both kinds of products of the rows' steps with those of a chunk, later ones or of the same, with their weights;
     * `whole` gets the thread's share of the sums over N by rows, without beta. */
    __device__ __forceinline__ void mix_later(uint32_t (&keys)[TURNS][4], uint32_t (&values)[TURNS][4],
                                              float (&whole)[2], int turn, int own, int later) const
    {
        const Decays &here = decays(turn, own), &to = decays(turn, later);
        const bool is_same = own == later, gates = wants_gates(), betas = args.dbeta.data;
        Pairs pairs;
        float A[32], M[32], over[2], beta[2];
        float2 near[2];
        await(K, turn);
        await(Q, turn);
        multiply_steps(A, K, own, Q, later);
        await(V, turn);
        await(DY, turn);
        multiply_steps(M, V, own, DY, later);
        pairs.clear();
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int step = row(upper), block = step / BLOCK;
            near[upper] = *(const float2 *)&here.within[block][step % BLOCK][pair() * 2];
            near[upper].x *= args.scale, near[upper].y *= args.scale;
            over[upper] = here.weight[step] * (is_same ? 1 : here.behind[block]) * args.scale;
            beta[upper] = here.factor[step];
        }
        products_wait<0>();
        hold(A);
        hold(M);
#pragma unroll
        for (int block = BLOCKS - 1; block >= 0; block--) {
            uint32_t *const key = keys[block / 2] + block % 2 * 2, *const value = values[block / 2] + block % 2 * 2;
            key[0] = key[1] = value[0] = value[1] = 0;
            if (is_same && block < warp() * 2) continue;
            const float2 until = ((const float2 *)to.until)[block * 4 + pair()];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int early = warp() * 2 + upper, at = block * 4 + upper * 2;
                const bool is_own = is_same && block == early;
                if (is_same && block < early) continue;
                const float passed = over[upper] * (is_same ? here.between[early][block] : to.before[block]);
                float2 decay = {passed * until.x, passed * until.y};
                if (is_own) decay = near[upper];
                if (betas) whole[upper] += fmaf(A[at] * M[at], decay.x, A[at + 1] * M[at + 1] * decay.y);
                decay.x *= beta[upper], decay.y *= beta[upper];
                const float first = M[at] * decay.x, second = M[at + 1] * decay.y;
                key[upper] = pack_bfloats(A[at] * decay.x, A[at + 1] * decay.y);
                value[upper] = pack_bfloats(first, second);
                if (!gates) continue;
                const float even = first * A[at], odd = second * A[at + 1];
                if (is_own)
                    pairs.take_own(even, odd, upper, row(upper) % BLOCK, pair());
                else
                    pairs.take(even, odd, block, upper);
            }
        }
        if (!gates) return;
        if (is_same)
            note_pairs(pairs);
        else
            note_crossing(pairs);
    }

    /* w of the rows, and dbeta; `passed` is what comes between the chunk's end and G. */
    __device__ __forceinline__ void note_given(const float (&sums)[64], const float (&whole)[2],
                                               const float (&factor)[2], float passed, const Span &span, int turn,
                                               int own)
    {
        const Decays &d = decays(turn, own);
        float total[2], weighed[2];
        dot_rows(total, sums, K, own);
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int step = row(upper), at = own * STEPS + step;
            weighed[upper] = total[upper] * factor[upper];
            if (!args.dbeta.data) continue;
            const float to_end = d.weight[step] * d.behind[step / BLOCK] * passed;
            const float dbeta = fmaf(total[upper], to_end, over_row(whole[upper]));
            if (pair() > 0 || at >= span.steps) continue;
            finite = fmaf(dbeta, 0.0f, finite);
            store_any(args.dbeta.data, args.dbeta.dtype, span.at(args.dbeta, at), dbeta);
        }
        note_rows(notes().given + own * STEPS, weighed);
    }
    /* sums += the mixed steps of its own chunk, and of the second. */
    __device__ __forceinline__ void add_all_mixed(float (&sums)[64], uint32_t (&mix)[RL_SPANS_CHUNKS][TURNS][4],
                                                  int right, int own) const
    {
        hold(mix[1]);
        hold(mix[0]);
        hold(sums);
        if (own == 0) add_mixed(sums, mix[0], right, 0);
        add_mixed(sums, mix[1], right, 1);
        products_wait<0>();
        hold(mix[1]);
        hold(mix[0]);
        hold(sums);
    }
    __device__ __forceinline__ void run(const Span &span, int turn)
    {
        const int own = group;
        const Decays &d = decays(turn, own);
        uint32_t keys[RL_SPANS_CHUNKS][TURNS][4], values[RL_SPANS_CHUNKS][TURNS][4];
        float sums[64], whole[2] = {0, 0}, factor[2];
        mix_later(keys[1], values[1], whole, turn, own, 1);
        if (own == 0) mix_later(keys[0], values[0], whole, turn, own, 0);
        await(G, turn);
        read_state<true>(sums, V, own, G);
        const float passed = (span.is_last ? 1 : *next_gate(turn)) * (own == 0 ? decays(turn, 1).carry : 1);
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            factor[upper] = d.after[row(upper)] * d.behind[row(upper) / BLOCK] * passed;
        products_wait<0>();
        hold(sums);
        arrive(&signals().used[V]);
        if (wants_gates() || args.dbeta.data) note_given(sums, whole, factor, passed, span, turn, own);
        arrive(&signals().noted);
        scale_rows(sums, factor);
        add_all_mixed(sums, values, Q, own);
        arrive(&signals().used[Q]);
        if (args.dk.data) store(sums, span, args.dk, own, args.walk.values);
        read_state<false>(sums, K, own, G);
        products_wait<0>();
        hold(sums);
        arrive(&signals().used[G]);
        arrive(&signals().used[K]);
        scale_rows(sums, factor);
        add_all_mixed(sums, keys, DY, own);
        arrive(&signals().used[DY]);
        if (args.dv.data) store(sums, span, args.dv, own, args.walk.keys);
    }
};

} // namespace attention_spans

#endif
