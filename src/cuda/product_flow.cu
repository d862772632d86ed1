/*
 * Products by parts (product_parts.cuh) of float32 rows that the copy engine can bring, with weights that stay in
 * shared memory.
 *
 *     warps 8, 9:    one thread for each group brings stages, of 64 rows by 32 numbers each, swizzled: of each of the
 *                    group's tiles the chunks of a, then what is added to the tile
 *     groups 0, 1:   take a stage into registers and split it, while the units multiply the chunk before; at a tile's
 *                    end they add what is to be added, and store
 *
 * A group has tiles and stages of its own, so that one stores while the other multiplies.
 */
#include <machine/barriers.cuh>
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_flow.h"
#include "product_parts_tile.cuh"

using namespace product_parts;

namespace
{

constexpr int GROUPS = RL_FLOW_GROUPS, STAGE_LINE = CHUNK * sizeof(float);
constexpr int MULTIPLYING = GROUPS * 128, THREADS = MULTIPLYING + 128;
constexpr int BARRIERS = 1024; /* bytes */

/* Stages are where product_parts.cuh has what is on its way; behind the slots come the barriers. */
template <int B_PARTS, int COLUMNS, Number NUMBER> using FlowWay = Way<float, 2, B_PARTS, GROUPS, COLUMNS, 4, NUMBER>;

/* The stages of one group. */
template <typename Way> struct Stages {
    static constexpr int COUNT = Way::STAGES;

    unsigned char *bytes;
    uint64_t *full, *empty;
    int stage, parity;

    __device__ explicit Stages(int group, int chunks) : stage(0), parity(0)
    {
        bytes = dynamic_shared + group * COUNT * Way::STAGE;
        full = (uint64_t *)(dynamic_shared + Way::FEED + Way::SCALE_BYTES + chunks * Way::SLOT) + group * 2 * COUNT;
        empty = full + COUNT;
    }
    __device__ void init() const
    {
        for (int i = 0; i < COUNT; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 4);
        }
    }
    __device__ unsigned char *here() const
    {
        return bytes + stage * Way::STAGE;
    }
    __device__ void next()
    {
        if (++stage < COUNT) return;
        stage = 0;
        parity ^= 1;
    }
};

/* The tiles that a group has, one after the other. */
struct Walk {
    int64_t row0, step; /* the first one's first row; from tile to tile */
    int tiles, chunks;

    __device__ Walk(const rl_product_args &p, int rows, int group)
    {
        const int64_t first = blockIdx.x / p.column_blocks, stride = p.blocks / p.column_blocks;
        row0 = first * rows + group * TILE;
        step = stride * rows;
        tiles = p.rows > row0 ? (int)((p.rows - row0 + step - 1) / step) : 0;
        chunks = (int)((p.inner + CHUNK - 1) / CHUNK);
    }
};

template <typename Way> __device__ void bring(const rl_product_flow_args &args, int group)
{
    const rl_product_args &p = args.product;
    const Walk walk(p, Way::ROWS, group);
    const int column0 = (int)(blockIdx.x % p.column_blocks) * Way::COLUMNS;
    const int added = p.add.data ? ((int)min(p.columns - column0, (int64_t)Way::COLUMNS) + CHUNK - 1) / CHUNK : 0;
    Stages<Way> stages(group, walk.chunks);
    for (int tile = 0; tile < walk.tiles; tile++) {
        const int row = (int)(walk.row0 + tile * walk.step);
        for (int i = 0; i < walk.chunks + added; i++) {
            const bool adds = i >= walk.chunks;
            barrier_wait(stages.empty + stages.stage, stages.parity ^ 1);
            barrier_expect(stages.full + stages.stage, Way::STAGE);
            tile_load(stages.here(), adds ? args.add : args.a,
                      {adds ? column0 + (i - walk.chunks) * CHUNK : i * CHUNK, row, 0}, stages.full + stages.stage);
            stages.next();
        }
    }
}

template <typename Way> struct Group : Tile<Way> {
    using Of = Tile<Way>;
    using Of::p, Of::row0, Of::column0, Of::total, Of::most, Of::lane, Of::warp;
    static constexpr int COLUMNS = Way::COLUMNS, WORDS = 2 * Way::A_PARTS;

    Stages<Way> stages;
    Walk walk;
    int line; /* of the thread in a stage: bytes */

    __device__ Group(const rl_product_args &p, int group)
        : Of(p), stages(group, (int)((p.inner + CHUNK - 1) / CHUNK)), walk(p, Way::ROWS, group)
    {
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        line = (16 * warp + lane / 4) * STAGE_LINE;
    }

    /* The thread's 16 bytes of a half's row: lines of 128 bytes are swizzled by their number. */
    __device__ Quad<float> unit(int half, int number) const
    {
        const unsigned char *from = stages.here() + line + half * (8 * STAGE_LINE);
        return *(const Quad<float> *)(from + ((number ^ lane / 4) * UNIT));
    }
    __device__ void await() const
    {
        barrier_wait(stages.full + stages.stage, stages.parity);
    }
    __device__ void release()
    {
        __syncwarp();
        if (lane == 0) barrier_arrive(stages.empty + stages.stage);
        stages.next();
    }

    __device__ void take(uint32_t (&words)[WORDS][4], float (&down)[2])
    {
        float value[COUNT];
        await();
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const Quad<float> four = unit(i / MINE, lane % 4 * 2 + i % MINE / 4);
#pragma unroll
            for (int j = 0; j < 4; j++) value[i + j] = four.get(j);
        }
        release();
        split_rows<Way>(value, words, down);
    }

    /* The units' registers are left alone while they work: else the compiler has one product wait for the other. */
    __device__ void multiply_all(float (&sum)[COLUMNS / 2])
    {
        uint32_t words[WORDS][4], later[WORDS][4];
        float down[2], later_down[2] = {};
        take(words, down);
#pragma unroll 1
        for (int chunk = 0; chunk < walk.chunks; chunk++) {
            hold(sum);
            hold(words);
            products_fence();
            multiply<Way>(sum, words, chunk, !Way::ROUNDS && chunk > 0);
            products_commit();
            if (chunk + 1 < walk.chunks) take(later, later_down);
            products_wait<0>();
            hold(sum);
            hold(words);
            if constexpr (Way::ROUNDS) {
#pragma unroll
                for (int i = 0; i < COLUMNS / 2; i++) total[i] = fmaf(sum[i], down[i / 2 % 2], total[i]);
                for (int half = 0; half < 2; half++) most[half] = fmaxf(most[half], down[half]);
            }
#pragma unroll
            for (int i = 0; i < WORDS * 4; i++) words[i / 4][i % 4] = later[i / 4][i % 4];
            for (int half = 0; half < 2; half++) down[half] = later_down[half];
        }
    }

    __device__ void add_stages()
    {
#pragma unroll
        for (int first = 0; first < COLUMNS; first += CHUNK) {
            if (column0 + first >= p.columns) break;
            await();
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (first + i * 16 >= COLUMNS) continue;
                    const Quad<float> more = unit(half, 4 * i + lane % 4);
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        total[first / 2 + i * 8 + k / 2 * 4 + 2 * half + k % 2] += more.get(k);
                }
            release();
        }
    }

    __device__ void run()
    {
        float sum[Way::ROUNDS ? COLUMNS / 2 : 1] = {};
        row0 = walk.row0;
        for (int tile = 0; tile < walk.tiles; tile++, row0 += walk.step) {
            this->clear();
            if constexpr (Way::ROUNDS)
                multiply_all(sum);
            else
                multiply_all(total);
            this->make_right();
            if (p.add.data) add_stages();
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (this->row_of(half) < p.rows) this->template store_fours<false>(this->row_of(half), half);
        }
    }
};

/* The weights' planes, by those who will multiply. */
template <typename Way> __device__ inline void fill_slots(const rl_product_args &p, int chunks)
{
    fill_planes<Way>(p, blockIdx.x % p.column_blocks * Way::COLUMNS, chunks, chunks);
    shared_publish();
    barrier_meet<1, MULTIPLYING>();
}

template <typename Way> __device__ inline void run_block(const rl_product_flow_args &args)
{
    const rl_product_args &p = args.product;
    const int chunks = (int)((p.inner + CHUNK - 1) / CHUNK), group = threadIdx.x / 128;
    if (p.A && blockIdx.x >= p.A_block) make_A(p, p.A_block);
    if (blockIdx.x >= p.blocks) return;
    if (threadIdx.x < GROUPS) Stages<Way>(threadIdx.x, chunks).init();
    barrier_publish();
    __syncthreads();
    if (group == GROUPS) {
        registers_lower<40>();
        const int warp = threadIdx.x / 32 % 4;
        if (warp < GROUPS && threadIdx.x % 32 == 0) bring<Way>(args, warp);
        return;
    }
    registers_raise<232>();
    fill_slots<Way>(p, chunks);
    Group<Way>(p, group).run();
}

template <typename Way>
__global__ void __launch_bounds__(THREADS, 1) flow_kernel(const __grid_constant__ rl_product_flow_args args)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) run_block<Way>(args);
}

template <typename Way> bool pick(int64_t inner, rl_product_kernel_of *kernel)
{
    const int64_t chunks = (inner + CHUNK - 1) / CHUNK;
    const int64_t bytes = Way::FEED + Way::SCALE_BYTES + chunks * Way::SLOT + BARRIERS;
    *kernel = {kernel_address<flow_kernel<Way>>(), (int32_t)bytes, THREADS, Way::ROWS, Way::COLUMNS};
    return bytes <= ROOM;
}

} // namespace

bool rl_product_flow_kernel(rl_parts_way way, int64_t inner, int64_t columns, rl_product_kernel_of *kernel)
{
    if (way == RL_PARTS_ROUGH_BF16)
        return (columns > 128 && pick<FlowWay<1, 256, BF16>>(inner, kernel)) ||
               pick<FlowWay<1, 128, BF16>>(inner, kernel);
    if (way != RL_PARTS_EXACT) return false;
    return (columns % 144 == 0 && pick<FlowWay<2, 144, F16>>(inner, kernel)) ||
           pick<FlowWay<2, 128, F16>>(inner, kernel);
}
