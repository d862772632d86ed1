/* The tiles of products by parts: product_parts.cuh tells how. */
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_parts_tile.cuh"

using namespace product_parts;

namespace
{

template <typename Way> struct Group : Tile<Way> {
    using Of = Tile<Way>;
    using Of::p, Of::row0, Of::column0, Of::total, Of::most;
    static constexpr int COLUMNS = Way::COLUMNS, SLOTS = Way::SLOTS, HALF = SLOTS / 2;

    Feed<Way> feed;

    __device__ explicit Group(const rl_product_args &p) : Of(p), feed(p)
    {
    }

    /* The units' registers are left alone while they work: else the compiler has one product wait for the other. */
    __device__ void multiply_chunk(float (&sum)[COLUMNS / 2], float (&down)[2], int slot, bool adds)
    {
        uint32_t words[2 * Way::A_PARTS][4];
        feed.take(words, down);
        feed.fetch();
        hold(sum);
        hold(words);
        products_fence();
        multiply<Way>(sum, words, slot, adds);
        products_commit();
        products_wait<0>();
        hold(sum);
        hold(words);
    }

    __device__ void add_chunk(int64_t chunk, int slot)
    {
        float down[2];
        if constexpr (Way::ROUNDS) {
            float sum[COLUMNS / 2];
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
            multiply_chunk(sum, down, slot, false);
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) total[i] = fmaf(sum[i], down[i / 2 % 2], total[i]);
            for (int half = 0; half < 2; half++) most[half] = fmaxf(most[half], down[half]);
        } else {
            multiply_chunk(total, down, slot, chunk > 0);
        }
    }

    /* The first chunks of b: all that there are, or half of the slots. */
    __device__ bool begin_slots() const
    {
        const bool kept = feed.chunks <= SLOTS;
        const int chunks = kept ? (int)feed.chunks : HALF;
        fill_planes<Way>(p, column0, feed.chunks, chunks);
        publish();
        return kept;
    }

    /* Makes what was split known to the units, and to all of the block. */
    __device__ void publish() const
    {
        shared_publish();
        __syncthreads(); /* slots that come next are complete, and nobody multiplies with those before any more */
    }

    /* Where b has too few slots, half of them are filled while the other half is used; `left` chunks of all tiles. */
    __device__ void run_ring(int &left, int &slot)
    {
        for (int chunk = 0; chunk < feed.chunks; chunk++) {
            const int later = chunk + HALF < feed.chunks ? chunk + HALF : chunk + HALF - feed.chunks;
            const bool more = left > HALF;
            Split<Way> split;
            if (more) split.fetch(p, column0, later);
            add_chunk(chunk, slot);
            if (more) split.put((slot + HALF) % (2 * HALF));
            left--;
            slot = (slot + 1) % (2 * HALF);
            if (slot % HALF == 0) publish();
        }
    }
};

template <typename Way> __device__ inline void run_block(const rl_product_args &p)
{
    if (p.A && blockIdx.x >= p.A_block) make_A(p, p.A_block);
    if (blockIdx.x >= p.blocks) return;
    Group<Way> group(p);
    const int64_t first = blockIdx.x / p.column_blocks, stride = p.blocks / p.column_blocks;
    const int tiles = (int)((p.row_blocks - first + stride - 1) / stride);
    int left = tiles * group.feed.chunks;
    int slot = 0;
    group.column0 = blockIdx.x % p.column_blocks * Way::COLUMNS;
    group.row0 = first * Way::ROWS + threadIdx.x / 128 * TILE;
    group.feed.start(group.row0, stride * Way::ROWS, left);
    const bool kept = group.begin_slots();
    for (int tile = 0; tile < tiles; tile++) {
        group.clear();
        group.look_ahead();
        if (!kept) group.run_ring(left, slot);
        for (int i = 0; kept && i < group.feed.chunks; i++) group.add_chunk(i, i);
        group.make_right();
        group.store();
        group.row0 += stride * Way::ROWS;
    }
}

template <typename Way>
__global__ void __launch_bounds__(Way::THREADS, 1) parts_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) run_block<Way>(p);
}

template <typename Way> rl_product_kernel_of pick(int64_t inner)
{
    const int64_t chunks = (inner + CHUNK - 1) / CHUNK, slots = chunks < Way::SLOTS ? chunks : Way::SLOTS;
    return {kernel_address<parts_kernel<Way>>(), (int32_t)(Way::FEED + Way::SCALE_BYTES + slots * Way::SLOT),
            Way::THREADS, Way::ROWS, Way::COLUMNS};
}

} // namespace

rl_product_kernel_of rl_product_parts_kernel(rl_parts_way way, int64_t inner, int64_t columns)
{
    constexpr int GROUPS = RL_PARTS_GROUPS, COLUMNS = RL_PARTS_NARROW, STAGES = 4;
    switch (way) {
    case RL_PARTS_EXACT:
        return pick<Way<float, 2, 2, GROUPS, COLUMNS, STAGES, F16>>(inner);
    case RL_PARTS_ROUGH:
        return pick<Way<float, 2, 2, GROUPS, COLUMNS, STAGES>>(inner);
    case RL_PARTS_ROUGH_BF16:
        if (columns <= RL_PARTS_SLIM) return pick<Way<float, 2, 1, 2, RL_PARTS_SLIM, 2 * STAGES>>(inner);
        return pick<Way<float, 2, 1, GROUPS, RL_PARTS_BROAD, 5>>(inner);
    case RL_PARTS_BF16:
        return pick<Way<bf16, 1, 1, GROUPS, COLUMNS, STAGES>>(inner);
    default:
        return pick<Way<f16, 1, 1, GROUPS, COLUMNS, STAGES, F16>>(inner);
    }
}
