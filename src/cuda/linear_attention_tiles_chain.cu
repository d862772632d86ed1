/*
 * Linear attention of bfloat16 data by chunks in one kernel, from state to state: y
 * (linear_attention_tiles_chain.cuh).
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t  +  Vᵀ Pᵀ        Pᵀ = K Qᵀ · D_tj β_j         y = scale Yᵀ
 *     Sᵀ = Sᵀ · b_64  +  (Vᵀ · e_j β_j) K
 *
 * with S the state that enters, b and e the products of gates from the chunk's begin and to its end.  S meets
 * products as the sum of two bfloat16 numbers; so do the weighed values where S_final is wanted.  A head is marked,
 * to be run in the loop's order, where gates grow, or fade beside large numbers, or something is not finite.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_tiles_chain.cuh"
#include "linear_attention_walk_forward.cuh"

namespace
{

using namespace attention_tiles;

struct Layout : ChainLayout<3, 2, attention_tiles::Link> {
    static constexpr int Q = 0, K = TILE, V = 2 * TILE;
    static constexpr int WITHIN = (END + 15) / 16 * 16, BYTES = WITHIN + GROUPS * (int)sizeof(Within);
};
static_assert(Layout::BYTES <= 227 * 1024, "what a block may have");

/* PIECES: y is stored by the copy engine.  BOTH: weighed values are split. */
template <bool PIECES, bool BOTH> struct Answers : Chain<Layout> {
    bool unwelcome;

    __device__ Answers(const rl_tiles_args &tiles, char *shared)
        : Chain<Layout>(tiles, shared, blockIdx.x / (unsigned)cluster_blocks(), false), unwelcome(false)
    {
    }
    __device__ __forceinline__ Within &within() const
    {
        return ((Within *)(shared + Layout::WITHIN))[group];
    }

    /* Inputs, by one thread; q apart, whose place y takes. */
    __device__ __forceinline__ void load_pairs(int turn) const
    {
        if (!has(turn)) return;
        barrier_expect(full(turn), Layout::STAGE);
        load(stage(turn) + Layout::K, tiles.k, query_head(), turn);
        load(stage(turn) + Layout::V, tiles.v, head, turn);
    }
    __device__ __forceinline__ void load_queries(int turn) const
    {
        if (!has(turn)) return;
        if (PIECES) stores_wait<0>();
        load(stage(turn) + Layout::Q, tiles.q, query_head(), turn);
    }

    /* Pᵀ as bfloat16 numbers, by words of a store. */
    __device__ __forceinline__ void mix(uint32_t (&words)[BLOCKS / 2][4], const float (&P)[32], const Link &g) const
    {
        float2 near[2];
        float far[2];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            near[upper] = *(const float2 *)&within().at[own.warp() * 2 + upper][own.thread % 32 / 4][own.pair() * 2];
            far[upper] = g.worth[own.row(upper)];
        }
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            words[block / 2][block % 2 * 2] = words[block / 2][block % 2 * 2 + 1] = 0;
            if (block < own.warp() * 2) continue;
            const float2 until = ((const float2 *)g.until)[block * 4 + own.pair()];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int early = own.warp() * 2 + upper, at = block * 4 + upper * 2;
                const float over = far[upper] * g.between[early][block];
                float2 decay = {over * until.x, over * until.y};
                if (block == early) decay = near[upper];
                if (block >= early)
                    words[block / 2][block % 2 * 2 + upper] = pack_bfloats(P[at] * decay.x, P[at + 1] * decay.y);
            }
        }
    }

    __device__ __forceinline__ void read_state(float (&Y)[32], const float (&S)[32], const char *q) const
    {
        constexpr int HALF = TURNS / 2;
        uint32_t high[2][HALF][4], low[2][HALF][4];
        hold(Y);
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < HALF * 4; i++) {
                const int at = half * 16 + 2 * i;
                split(S[at], S[at + 1], high[half][i / 4][i % 4], low[half][i / 4][i % 4]);
            }
            hold(high[half]);
            hold(low[half]);
            products_fence();
#pragma unroll
            for (int turn = 0; turn < HALF; turn++) {
                const uint64_t keys = along(q, half * HALF + turn);
                product_of_registers<BF16, STEPS, false>(Y, high[half][turn], keys, half + turn > 0);
                product_of_registers<BF16, STEPS, false>(Y, low[half][turn], keys, true);
            }
            products_commit();
        }
        products_wait<0>();
#pragma unroll
        for (int half = 0; half < 2; half++) hold(high[half]), hold(low[half]);
        hold(Y);
    }
    __device__ __forceinline__ void decay(float (&Y)[32], const Link &g) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            const float2 from = ((const float2 *)g.back_weight)[block * 4 + own.pair()];
#pragma unroll
            for (int k = 0; k < 4; k++) Y[block * 4 + k] *= k % 2 ? from.y : from.x;
        }
    }

    /* Ends with y on its way, where the copy engine takes it from q's place. */
    __device__ __forceinline__ void store(const float (&Y)[32], int turn, char *rows) const
    {
        if constexpr (PIECES) {
#pragma unroll
            for (int block = 0; block < BLOCKS; block += 2) {
                uint32_t words[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int at = (block + k / 2) * 4 + k % 2 * 2;
                    words[k] = pack_bfloats(Y[at], Y[at + 1]);
                }
                matrices_store<4, true>(blocks_at(rows, own, block, true), words);
            }
            shared_publish();
            meet(); /* the rows are there, and the stage is no longer needed */
            if (brings()) {
                tile_store(tiles.y, HeadTileAt{0, first(turn), head, sequence}, rows);
                stores_commit();
            }
        } else {
            const rl_attention_view &y = args.y;
            const int64_t base = span.at(y, head, first(turn));
            const int64_t left = span.count - first(turn);
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int step = i / 4 * 8 + own.pair() * 2 + i % 2, value = own.row(i / 2 % 2);
                if (step < left && value < args.in.values)
                    store_any(y.data, y.dtype, base + step * y.step + value * y.lane, Y[i]);
            }
            meet(); /* the stage is no longer needed */
        }
    }
    /* Whether products may not be used, as far as gates and inputs say; of all threads together. */
    __device__ __forceinline__ bool is_unwelcome(const Link &g, char *q) const
    {
        if (!g.steady) return true;
        if (!g.fades) return false;
        return g.weighs[0] || g.weighs[1] || exceeds(q + Layout::Q) || exceeds(q + Layout::K) ||
               exceeds(q + Layout::V);
    }
    /* What the chunk adds to a state, and words of Pᵀ, which is mixed while that is under way. */
    __device__ __forceinline__ void multiply(float (&T)[32], uint32_t (&words)[BLOCKS / 2][4], const Link &g,
                                             int turn) const
    {
        char *const q = stage(turn) + Layout::Q, *const k = stage(turn) + Layout::K;
        float P[32];
        Addition<BOTH> addition;
        hold(P);
        products_fence();
#pragma unroll
        for (int n = 0; n < TURNS; n++)
            product_of_tiles<BF16, STEPS, false, false>(P, along(k, n), along(q, n), n > 0);
        products_commit();
        addition.prepare(stage(turn) + Layout::V, g.sum_weight, own);
        clear(T);
        addition.start(T, k);
        products_wait<1>();
        hold(P);
        if (brings() && turn > 0) load_queries(turn + 1);
        __syncwarp(); /* the engine is told by registers that a warp's threads share */
        mix(words, P, g);
        products_wait<0>();
        addition.stay();
        hold(T);
    }
    __device__ __forceinline__ void run_turn(int turn, Coming &coming)
    {
        char *const q = stage(turn) + Layout::Q, *const k = stage(turn) + Layout::K,
                    *const v = stage(turn) + Layout::V;
        const Link &g = link(turn);
        float Y[32];
        {
            float T[32], S[32];
            uint32_t words[BLOCKS / 2][4];
            expect_state(turn);
            barrier_wait(full(turn), turn / STAGES & 1);
            unwelcome = is_unwelcome(g, q) || unwelcome;
            multiply(T, words, g, turn);
            meet(); /* k is no longer needed, nor the products within blocks */
#pragma unroll
            for (int block = 0; block < BLOCKS; block += 2)
                matrices_store<4, false>(blocks_at(k, own, block, false), words[block / 2]);
            shared_publish();
            if (has(turn + 1) && has_step()) start_gates<true>(turn + 1, &within(), coming);
            if (place(turn) > 0) {
                take_state(S, turn);
            } else {
                begin_state(S, args.in.S_init);
                if (args.in.S_init.data) store_state(args.S + (int64_t)walk * (WIDE * WIDE), S, own);
            }
            if (place(turn) + 1 < chunks)
                hand_on(S, T, g);
            else
                end_state(S, T, g, args.S_final);
            if (g.fades) unwelcome = unwelcome || exceeds(S);
            read_state(Y, S, q);
        }
        decay(Y, g);
        meet(); /* P is there, and q no longer needed; so are the gates' blocks */
        if (has(turn + 1) && has_step()) {
            finish_gates(turn + 1);
            load_gates(turn + 2, coming);
        }
        hold(Y);
        products_fence();
#pragma unroll
        for (int n = 0; n < TURNS; n++)
            product_of_tiles<BF16, STEPS, true, true>(Y, across(v, n), across(k, n), true);
        products_commit();
        products_wait<0>();
        hold(Y);
        look_at(finite, Y);
        store(Y, turn, q);
        if (brings()) load_pairs(turn + STAGES);
        __syncwarp();
    }
    __device__ __forceinline__ void run()
    {
        Coming coming;
        if (brings()) load_pairs(0), load_queries(0);
        __syncwarp();
        begin_gates<true>(&within(), coming);
        if (brings()) load_pairs(1), load_queries(1); /* behind all that is needed first */
        __syncwarp();
#pragma unroll 1
        for (int turn = 0; has(turn); turn++) run_turn(turn, coming);
        if (PIECES && brings()) stores_publish();
        if (!PIECES || args.S_final.data) __threadfence(); /* before another block may run the head anew */
    }
};

/* `steps` is the same problem in the loop's order, cut for this block. */
template <bool PIECES, bool BOTH>
__global__ void __launch_bounds__(GROUPS *THREADS, 1)
    chain_kernel(const __grid_constant__ rl_tiles_args args, const __grid_constant__ rl_attention_args steps)
{
    if constexpr (HAS_PRODUCTS) {
        char *const shared = (char *)dynamic_shared;
        let_later_start();
        if (threadIdx.x == 0) Chain<Layout>::make_barriers(shared);
        cluster_meet(); /* the barriers are there */
        await_earlier();
        Answers<PIECES, BOTH> answers(args, shared);
        answers.run();
        int bad = __syncthreads_or(answers.unwelcome || answers.finite != 0);
        if (threadIdx.x == 0) bad = answers.gather_marks(bad);
        if (answers.rank > 0 || !__syncthreads_or(bad)) return;
        for (int64_t slab = 0; slab < steps.in.slabs; slab++)
            attention::walk_slab<float, RL_ATTENTION_NARROW_ROWS, 1>(steps, answers.walk, slab, true,
                                                                     (float *)shared);
    }
}

} // namespace

const void *rl_tiles_chain_kernel(bool pieces, bool both)
{
    if (pieces)
        return both ? kernel_address<chain_kernel<true, true>>() : kernel_address<chain_kernel<true, false>>();
    return both ? kernel_address<chain_kernel<false, true>>() : kernel_address<chain_kernel<false, false>>();
}

size_t rl_tiles_chain_shared(void)
{
    return Layout::BYTES;
}
