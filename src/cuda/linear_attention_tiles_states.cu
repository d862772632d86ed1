/*
 * Linear attention of bfloat16 data by chunks: the state that enters each chunk, and the gradient that enters it from
 * behind, rounded to bfloat16, as tiles [values, keys] that the gradients' kernel reads (linear_attention_tiles.h).
 *
 *     cluster = a head, in one direction of time (linear_attention_tiles_chain.cuh)
 *
 *     Sᵀ = Sᵀ · b_64  +  (Vᵀ · e_j β_j) K            Gᵀ = Gᵀ · b_64  +  (dYᵀ · scale b_t) Q
 *
 * BOTH: weighed values are split, as dS_init wants it.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_tiles_chain.cuh"

namespace
{

using namespace attention_tiles;

struct Layout : ChainLayout<2, 3, Gates> {
    static constexpr int RIGHT = 0, LEFT = TILE, READY = (END + 7) / 8 * 8, FREED = READY + GROUPS * 2 * 8;
    static constexpr int BYTES = FREED + GROUPS * 2 * 8;
};
static_assert(Layout::BYTES <= 227 * 1024, "what a block may have");

template <bool BOTH> struct States : Chain<Layout> {
    __device__ States(const rl_tiles_args &tiles, char *shared)
        : Chain<Layout>(tiles, shared, blockIdx.x / (unsigned)cluster_blocks() / 2,
                        blockIdx.x / (unsigned)cluster_blocks() % 2)
    {
    }
    /* Of a group's gates of a turn, and of what the turn had. */
    __device__ __forceinline__ uint64_t *ready(int group, int turn) const
    {
        return (uint64_t *)(shared + Layout::READY) + group * 2 + turn % 2;
    }
    __device__ __forceinline__ uint64_t *freed(int group, int turn) const
    {
        return (uint64_t *)(shared + Layout::FREED) + group * 2 + turn % 2;
    }
    __device__ static void make_barriers(char *shared)
    {
        for (int i = 0; i < GROUPS * 4; i++) barrier_init((uint64_t *)(shared + Layout::READY) + i, 1);
        Chain<Layout>::make_barriers(shared);
    }
    /* By one thread. */
    __device__ __forceinline__ void load_pair(int turn) const
    {
        if (!has(turn)) return;
        barrier_expect(full(turn), Layout::STAGE);
        load(stage(turn) + Layout::RIGHT, back ? tiles.q : tiles.k, query_head(), turn);
        load(stage(turn) + Layout::LEFT, back ? tiles.dy : tiles.v, head, turn);
    }
    /* The first stages' tiles into the L2 cache: before earlier work is done, as the cache sees what it writes. */
    __device__ __forceinline__ void bring_near() const
    {
        if (!brings() || group >= GROUPS) return;
        for (int turn = 0; turn < STAGES && has(turn); turn++) {
            tile_bring_near(back ? tiles.q : tiles.k, HeadTileAt{0, first(turn), query_head(), sequence});
            tile_bring_near(back ? tiles.dy : tiles.v, HeadTileAt{0, first(turn), head, sequence});
        }
    }
    /* The state that entered, by way of the tile that it takes the place of. */
    __device__ __forceinline__ void give_out(const float (&S)[32], int turn) const
    {
        char *const tile = stage(turn) + Layout::RIGHT;
#pragma unroll
        for (int block = 0; block < BLOCKS; block += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int at = (block + k / 2) * 4 + k % 2 * 2;
                words[k] = pack_bfloats(S[at], S[at + 1]);
            }
            matrices_store<4, false>(blocks_at(tile, own, block, false), words);
        }
        shared_publish();
        meet(); /* the tile is there, and the gates are no longer needed */
        if (brings()) {
            barrier_arrive(freed(group, turn));
            char *const to = (char *)(back ? args.G : args.S);
            bytes_store(to + ((int64_t)walk * chunks + first(turn) / STEPS) * TILE, tile, TILE);
            stores_commit();
        }
        __syncwarp();
    }
    __device__ __forceinline__ void run_turn(int turn)
    {
        const Gates &g = link(turn);
        float T[32], S[32];
        expect_state(turn);
        barrier_wait(ready(group, turn), turn / 2 & 1);
        barrier_wait(full(turn), turn / STAGES & 1);
        Addition<BOTH> addition;
        addition.prepare(stage(turn) + Layout::LEFT, back ? g.back_weight : g.sum_weight, own);
        clear(T);
        addition.start(T, stage(turn) + Layout::RIGHT);
        products_wait<0>();
        addition.stay();
        hold(T);
        meet(); /* the tiles are no longer needed */
        if (brings() && turn > 0) {
            stores_wait<0>(); /* of the stage that is filled */
            load_pair(turn - 1 + STAGES);
        }
        __syncwarp(); /* the engine is told by registers that a warp's threads share */
        if (place(turn) > 0)
            take_state(S, turn);
        else
            begin_state(S, back ? args.dS_final : args.in.S_init);
        if (place(turn) + 1 < chunks)
            hand_on(S, T, g);
        else if (back)
            end_state(S, T, g, args.dS_init);
        give_out(S, turn);
    }
    __device__ __forceinline__ void run()
    {
        if (brings())
            for (int turn = 0; turn < STAGES; turn++) load_pair(turn);
        __syncwarp();
#pragma unroll 1
        for (int turn = 0; has(turn); turn++) run_turn(turn);
        if (brings()) stores_wait<0>();
    }
};

/* A warp that makes the gates of a group, a turn ahead of it. */
template <bool BOTH> struct Gatekeeper : States<BOTH> {
    using Base = States<BOTH>;
    const int kept; /* the group */

    __device__ Gatekeeper(const rl_tiles_args &tiles, char *shared)
        : Base(tiles, shared), kept((int)threadIdx.x % THREADS / 32)
    {
    }
    __device__ __forceinline__ int place(int turn) const
    {
        return (turn * Base::blocks + Base::rank) * GROUPS + kept;
    }
    /* The lane's step of each half of the chunk. */
    __device__ __forceinline__ void load(Coming (&coming)[HALVES], int turn) const
    {
        const int lane = (int)threadIdx.x % 32;
        const int64_t first = (int64_t)(Base::back ? Base::chunks - 1 - place(turn) : place(turn)) * STEPS;
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            coming[half].load(Base::args.in, Base::span, Base::head,
                              place(turn) < Base::chunks ? first + half * 32 + lane : Base::span.count);
    }
    /* By one thread: to the kernel of gradients. */
    __device__ __forceinline__ void give_out(const Gates &gates, int chunk) const
    {
        char *const to = (char *)Base::tiles.gates;
        bytes_store(to + ((int64_t)Base::walk * Base::chunks + chunk) * (int)sizeof(Gates), &gates, sizeof gates);
        stores_commit();
    }
    __device__ __forceinline__ void run() const
    {
        const int lane = (int)threadIdx.x % 32;
        Coming coming[HALVES];
        load(coming, 0);
#pragma unroll 1
        for (int turn = 0; place(turn) < Base::chunks; turn++) {
            Gates &to = ((Gates *)(Base::shared + Layout::LINKS))[kept * 2 + turn % 2];
            const int chunk = Base::back ? Base::chunks - 1 - place(turn) : place(turn);
            const int64_t first = (int64_t)chunk * STEPS;
            if (turn > 1) barrier_wait(Base::freed(kept, turn), (turn / 2 - 1) & 1);
            if (lane == 0) stores_wait<1>();
            __syncwarp(); /* nothing reads the gates of two turns ago */
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                const int step = half * 32 + lane;
                attention_tiles::start_gates(to, Base::args.in, coming[half], first + step < Base::span.count,
                                             first + step, step);
            }
            load(coming, turn + 1);
            __syncwarp(); /* what the blocks multiply to is there */
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                attention_tiles::finish_gates(to, (float)Base::args.in.scale, half * 32 + lane);
            if (!Base::back) shared_publish();
            __syncwarp(); /* the gates are there */
            if (lane == 0) {
                barrier_arrive(Base::ready(kept, turn));
                if (!Base::back) give_out(to, chunk);
            }
        }
        if (lane == 0) stores_wait<0>();
    }
};

template <bool BOTH>
__global__ void __launch_bounds__((GROUPS + 1) * THREADS, 1) states_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        char *const shared = (char *)dynamic_shared;
        let_later_start();
        if (threadIdx.x == 0) States<BOTH>::make_barriers(shared);
        cluster_meet(); /* the barriers are there */
        States<BOTH> states(args, shared);
        states.bring_near();
        __syncwarp(); /* the engine is told by registers that a warp's threads share */
        await_earlier();
        if (states.group < GROUPS)
            states.run();
        else
            Gatekeeper<BOTH>(args, shared).run();
        const int bad = __syncthreads_or(states.finite != 0);
        if (threadIdx.x > 0) return;
        const int any = states.gather_marks(bad);
        if (states.rank == 0) (states.back ? args.all.marks.special : args.all.marks.all)[states.walk] = any;
    }
}

} // namespace

const void *rl_tiles_states_kernel(bool both)
{
    return both ? kernel_address<states_kernel<true>>() : kernel_address<states_kernel<false>>();
}

size_t rl_tiles_states_shared(void)
{
    return Layout::BYTES;
}
