/* What the warpgroups that make gradients of spans have in common: products, sums over rows, and stores. */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPAN_MAKER_CUH
#define RL_CUDA_LINEAR_ATTENTION_SPAN_MAKER_CUH

#include "linear_attention_span_ground.cuh"

namespace attention_spans
{

struct Maker : Ground {
    const int group;
    float finite; /* stays 0 while all gradients are finite */

    __device__ Maker(const rl_spans_args &args, char *shared, int group)
        : Ground(args, shared), group(group), finite(0)
    {
    }

    /* sums[64, 64] = left rightᵀ of two chunks' steps. */
    __device__ __forceinline__ void multiply_steps(float (&sums)[32], int left, int own, int right, int other) const
    {
        hold(sums);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < LANE_TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(sums, along(tensor(left), own, turn),
                                                        along(tensor(right), other, turn), turn > 0);
        products_commit();
    }
    /* sums[64, 128] = a chunk's rows by a state [keys, values]; over its values, or its keys. */
    template <bool VALUES>
    __device__ __forceinline__ void read_state(float (&sums)[64], int left, int own, int state) const
    {
        hold(sums);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < LANE_TURNS; turn++)
            product_of_tiles<BF16, LANES, false, !VALUES>(
                sums, along(tensor(left), own, turn),
                VALUES ? along(tensor(state), 0, turn) : across(tensor(state), turn), turn > 0);
        products_commit();
    }
    /* sums[64, 128] += mixed steps of a chunk. */
    __device__ __forceinline__ void add_mixed(float (&sums)[64], const uint32_t (&mix)[TURNS][4], int right,
                                              int other) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_registers<BF16, LANES, true>(sums, mix[turn], across(tensor(right), other * TURNS + turn),
                                                    true);
        products_commit();
    }
    __device__ __forceinline__ void scale_rows(float (&sums)[64], const float (&factor)[2]) const
    {
#pragma unroll
        for (int i = 0; i < 64; i++) sums[i] *= factor[i / 2 % 2];
    }
    /* Over the four threads of a row. */
    __device__ __forceinline__ float over_row(float sum) const
    {
        sum += __shfl_xor_sync(ALL, sum, 1);
        return sum + __shfl_xor_sync(ALL, sum, 2);
    }
    /* Each row's product with the tensor's. */
    __device__ __forceinline__ void dot_rows(float (&total)[2], const float (&sums)[64], int which, int own) const
    {
        const int lane = thread % 32, row = warp() * 16 + lane % 16;
        total[0] = total[1] = 0;
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 2) {
            uint32_t words[4];
            char *const tile = tensor(which) + column / BLOCKS * PANEL + own * TILE;
            matrices_load<4, false>(words, piece_of(tile, row, column % BLOCKS + lane / 16));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (column + k / 2) * 4 + k % 2 * 2;
                total[k % 2] = fmaf(sums[at], low_of(words[k]), total[k % 2]);
                total[k % 2] = fmaf(sums[at + 1], high_of(words[k]), total[k % 2]);
            }
        }
#pragma unroll
        for (int upper = 0; upper < 2; upper++) total[upper] = over_row(total[upper]);
    }
    __device__ __forceinline__ void note_rows(float *to, const float (&total)[2]) const
    {
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            if (pair() == 0) to[row(upper)] = total[upper];
    }
    /* A warp's 16 rows by 32 lanes in its own room, lines of 64 bytes. */
    __device__ __forceinline__ char *room(int row, int piece) const
    {
        return shared + Layout::ROWS + (group * WALK_WARPS + warp()) * ROOM + row * 64 +
               ((piece ^ (row / 2 & 3)) * PIECE);
    }
    __device__ __forceinline__ void store(const float (&sums)[64], const Span &span, const rl_attention_view &to,
                                          int own, int64_t lanes)
    {
        const int lane = thread % 32, above = warp() * 16 + lane / 4, piece = lane % 4,
                  left = span.steps - own * STEPS;
        bf16 *const rows = (bf16 *)to.data + span.at(to, own * STEPS + above) + piece * 8;
#pragma unroll
        for (int i = 0; i < 64; i++) finite = fmaf(sums[i], 0.0f, finite);
#pragma unroll
        for (int part = 0; part < 4; part++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t words[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int at = (part * 4 + half * 2 + k / 2) * 4 + k % 2 * 2;
                    words[k] = pack_bfloats(sums[at], sums[at + 1]);
                }
                matrices_store<4, false>(room(lane % 16, half * 2 + lane / 16), words);
            }
            __syncwarp(); /* the rows are there */
#pragma unroll
            for (int upper = 0; upper < 2; upper++)
                if (above + upper * 8 < left && part * 32 + piece * 8 < lanes)
                    *(uint4 *)(rows + upper * 8 * to.step + part * 32) =
                        *(const uint4 *)room(lane / 4 + upper * 8, piece);
            __syncwarp(); /* they may be written again */
        }
    }
    /* At the end of a span: what is not finite is had in the loop's order. */
    __device__ __forceinline__ void judge(const Span &span)
    {
        if (finite != 0) mark(span);
        finite = 0;
    }
};

/* dq of a span: its first chunk's, and its second's. */
struct Asked : Maker {
    __device__ Asked(const rl_spans_args &args, char *shared, int group) : Maker(args, shared, group)
    {
    }

    /* Products of the rows' steps with those of a chunk, earlier ones or of the same: M with their weights. */
    __device__ __forceinline__ void mix_earlier(uint32_t (&to)[TURNS][4], int turn, int own, int earlier) const
    {
        const Decays &from = decays(turn, earlier), &here = decays(turn, own);
        const bool is_same = own == earlier;
        float M[32], over[2];
        await(V, turn);
        await(DY, turn);
        multiply_steps(M, DY, own, V, earlier);
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            over[upper] = here.until[row(upper)] * (is_same ? 1 : here.before[row(upper) / BLOCK]) * args.scale;
        products_wait<0>();
        hold(M);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            uint32_t *const words = to[block / 2] + block % 2 * 2;
            const float2 after = ((const float2 *)from.after)[block * 4 + pair()];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int late = warp() * 2 + upper, at = block * 4 + upper * 2;
                const float passed = over[upper] * (is_same ? from.between[block][late] : from.behind[block]);
                float2 decay = {after.x * passed, after.y * passed};
                if (is_same && block == late) {
                    const float2 beta = ((const float2 *)from.factor)[block * 4 + pair()];
                    decay.x = from.within[block][pair() * 2][row(upper) % BLOCK] * beta.x * args.scale;
                    decay.y = from.within[block][pair() * 2 + 1][row(upper) % BLOCK] * beta.y * args.scale;
                }
                words[upper] = pack_bfloats(M[at] * decay.x, M[at + 1] * decay.y);
            }
        }
    }
    __device__ __forceinline__ void make(const Span &span, int turn, int own)
    {
        const Decays &d = decays(turn, own);
        uint32_t same[TURNS][4], earlier[TURNS][4];
        float sums[64], factor[2];
        mix_earlier(same, turn, own, own);
        if (own > 0) mix_earlier(earlier, turn, own, own - 1);
        if (own == 0) arrive(&signals().used[V]);
        await(S, turn);
        read_state<true>(sums, DY, own, S);
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            factor[upper] = d.until[row(upper)] * d.before[row(upper) / BLOCK] * args.scale *
                            (own > 0 ? decays(turn, 0).carry : 1);
        products_wait<0>();
        hold(sums);
        if (own == 0) {
            arrive(&signals().used[S]);
            arrive(&signals().used[DY]);
        }
        await(Q, turn);
        if (wants_gates()) {
            float total[2];
            dot_rows(total, sums, Q, own);
            total[0] *= factor[0];
            total[1] *= factor[1];
            note_rows(notes().read + own * STEPS, total);
        }
        if (own == 0) {
            arrive(&signals().used[Q]);
            arrive(&signals().noted);
        }
        await(K, turn);
        scale_rows(sums, factor);
        hold(same);
        hold(sums);
        add_mixed(sums, same, K, own);
        if (own > 0) {
            hold(earlier);
            add_mixed(sums, earlier, K, own - 1);
        }
        products_wait<0>();
        hold(same);
        hold(earlier);
        hold(sums);
        if (own == 0) arrive(&signals().used[K]);
        if (args.dq.data) store(sums, span, args.dq, own, args.walk.values);
    }
    __device__ __forceinline__ void run(const Span &span, int turn)
    {
#pragma unroll 1
        for (int own = RL_SPANS_CHUNKS - 1; own >= 0; own--) make(span, turn, own);
    }
};

} // namespace attention_spans

#endif
