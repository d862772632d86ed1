/*
 * The gradients of a chunk of bfloat16 data, by a warpgroup.  With S the state that enters, G the gradient that
 * enters from behind, b and e the products of gates from the chunk's begin and to its end, D those between two steps,
 * and t <= s:
 *
 *     dq_s = scale (b_s S dy_s + Σ_t D_st β_t (v_t · dy_s) k_t)
 *     dv_t = β_t (e_t Gᵀ k_t + scale Σ_s D_st (q_s · k_t) dy_s)
 *     dk_t = β_t (e_t G v_t + scale Σ_s D_st (dy_s · v_t) q_s)
 *
 *     g_t dg_t = Σ_{j<t<=s} N_sj  +  Σ_{s>=t} u_s  +  Σ_{j<t} w_j  +  b_64 <G, S>
 *     N_sj = D_sj β_j scale (q_s · k_j) (dy_s · v_j)      u_s = b_s scale q_s · S dy_s      w_j = e_j β_j k_j · G v_j
 *
 * S, G, and weighed products of steps meet other products as one bfloat16 number.  No term of the gates is the small
 * difference of large ones; a gate that is a factor is divided out, and where it is too small for that the head is
 * marked.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_BACK_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_BACK_CUH

#include "linear_attention_tiles_back_chunk.cuh"

namespace attention_tiles
{

constexpr float LEAST_GATE = 0x1p-60f; /* that is divided out */

/* PIECES: the copy engine stores all gradients. */
template <typename Chunk, bool PIECES> struct Gradients : Chunk {
    using Chunk::args, Chunk::chunk, Chunk::meet, Chunk::notes, Chunk::own, Chunk::task, Chunk::tile;
    float finite;

    __device__ Gradients(const Task &task, char *shared, int chunk) : Chunk(task, shared, chunk), finite(0)
    {
    }
    /* A tile [values, keys], or [steps, lanes], rounded to bfloat16. */
    __device__ __forceinline__ void keep(const float (&sums)[32], int which) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (block + k / 2) * 4 + k % 2 * 2;
                words[k] = pack_bfloats(sums[at], sums[at + 1]);
            }
            matrices_store<4, false>(blocks_at(tile(which), own, block, false), words);
        }
    }

    /* sums = left rightᵀ, both by steps. */
    __device__ __forceinline__ void multiply_steps(float (&sums)[32], int left, int right) const
    {
        hold(sums);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(sums, along(tile(left), turn), along(tile(right), turn),
                                                        turn > 0);
        products_commit();
    }
    /* sums = left by a state's tile [values, keys]; over its values, or its keys. */
    template <bool VALUES> __device__ __forceinline__ void read_state(float (&sums)[32], int left, int state) const
    {
        hold(sums);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, WIDE, false, VALUES>(sums, along(tile(left), turn),
                                                        VALUES ? across(tile(state), turn) : along(tile(state), turn),
                                                        turn > 0);
        products_commit();
    }
    /* sums += mixed steps of a tile. */
    __device__ __forceinline__ void add_mixed(float (&sums)[32], const uint32_t (&mix)[TURNS][4], int right) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_registers<BF16, WIDE, true>(sums, mix[turn], across(tile(right), turn), true);
        products_commit();
    }
    /* The same where the mixed steps are the columns of a tile. */
    __device__ __forceinline__ void add_mixed(float (&sums)[32], int mix, int right) const
    {
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, WIDE, true, true>(sums, across(tile(mix), turn), across(tile(right), turn), true);
        products_commit();
    }
    __device__ __forceinline__ void scale_rows(float (&sums)[32], const float *factor) const
    {
        const float upper = factor[own.row(0)], lower = factor[own.row(1)];
#pragma unroll
        for (int i = 0; i < 32; i++) sums[i] *= i / 2 % 2 ? lower : upper;
    }
    /* Each row's product with the tile's. */
    __device__ __forceinline__ void dot_rows(float (&total)[2], const float (&sums)[32], int which) const
    {
        total[0] = total[1] = 0;
#pragma unroll
        for (int block = 0; block < BLOCKS; block += 2) {
            uint32_t words[4];
            matrices_load<4, false>(words, blocks_at(tile(which), own, block, false));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (block + k / 2) * 4 + k % 2 * 2;
                total[k % 2] = fmaf(sums[at], low_of(words[k]), total[k % 2]);
                total[k % 2] = fmaf(sums[at + 1], high_of(words[k]), total[k % 2]);
            }
        }
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            total[upper] += __shfl_xor_sync(ALL, total[upper], 1);
            total[upper] += __shfl_xor_sync(ALL, total[upper], 2);
        }
    }
    __device__ __forceinline__ void note_rows(float *to, const float (&total)[2], const float *factor) const
    {
#pragma unroll
        for (int upper = 0; upper < 2; upper++)
            if (own.pair() == 0) to[own.row(upper)] = total[upper] * factor[own.row(upper)];
    }
    /* By way of a tile that nothing of the chunk reads any more: its threads meet before `stage`, and behind it. */
    __device__ __forceinline__ void stage(float (&sums)[32], int by)
    {
        look_at(finite, sums);
        if constexpr (PIECES) keep(sums, by);
    }
    __device__ __forceinline__ void store(const float (&sums)[32], const rl_attention_view &to,
                                          const CUtensorMap &map, int head, int64_t lanes, int by) const
    {
        const int64_t base = task.at(to, head, chunk);
        const int steps = task.steps(chunk);
        if constexpr (PIECES) {
            if (own.thread == 0) {
                tile_store(map, HeadTileAt{0, task.first(chunk), head, task.sequence}, tile(by));
                stores_commit();
            }
            __syncwarp(); /* the engine is told by registers that a warp's threads share */
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int step = own.row(i / 2 % 2), lane = i / 4 * 8 + own.pair() * 2 + i % 2;
                if (step < steps && lane < lanes)
                    store_any(to.data, to.dtype, base + step * to.step + lane * to.lane, sums[i]);
            }
        }
    }
    __device__ __forceinline__ int gradient_head() const
    {
        return args.in.share > 1 ? task.head : task.query_head();
    }

    /*
     * Sums over N of the thread's rows j, of two blocks of columns: to the step t goes what lies at s >= t of the
     * rows before it.  Columns come by from the last to the first; `behind` is a row's sum over those that came,
     * without its beta.  What lies behind a column is had by products with ones.
     */
    __device__ __forceinline__ void add_pairs(attention_chunks::Columns &pairs, float (&behind)[2],
                                              const uint32_t (&N)[4], const float (&beta)[2], int turn) const
    {
        constexpr uint32_t ONES = 0x3f803f80;
        const int column = own.thread % 32 / 4, step = 2 * own.pair();
        const uint32_t behind_own = (step >= column ? ONES & 0xffff : 0) | (step + 1 >= column ? ONES & ~0xffffu : 0);
        const uint32_t even[2] = {behind_own, ONES}, odd[2] = {0, behind_own}, ones[2] = {ONES, ONES};
        float sums[2][4] = {}, whole[4] = {};
        product_of_warp<BF16>(sums[0], N, even);
        product_of_warp<BF16>(sums[1], N, odd);
        product_of_warp<BF16>(whole, N, ones);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int block = turn * 2 + i / 4, upper = i / 2 % 2, at = 2 * block + i % 2;
            if (own.row(upper) < block * BLOCK + 2 * own.pair() + i % 2)
                pairs.at[at] = fmaf(behind[upper] + sums[i / 4][i % 4], beta[upper], pairs.at[at]);
        }
        behind[0] += whole[0], behind[1] += whole[2];
    }
    /* Both kinds of products of earlier steps with later ones, by rows of earlier ones; and the sums over N. */
    __device__ __forceinline__ void mix_later(uint32_t (&keys)[TURNS][4], uint32_t (&values)[TURNS][4],
                                              float (&behind)[2]) const
    {
        const Gates &g = notes().gates;
        const bool gates = args.dgate.data || args.dbeta.data;
        attention_chunks::Columns pairs;
        float A[32], M[32], after[2], beta[2];
        float2 near[2];
        multiply_steps(A, BackLayout::K, BackLayout::Q);
        multiply_steps(M, BackLayout::V, BackLayout::DY);
        pairs.clear();
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int row = own.row(upper);
            near[upper] = this->within(row, own.pair() * 2);
            near[upper].x *= (float)args.in.scale, near[upper].y *= (float)args.in.scale;
            after[upper] = g.after[row] * (float)args.in.scale;
            beta[upper] = g.beta[row];
            behind[upper] = 0;
        }
        products_wait<0>();
        hold(A);
        hold(M);
#pragma unroll
        for (int turn = TURNS - 1; turn >= 0; turn--) {
            uint32_t N[4] = {};
#pragma unroll
            for (int k = 0; k < 4; k++) keys[turn][k] = values[turn][k] = 0;
            if (turn < own.warp()) continue;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = turn * 2 + k / 2, upper = k % 2, early = own.warp() * 2 + upper,
                          at = block * 4 + upper * 2;
                if (block < early) continue;
                const float2 until = ((const float2 *)g.until)[block * 4 + own.pair()];
                const float over = after[upper] * g.between[early][block];
                float2 decay = {over * until.x, over * until.y};
                if (block == early) decay = near[upper];
                const float first = M[at] * decay.x, second = M[at + 1] * decay.y;
                keys[turn][k] = pack_bfloats(A[at] * decay.x * beta[upper], A[at + 1] * decay.y * beta[upper]);
                values[turn][k] = pack_bfloats(first * beta[upper], second * beta[upper]);
                N[k] = pack_bfloats(first * A[at], second * A[at + 1]);
            }
            if (gates) add_pairs(pairs, behind, N, beta, turn);
        }
        __syncwarp(); /* all of the warp has its products within blocks, whose place the sums take */
        if (args.dgate.data) pairs.store(notes().pairs(own.warp()), own.thread);
    }

    __device__ __forceinline__ void note_given(const float (&sums)[32], const float (&behind)[2])
    {
        float total[2];
        dot_rows(total, sums, BackLayout::K);
        note_rows(notes().given, total, notes().gates.sum_weight);
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int row = own.row(upper);
            const float whole = fmaf(total[upper], notes().gates.to_end[row], behind[upper]);
            if (!args.dbeta.data || own.pair() > 0 || row >= task.steps(chunk)) continue;
            finite = fmaf(whole, 0.0f, finite);
            store_any(args.dbeta.data, args.dbeta.dtype,
                      task.at(args.dbeta, task.head, chunk) + row * args.dbeta.step, whole);
        }
    }
    __device__ __forceinline__ void run()
    {
        const Gates &g = notes().gates;
        uint32_t keys[TURNS][4], values[TURNS][4];
        float behind[2], own_dk[32], other[32]; /* dv, and then dq */
        mix_later(keys, values, behind);
        read_state<false>(other, BackLayout::K, BackLayout::G);
        read_state<true>(own_dk, BackLayout::V, BackLayout::G);
        products_wait<0>();
        hold(other);
        hold(own_dk);
        if (args.dgate.data || args.dbeta.data) note_given(own_dk, behind);
        scale_rows(other, g.sum_weight);
        scale_rows(own_dk, g.sum_weight);
        hold(keys);
        hold(values);
        hold(other);
        hold(own_dk);
        add_mixed(other, keys, BackLayout::DY);
        add_mixed(own_dk, values, BackLayout::Q);
        products_wait<0>();
        hold(keys);
        hold(values);
        hold(other);
        hold(own_dk);
        meet(); /* v and G are no longer needed */
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            matrices_store<4, false>(blocks_at(tile(BackLayout::V), own, turn * 2, false), values[turn]);
        if (args.dv.data) stage(other, BackLayout::G);
        shared_publish();
        meet(); /* the mixed steps and dv are there */
        if (args.dv.data) store(other, args.dv, task.tiles.dv, task.head, args.in.values, BackLayout::G);
        if (args.dq.data || args.dgate.data) make_dq(other);
        meet(); /* dy and S are no longer needed */
        if (args.dk.data) stage(own_dk, BackLayout::DY);
        if (args.dq.data) stage(other, BackLayout::S);
        if (PIECES) shared_publish();
        meet(); /* dk and dq are there, and the sums for the gates */
        if (args.dk.data) store(own_dk, args.dk, task.tiles.dk, gradient_head(), args.in.keys, BackLayout::DY);
        if (args.dq.data) store(other, args.dq, task.tiles.dq, gradient_head(), args.in.keys, BackLayout::S);
    }
    /* Before a thread ends. */
    __device__ __forceinline__ void await_stores() const
    {
        if (PIECES && own.thread == 0) stores_wait<0>();
    }
    __device__ __forceinline__ void make_dq(float (&sums)[32])
    {
        const Gates &g = notes().gates;
        read_state<true>(sums, BackLayout::DY, BackLayout::S);
        products_wait<0>();
        hold(sums);
        if (args.dgate.data) {
            float total[2];
            dot_rows(total, sums, BackLayout::Q);
            note_rows(notes().read, total, g.back_weight);
        }
        scale_rows(sums, g.back_weight);
        hold(sums);
        add_mixed(sums, BackLayout::V, BackLayout::K);
        products_wait<0>();
        hold(sums);
    }

    /* The gates' gradients, by one warp with two steps a lane; false where not all is finite, or a gate too small. */
    __device__ __forceinline__ bool finish() const
    {
        Notes &n = notes();
        const int lane = own.thread, first = 2 * lane;
        float across = 0, pairs[2] = {0, 0};
        for (int warp = 0; warp < WARPS; warp++) {
            across += n.cross[warp];
            pairs[0] += n.pairs(warp)[first];
            pairs[1] += n.pairs(warp)[first + 1];
        }
        across *= (float)n.gates.product();
        const float read[2] = {n.read[first], n.read[first + 1]};
        const float given[2] = {n.given[first], n.given[first + 1]};
        const auto [earlier, later] = attention::sums_around(given[0] + given[1], read[0] + read[1], lane);
        const float flow[2] = {pairs[0] + (read[0] + (read[1] + later)) + earlier + across,
                               pairs[1] + (read[1] + later) + (earlier + given[0]) + across};
        bool good = true;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (first + i >= task.steps(chunk)) continue;
            const float gate = n.gates.gate[first + i];
            const bool is_read = task.first(chunk) + first + i > 0 || args.in.S_init.data;
            const bool divides = is_read && !args.in.gate_is_log;
            const float flows = args.in.gate_is_log && gate == 0 ? 0 : flow[i];
            good = good && is_finite(flows) && !(divides && fabsf(gate) < LEAST_GATE);
            store_any(args.dgate.data, args.dgate.dtype,
                      task.at(args.dgate, task.head, chunk) + (first + i) * args.dgate.step,
                      !is_read  ? 0
                      : divides ? flows / gate
                                : flows);
        }
        return good;
    }
};

} // namespace attention_tiles

#endif
