/* The tiles of products by parts: product_parts.cuh tells how. */
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_parts.cuh"

using namespace product_parts;

namespace
{

template <typename Way, int COLUMNS> struct Group {
    using T = typename Way::T;
    static constexpr int SLOTS = PLANES / (COLUMNS * LINE * Way::B_PARTS), HALF = SLOTS / 2;
    static constexpr int WORDS = (COLUMNS / 2 + 31) / 32;

    const rl_product_args &p;
    Feed<T> feed;
    int64_t row0, column0;
    float total[COLUMNS / 2];

    __device__ explicit Group(const rl_product_args &p) : p(p), feed(p)
    {
    }

    __device__ void add_chunk(int slot)
    {
        float sum[COLUMNS / 2];
        uint32_t words[2 * Way::A_PARTS][4];
        feed.template take<Way::A_PARTS>(words);
        feed.fetch();
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
        hold(sum);
        hold(words);
        products_fence();
        multiply<Way, COLUMNS>(sum, words, slot);
        products_commit();
        products_wait<0>();
        hold(sum);
        hold(words);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) total[i] += sum[i];
    }

    /* The sum in the order of k; for what products gave that is not finite. */
    __device__ float sum_plainly(int half, int64_t column) const
    {
        const T *const row = feed.seek(row0, half);
        float sum = 0;
        const rl_product_weight &weight = weight_of(p, column);
#pragma unroll 1
        for (int64_t k = 0; k < p.inner; k++)
            sum = fmaf(widen(row[k * p.a.lane]),
                       load_any<float>(weight.data, weight.dtype, column * weight.row + k * weight.lane), sum);
        return sum;
    }

    __device__ int64_t column_of(int i) const
    {
        return column0 + i / 8 * 16 + feed.lane % 4 * 4 + i / 4 % 2 * 2 + i % 2;
    }

    __device__ void store_one(int64_t row, int64_t column, float value) const
    {
        if (p.add.data) value += ((const float *)p.add.data)[offset_of(p, p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, offset_of(p, p.out, row) + column * p.out.lane, value);
    }

    template <typename Out> __device__ void store_four(int64_t at, const Quad<float> &four) const
    {
        Quad<Out> quad = {};
#pragma unroll
        for (int j = 0; j < 4; j++) quad.set(j, narrow<Out>(four.get(j)));
        *(Quad<Out> *)((Out *)p.out.data + at) = quad;
    }

    /* Four neighbours of a row. */
    __device__ void store_neighbours(int64_t to, int64_t from, Quad<float> four) const
    {
        if (p.add.data) {
            const Quad<float> more = *(const Quad<float> *)((const float *)p.add.data + from);
#pragma unroll
            for (int j = 0; j < 4; j++) four.set(j, four.get(j) + more.get(j));
        }
        if (p.out.dtype == RILL_F32)
            store_four<float>(to, four);
        else if (p.out.dtype == RILL_BF16)
            store_four<bf16>(to, four);
        else
            store_four<f16>(to, four);
    }

    __device__ void store_rows(int half, uint32_t (&again)[WORDS]) const
    {
        const int64_t row = feed.row_of(row0, half);
        if (row >= p.rows) return;
        const int64_t to = offset_of(p, p.out, row), from = p.add.data ? offset_of(p, p.add, row) : 0;
        const bool wide = p.out.wide && p.out.dtype != RILL_F64 && (p.add.wide || !p.add.data);
#pragma unroll
        for (int i = 2 * half; i < COLUMNS / 2; i += 8) {
            const int64_t column = column_of(i);
            const Quad<float> four = {{total[i], total[i + 1], total[i + 4], total[i + 5]}};
            bool fine = wide && column + 3 < p.columns;
#pragma unroll
            for (int j = 0; j < 4; j++) fine = fine && is_finite(four.get(j));
            if (fine) {
                store_neighbours(to + column, from + column, four);
                continue;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int which = i + j / 2 * 4 + j % 2;
                if (column + j >= p.columns) continue;
                if (is_finite(four.get(j)))
                    store_one(row, column + j, four.get(j));
                else
                    again[which / 32] |= 1u << (which % 32);
            }
        }
    }

    __device__ void store() const
    {
        uint32_t again[WORDS] = {};
        store_rows(0, again);
        store_rows(1, again);
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
#pragma unroll 1
            for (uint32_t left = again[word]; left; left &= left - 1) {
                const int i = 32 * word + __ffs((int)left) - 1, half = i / 2 % 2;
                const int64_t row = feed.row_of(row0, half), column = column_of(i);
                store_one(row, column, sum_plainly(half, column));
            }
        }
    }

    /* The first chunks of b: all that there are, or half of the slots. */
    __device__ bool begin_slots() const
    {
        constexpr int TOGETHER = 4; /* on their way at a time */
        const bool kept = feed.chunks <= SLOTS;
        const int chunks = kept ? (int)feed.chunks : HALF;
        for (int first = 0; first < chunks; first += TOGETHER) {
            Split<Way, COLUMNS> split[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (first + i < chunks) split[i].fetch(p, column0, first + i);
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (first + i < chunks) split[i].put(first + i);
        }
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
    __device__ void run_ring(int64_t &left, int &slot)
    {
        for (int64_t chunk = 0; chunk < feed.chunks; chunk++) {
            const int64_t later = chunk + HALF < feed.chunks ? chunk + HALF : chunk + HALF - feed.chunks;
            const bool more = left > HALF;
            Split<Way, COLUMNS> split;
            if (more) split.fetch(p, column0, later);
            add_chunk(slot);
            if (more) split.put((slot + HALF) % (2 * HALF));
            left--;
            slot = (slot + 1) % (2 * HALF);
            if (slot % HALF == 0) publish();
        }
    }
};

template <typename Way, int COLUMNS> __device__ inline void run_block(const rl_product_args &p)
{
    if (p.A && blockIdx.x >= p.A_block) make_A(p, p.A_block);
    if (blockIdx.x >= p.blocks) return;
    Group<Way, COLUMNS> group(p);
    const int64_t first = blockIdx.x / p.column_blocks, stride = p.blocks / p.column_blocks;
    const int64_t tiles = (p.row_blocks - first + stride - 1) / stride;
    int64_t left = tiles * group.feed.chunks;
    int slot = 0;
    group.column0 = blockIdx.x % p.column_blocks * COLUMNS;
    group.row0 = first * ROWS + threadIdx.x / 128 * TILE;
    group.feed.start(group.row0, stride * ROWS, left);
    const bool kept = group.begin_slots();
    for (int64_t tile = 0; tile < tiles; tile++) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) group.total[i] = 0;
        if (!kept) group.run_ring(left, slot);
        for (int i = 0; kept && i < group.feed.chunks; i++) group.add_chunk(i);
        group.store();
        group.row0 += stride * ROWS;
    }
}

template <typename Way, int COLUMNS>
__global__ void __launch_bounds__(THREADS, 1) parts_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) run_block<Way, COLUMNS>(p);
}

template <typename Way> rl_product_kernel_of pick(int64_t inner)
{
    constexpr int COLUMNS = RL_PARTS_NARROW, SLOT = COLUMNS * LINE * Way::B_PARTS;
    const int64_t chunks = (inner + CHUNK - 1) / CHUNK, slots = chunks < PLANES / SLOT ? chunks : PLANES / SLOT;
    return {kernel_address<parts_kernel<Way, COLUMNS>>(), (int32_t)(FEED + slots * SLOT)};
}

} // namespace

rl_product_kernel_of rl_product_parts_kernel(rl_parts_way way, int64_t inner)
{
    switch (way) {
    case RL_PARTS_EXACT:
        return pick<Way<float, 3, 3>>(inner);
    case RL_PARTS_ROUGH:
        return pick<Way<float, 2, 2>>(inner);
    case RL_PARTS_ROUGH_BF16:
        return pick<Way<float, 2, 1>>(inner);
    case RL_PARTS_BF16:
        return pick<Way<bf16, 1, 1>>(inner);
    default:
        return pick<Way<f16, 1, 1, F16>>(inner);
    }
}
