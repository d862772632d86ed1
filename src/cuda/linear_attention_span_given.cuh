/* dk and dv of a chunk of a span, and what the gates' gradients need of its steps as the earlier ones of two. */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPAN_GIVEN_CUH
#define RL_CUDA_LINEAR_ATTENTION_SPAN_GIVEN_CUH

#include "linear_attention_span_maker.cuh"

namespace attention_spans
{

/*
 * Sums of N over the thread's rows j, as its columns s come by from the last to the first.  `columns` are over
 * columns of other warps' steps; `later` likewise, over all columns behind the block; `own` is the warp's own two
 * blocks of steps: over j < t <= s, with what j has behind them.
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
    /* Sums from each of the two columns on, with what is behind their block. */
    __device__ __forceinline__ float2 since(float even, float odd, int upper, int pair)
    {
        float sum = even + odd, all = behind[upper];
        float other = __shfl_down_sync(ALL, sum, 1, 4);
        if (pair < 3) sum += other;
        other = __shfl_down_sync(ALL, sum, 2, 4);
        if (pair < 2) sum += other;
        all += __shfl_xor_sync(ALL, all, 1);
        all += __shfl_xor_sync(ALL, all, 2);
        behind[upper] += even + odd;
        return {all + sum, all + (sum - even)};
    }
};

/* BETAS: dbeta is wanted. */
template <bool BETAS> struct Given : Maker {
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

    /* The products of the rows' steps with later ones, by way of two neighbours of a row: times their weights. */
    struct Mixer {
        float over[2], beta[2]; /* of the rows: without what comes behind them; beta only where it is kept apart */
        float whole[2];         /* the thread's share of the sums over N by rows, without beta */
        Pairs pairs;

        __device__ __forceinline__ float2 mix(uint32_t &key, uint32_t &value, float a, float a_next, float m,
                                              float m_next, float2 decay, int upper)
        {
            if constexpr (BETAS) {
                whole[upper] += fmaf(a * m, decay.x, a_next * m_next * decay.y);
                decay.x *= beta[upper], decay.y *= beta[upper];
            }
            const float first = m * decay.x, second = m_next * decay.y;
            key = pack_bfloats(a * decay.x, a_next * decay.y);
            value = pack_bfloats(first, second);
            return {first * a, second * a_next};
        }
    };
    /* The warp's eight numbers of its own 16 steps. */
    __device__ __forceinline__ void pick(float (&to)[8], const float (&from)[32]) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            to[i] = from[i];
#pragma unroll
            for (int w = 1; w < WALK_WARPS; w++)
                if (warp() == w) to[i] = from[8 * w + i];
        }
    }
    /* The warp's own two blocks of steps, of which the second also follows on the first. */
    __device__ __forceinline__ void mix_own(uint32_t (&key)[4], uint32_t (&value)[4], Mixer &mixer,
                                            const float (&A)[32], const float (&M)[32], const Decays &d) const
    {
        const int first = warp() * 2;
        float a[8], m[8];
        float2 near[2];
        pick(a, A);
        pick(m, M);
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const float factor = BETAS ? args.scale : args.scale * d.factor[row(upper)];
            near[upper] = *(const float2 *)&d.within[first + upper][row(upper) % BLOCK][pair() * 2];
            near[upper].x *= factor, near[upper].y *= factor;
        }
        const float2 until = ((const float2 *)d.until)[(first + 1) * 4 + pair()];
        const float passed = mixer.over[0] * d.between[first][first + 1];
        const float2 across =
            mixer.mix(key[2], value[2], a[4], a[5], m[4], m[5], float2{passed * until.x, passed * until.y}, 0);
        const float2 lower = mixer.mix(key[3], value[3], a[6], a[7], m[6], m[7], near[1], 1);
        const float2 upper = mixer.mix(key[0], value[0], a[0], a[1], m[0], m[1], near[0], 0);
        key[1] = value[1] = 0;
        if (!wants_gates()) return;
        const int step = row(0) % BLOCK, column = 2 * pair();
        const float2 all = mixer.pairs.since(across.x, across.y, 0, pair());
        const float2 second = mixer.pairs.since(lower.x, lower.y, 1, pair());
        const float2 one = mixer.pairs.since(upper.x, upper.y, 0, pair());
        mixer.pairs.own[0][0] = step < column ? one.x : 0;
        mixer.pairs.own[0][1] = step < column + 1 ? one.y : 0;
        mixer.pairs.own[1][0] = all.x + (step < column ? second.x : 0);
        mixer.pairs.own[1][1] = all.y + (step < column + 1 ? second.y : 0);
    }
    /* Both kinds of products of the rows' steps with those of their own chunk, or of the second, with their weights.
     */
    template <bool SAME>
    __device__ __forceinline__ void mix_later(uint32_t (&keys)[TURNS][4], uint32_t (&values)[TURNS][4],
                                              float (&whole)[2], int turn, int own) const
    {
        const int later = SAME ? own : 1;
        const Decays &here = decays(turn, own), &to = decays(turn, later);
        const bool gates = wants_gates();
        Mixer mixer;
        float A[32], M[32];
        await(K, turn);
        await(Q, turn);
        multiply_steps(A, K, own, Q, later);
        await(V, turn);
        await(DY, turn);
        multiply_steps(M, V, own, DY, later);
        mixer.pairs.clear();
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int step = row(upper);
            const float beta = here.factor[step];
            mixer.over[upper] =
                here.weight[step] * (SAME ? 1 : here.behind[step / BLOCK]) * args.scale * (BETAS ? 1 : beta);
            mixer.beta[upper] = beta;
            mixer.whole[upper] = whole[upper];
        }
        products_wait<0>();
        hold(A);
        hold(M);
#pragma unroll
        for (int part = TURNS - 1; part >= 0; part--) {
#pragma unroll
            for (int k = 0; k < 4; k++) keys[part][k] = values[part][k] = 0;
            if (SAME && part <= warp()) continue;
#pragma unroll
            for (int k = 3; k >= 0; k--) { /* the later block first */
                const int block = part * 2 + k / 2, upper = k % 2, at = block * 4 + upper * 2;
                const float2 until = ((const float2 *)to.until)[block * 4 + pair()];
                const float passed =
                    mixer.over[upper] * (SAME ? here.between[warp() * 2 + upper][block] : to.before[block]);
                const float2 n = mixer.mix(keys[part][k], values[part][k], A[at], A[at + 1], M[at], M[at + 1],
                                           float2{passed * until.x, passed * until.y}, upper);
                if (gates) mixer.pairs.take(n.x, n.y, block, upper);
            }
        }
        if constexpr (SAME) {
            uint32_t key[4], value[4];
            mix_own(key, value, mixer, A, M, here);
#pragma unroll
            for (int part = 0; part < TURNS; part++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (part == warp()) keys[part][k] = key[k], values[part][k] = value[k];
        }
#pragma unroll
        for (int upper = 0; upper < 2; upper++) whole[upper] = mixer.whole[upper];
        if (!gates) return;
        if constexpr (SAME)
            note_pairs(mixer.pairs);
        else
            note_crossing(mixer.pairs);
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
            if constexpr (!BETAS) continue;
            const float to_end = d.weight[step] * d.behind[step / BLOCK] * passed;
            const float dbeta = fmaf(total[upper], to_end, over_row(whole[upper]));
            if (pair() > 0 || at >= span.steps) continue;
            finite = fmaf(dbeta, 0.0f, finite);
            store_any(args.dbeta.data, args.dbeta.dtype, span.at(args.dbeta, at), dbeta);
        }
        note_rows(notes().given + own * STEPS, weighed);
    }
    /* sums += the mixed steps of its own chunk, and of the second. */
    __device__ __forceinline__ void add_all_mixed(float (&sums)[64], uint32_t (&same)[TURNS][4],
                                                  uint32_t (&crossing)[TURNS][4], int right, int own) const
    {
        hold(same);
        hold(crossing);
        hold(sums);
        add_mixed(sums, same, right, own);
        if (own == 0) add_mixed(sums, crossing, right, 1);
        products_wait<0>();
        hold(same);
        hold(crossing);
        hold(sums);
    }
    __device__ __forceinline__ void run(const Span &span, int turn)
    {
        const int own = group;
        const Decays &d = decays(turn, own);
        uint32_t keys[2][TURNS][4], values[2][TURNS][4]; /* with its own chunk, and with the second */
        float sums[64], whole[2] = {0, 0}, factor[2];
        if (own == 0) mix_later<false>(keys[1], values[1], whole, turn, own);
        mix_later<true>(keys[0], values[0], whole, turn, own);
        await(G, turn);
        read_state<true>(sums, V, own, G);
        const float passed = (span.is_last ? 1 : *next_gate(turn)) * (own == 0 ? decays(turn, 1).carry : 1);
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            factor[upper] = d.after[row(upper)] * d.behind[row(upper) / BLOCK] * passed;
        products_wait<0>();
        hold(sums);
        arrive(&signals().used[V]);
        if (BETAS || wants_gates()) note_given(sums, whole, factor, passed, span, turn, own);
        arrive(&signals().noted);
        scale_rows(sums, factor);
        add_all_mixed(sums, values[0], values[1], Q, own);
        arrive(&signals().used[Q]);
        if (args.dk.data) store(sums, span, args.dk, own, args.walk.values);
        read_state<false>(sums, K, own, G);
        products_wait<0>();
        hold(sums);
        arrive(&signals().used[G]);
        arrive(&signals().used[K]);
        scale_rows(sums, factor);
        add_all_mixed(sums, keys[0], keys[1], DY, own);
        arrive(&signals().used[DY]);
        if (args.dv.data) store(sums, span, args.dv, own, args.walk.keys);
    }
};

} // namespace attention_spans

#endif
