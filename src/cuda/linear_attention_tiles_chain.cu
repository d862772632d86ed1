/*
 * Linear attention of bfloat16 data by chunks, of all heads at once: y in one kernel (linear_attention_tiles.h).
 *
 *     cluster   = a head
 *     warpgroup = every so many-th chunk of it: the warpgroups of a block, and then those of the next, take turns
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t  +  Vᵀ Pᵀ        Pᵀ = K Qᵀ · D_tj β_j         y = scale Yᵀ
 *     Sᵀ = Sᵀ · b_64  +  (Vᵀ · e_j β_j) K
 *
 * with S the state that enters, b and e the products of gates from the chunk's begin and to its end.  What a chunk
 * adds to the state, and P, are had before the state that enters is there.  It comes by a mailbox in shared memory,
 * thread by thread from the warpgroup of the chunk before, and is handed on at once: all else of a chunk has the time
 * of a whole turn.  S meets products as the sum of two bfloat16 numbers; so do the weighed values where S_final is
 * wanted.  A head is marked, to be run in the loop's order, where gates grow, or fade beside large numbers, or
 * something is not finite.
 */
#include <machine/barriers.cuh>
#include <machine/cluster.cuh>
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_tiles_chunk.cuh"
#include "linear_attention_tiles_link.cuh"

namespace
{

using namespace attention_tiles;

constexpr int GROUPS = RL_TILES_CHAIN_GROUPS, STAGES = 2, WARPS = THREADS / 32;

struct Layout {
    static constexpr int Q = 0, K = TILE, V = 2 * TILE, STAGE = 3 * TILE, MAIL = GROUPS * STAGES * STAGE;
    static constexpr int WITHIN = MAIL + WIDE * WIDE * (int)sizeof(float);
    static constexpr int LINKS = WITHIN + GROUPS * (int)sizeof(Within);
    static constexpr int FULL = LINKS + GROUPS * STAGES * (int)sizeof(Link), POSTED = FULL + GROUPS * STAGES * 8;
    static constexpr int MARKS = POSTED + GROUPS * WARPS * 8,
                         BYTES = MARKS + RL_TILES_CHAIN_MOST_BLOCKS * (int)sizeof(int);
};
static_assert(Layout::BYTES <= 227 * 1024, "what a block may have");

/* PIECES: y is stored by the copy engine.  BOTH: weighed values are split. */
template <bool PIECES, bool BOTH> struct Chain {
    const rl_tiles_args &tiles;
    const rl_floats_args &args;
    char *const shared;
    const int rank, blocks, walk, sequence, head, group;
    const Place own;
    const Span span;
    const int chunks;
    float finite;
    bool unwelcome;

    __device__ Chain(const rl_tiles_args &tiles, char *shared)
        : tiles(tiles), args(tiles.all), shared(shared), rank(cluster_rank()), blocks(cluster_blocks()),
          walk(blockIdx.x / (unsigned)blocks), sequence((unsigned)walk / (unsigned)args.in.heads),
          head((unsigned)walk - (unsigned)sequence * (unsigned)args.in.heads),
          group(__shfl_sync(ALL, (int)threadIdx.x / THREADS, 0)), span(args.in, sequence),
          chunks((int)((args.in.length + STEPS - 1) / STEPS)), finite(0), unwelcome(false)
    {
    }
    __device__ __forceinline__ int chunk_of(int turn) const
    {
        return (turn * blocks + rank) * GROUPS + group;
    }
    __device__ __forceinline__ char *stage(int turn) const
    {
        return shared + (group * STAGES + turn % STAGES) * Layout::STAGE;
    }
    __device__ __forceinline__ uint64_t *full(int turn) const
    {
        return (uint64_t *)(shared + Layout::FULL) + group * STAGES + turn % STAGES;
    }
    __device__ __forceinline__ uint64_t *posted(int group) const
    {
        return (uint64_t *)(shared + Layout::POSTED) + group * WARPS + own.warp();
    }
    __device__ __forceinline__ Link &link(int turn) const
    {
        return ((Link *)(shared + Layout::LINKS))[group * STAGES + turn % STAGES];
    }
    __device__ __forceinline__ Within &within() const
    {
        return ((Within *)(shared + Layout::WITHIN))[group];
    }
    __device__ __forceinline__ void meet() const
    {
        barrier_meet_numbered(1 + group, THREADS);
    }
    __device__ __forceinline__ bool brings() const
    {
        return own.thread == 0;
    }
    /* Makes gates, besides those whose mixing is least. */
    __device__ __forceinline__ bool has_step() const
    {
        return own.thread >= THREADS - STEPS;
    }
    __device__ __forceinline__ int step() const
    {
        return own.thread - (THREADS - STEPS);
    }

    /* Inputs, by one thread; q apart, whose place y takes. */
    __device__ __forceinline__ void load(int turn) const
    {
        const int chunk = chunk_of(turn), query_head = (unsigned)head / (unsigned)args.in.share;
        if (chunk >= chunks) return;
        barrier_expect(full(turn), Layout::STAGE);
        tile_load(stage(turn) + Layout::K, tiles.k, HeadTileAt{0, chunk * STEPS, query_head, sequence}, full(turn));
        tile_load(stage(turn) + Layout::V, tiles.v, HeadTileAt{0, chunk * STEPS, head, sequence}, full(turn));
    }
    __device__ __forceinline__ void load_queries(int turn) const
    {
        const int chunk = chunk_of(turn), query_head = (unsigned)head / (unsigned)args.in.share;
        if (chunk >= chunks) return;
        if (PIECES) stores_wait<0>();
        tile_load(stage(turn) + Layout::Q, tiles.q, HeadTileAt{0, chunk * STEPS, query_head, sequence}, full(turn));
    }
    __device__ __forceinline__ void start_gates(int turn, const Coming &coming) const
    {
        const int64_t step = (int64_t)chunk_of(turn) * STEPS + this->step();
        start_link(link(turn), within(), args.in, coming, step < span.count, step, this->step());
    }
    __device__ __forceinline__ void load_gates(int turn, Coming &coming) const
    {
        coming.load(args.in, span, head, (int64_t)chunk_of(turn) * STEPS + step());
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

    /* States */

    __device__ __forceinline__ void take_state(float (&S)[32], int turn, int chunk) const
    {
        if (chunk > 0) {
            barrier_wait_mates(posted(group), (turn - (rank == 0 && group == 0)) & 1);
            const float4 *const mail = (const float4 *)(shared + Layout::MAIL) + own.thread;
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                const float4 four = mail[i / 4 * THREADS];
                S[i] = four.x, S[i + 1] = four.y, S[i + 2] = four.z, S[i + 3] = four.w;
            }
            return;
        }
        clear(S);
        if (!args.in.S_init.data) return;
#pragma unroll
        for (int i = 0; i < 32; i++)
            S[i] = attention_floats::state_number<WIDE>(args.in.S_init, args.in, walk,
                                                        i / 4 * 8 + own.pair() * 2 + i % 2, own.row(i / 2 % 2));
        store_state(args.S + (int64_t)walk * (WIDE * WIDE), S, own);
    }
    /* T: what the chunk adds. */
    __device__ __forceinline__ void hand_on(const float (&S)[32], const float (&T)[32], const Link &g) const
    {
        const float first = g.carried[0], second = g.carried[1];
        const int next = group + 1 < GROUPS ? group + 1 : 0;
        const bool leaves = next == 0 && blocks > 1;
        const int mate = leaves ? (rank + 1 < blocks ? rank + 1 : 0) : rank;
        float4 *const mail = (float4 *)(shared + Layout::MAIL) + own.thread;
        const MateAddress away = mate_address(mail, mate);
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const float4 four = {attention_floats::passed(first, second, S[i], T[i]),
                                 attention_floats::passed(first, second, S[i + 1], T[i + 1]),
                                 attention_floats::passed(first, second, S[i + 2], T[i + 2]),
                                 attention_floats::passed(first, second, S[i + 3], T[i + 3])};
            if (leaves)
                mate_store(away, i / 4 * THREADS * (int)sizeof(float4), four);
            else
                mail[i / 4 * THREADS] = four;
        }
        __syncwarp(); /* all of the warp's part is there */
        if (own.thread % 32 == 0) mate_arrive(mate_address(posted(next), mate));
    }
    __device__ __forceinline__ void finish_state(const float (&S)[32], const float (&T)[32], const Link &g)
    {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float last = attention_floats::passed(g.carried[0], g.carried[1], S[i], T[i]);
            finite = fmaf(last, 0.0f, finite);
            attention_floats::store_state_number(args.S_final, args.in, walk, i / 4 * 8 + own.pair() * 2 + i % 2,
                                                 own.row(i / 2 % 2), last);
        }
    }
    __device__ __forceinline__ void read_state(float (&Y)[32], const float (&S)[32], const char *q) const
    {
        hold(Y);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t high[TURNS / 2][4], low[TURNS / 2][4];
#pragma unroll
            for (int i = 0; i < TURNS * 2; i++) {
                const int at = half * 16 + 2 * i;
                split(S[at], S[at + 1], high[i / 4][i % 4], low[i / 4][i % 4]);
            }
            hold(high);
            hold(low);
            products_fence();
#pragma unroll
            for (int turn = 0; turn < TURNS / 2; turn++) {
                const uint64_t keys = along(q, half * (TURNS / 2) + turn);
                product_of_registers<BF16, STEPS, false>(Y, high[turn], keys, half + turn > 0);
                product_of_registers<BF16, STEPS, false>(Y, low[turn], keys, true);
            }
            products_commit();
            products_wait<0>();
            hold(high);
            hold(low);
        }
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
    __device__ __forceinline__ void store(const float (&Y)[32], int chunk, char *rows) const
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
                tile_store(tiles.y, HeadTileAt{0, chunk * STEPS, head, sequence}, rows);
                stores_commit();
            }
        } else {
            const rl_attention_view &y = args.y;
            const int64_t base = span.at(y, head, (int64_t)chunk * STEPS);
            const int64_t left = span.count - (int64_t)chunk * STEPS;
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int step = i / 4 * 8 + own.pair() * 2 + i % 2, value = own.row(i / 2 % 2);
                if (step < left && value < args.in.values)
                    store_any(y.data, y.dtype, base + step * y.step + value * y.lane, Y[i]);
            }
            meet(); /* the stage is no longer needed */
        }
    }
    /* Whether products may not be used; of all threads together.  S as 0, before it is known. */
    __device__ __forceinline__ bool is_unwelcome(const Link &g, char *q) const
    {
        if (!g.steady) return true;
        if (!g.fades) return false;
        return g.weighs[0] || g.weighs[1] || exceeds(q + Layout::Q) || exceeds(q + Layout::K) ||
               exceeds(q + Layout::V);
    }
    /* What the chunk adds to a state, and Pᵀ. */
    __device__ __forceinline__ void multiply(float (&T)[32], float (&P)[32], const Link &g, char *tiles) const
    {
        Addition<BOTH> addition;
        addition.prepare(tiles + Layout::V, g.sum_weight, own);
        clear(T);
        addition.start(T, tiles + Layout::K);
        hold(P);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(P, along(tiles + Layout::K, turn),
                                                        along(tiles + Layout::Q, turn), turn > 0);
        products_commit();
        products_wait<0>();
        addition.stay();
        hold(T);
        hold(P);
    }
    __device__ __forceinline__ void run_turn(int turn, int chunk, Coming &coming)
    {
        char *const q = stage(turn) + Layout::Q, *const k = stage(turn) + Layout::K,
                    *const v = stage(turn) + Layout::V;
        const Link &g = link(turn);
        const bool goes_on = chunk_of(turn + 1) < chunks;
        float Y[32];
        {
            float T[32], S[32];
            uint32_t words[BLOCKS / 2][4];
            barrier_wait(full(turn), turn / STAGES & 1);
            unwelcome = is_unwelcome(g, q) || unwelcome;
            {
                float P[32];
                multiply(T, P, g, stage(turn));
                if (brings() && turn > 0) load_queries(turn + 1);
                __syncwarp(); /* the engine is told by registers that a warp's threads share */
                mix(words, P, g);
            }
            meet(); /* k is no longer needed, nor the products within blocks */
#pragma unroll
            for (int block = 0; block < BLOCKS; block += 2)
                matrices_store<4, false>(blocks_at(k, own, block, false), words[block / 2]);
            shared_publish();
            if (goes_on && has_step()) start_gates(turn + 1, coming);
            take_state(S, turn, chunk);
            if (g.fades) unwelcome = unwelcome || exceeds(S);
            if (chunk + 1 < chunks)
                hand_on(S, T, g);
            else if (args.S_final.data)
                finish_state(S, T, g);
            read_state(Y, S, q);
        }
        decay(Y, g);
        meet(); /* P is there, and q no longer needed; so are the gates' blocks */
        if (goes_on && has_step()) {
            finish_link(link(turn + 1), (float)args.in.scale, step());
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
        store(Y, chunk, q);
        if (brings()) load(turn + STAGES);
        __syncwarp();
    }
    __device__ __forceinline__ void run()
    {
        Coming coming;
        if (brings())
            for (int turn = 0; turn < STAGES; turn++) load(turn), load_queries(turn);
        __syncwarp();
        if (has_step()) {
            load_gates(0, coming);
            start_gates(0, coming);
            load_gates(1, coming);
        }
        meet(); /* what the blocks multiply to is there */
        if (has_step()) finish_link(link(0), (float)args.in.scale, step());
        meet(); /* the gates are there */
#pragma unroll 1
        for (int turn = 0; chunk_of(turn) < chunks; turn++) run_turn(turn, chunk_of(turn), coming);
        if (PIECES && brings()) stores_wait<0>();
    }
};

template <bool PIECES, bool BOTH>
__global__ void __launch_bounds__(GROUPS *THREADS, 1) chain_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        char *const shared = (char *)dynamic_shared;
        let_later_start();
        if (threadIdx.x == 0) {
            for (int i = 0; i < GROUPS * STAGES; i++) barrier_init((uint64_t *)(shared + Layout::FULL) + i, 1);
            for (int i = 0; i < GROUPS * WARPS; i++) barrier_init((uint64_t *)(shared + Layout::POSTED) + i, 1);
            barrier_publish();
        }
        cluster_meet(); /* the barriers are there */
        await_earlier();
        Chain<PIECES, BOTH> chain(args, shared);
        chain.run();
        const int bad = __syncthreads_or(chain.unwelcome || chain.finite != 0);
        int *const marks = (int *)(shared + Layout::MARKS);
        if (threadIdx.x == 0) mate_store(mate_address(marks + chain.rank, 0), bad);
        cluster_meet(); /* all marks are there */
        if (chain.rank > 0 || threadIdx.x > 0) return;
        int any = 0;
        for (int i = 0; i < chain.blocks; i++) any |= marks[i];
        args.all.marks.all[chain.walk] = any;
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
