/* The tiles of products by parts: product_parts.cuh tells how. */
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_parts.cuh"

using namespace product_parts;

namespace
{

template <typename T, int COLUMNS, int PARTS> struct Group {
    static constexpr int COUNT = parts_of<T, PARTS>, SLOTS = PLANES / (COLUMNS * LINE * PARTS), HALF = SLOTS / 2;
    static constexpr int WORDS = (COLUMNS / 2 + 31) / 32;

    const rl_product_args &p;
    Feed<T> feed;
    int64_t row0, column0;
    float total[COLUMNS / 2];

    __device__ explicit Group(const rl_product_args &p) : p(p), feed(p)
    {
    }

    __device__ void split_chunk(int64_t chunk, int slot) const
    {
        split_b<COLUMNS, PARTS>(p, column0, chunk, slot);
    }

    __device__ void add_chunk(int slot)
    {
        float sum[COLUMNS / 2];
        uint32_t words[2 * COUNT][4];
        feed.template take<COUNT>(words);
        feed.fetch();
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
        hold(sum);
        hold(words);
        products_fence();
        multiply<COLUMNS, PARTS, COUNT>(sum, words, slot);
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
        return column0 + 8 * (i / 4) + feed.lane % 4 * 2 + i % 2;
    }

    __device__ void store_one(int64_t row, int64_t column, float value) const
    {
        if (p.add.data) value += ((const float *)p.add.data)[offset_of(p, p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, offset_of(p, p.out, row) + column * p.out.lane, value);
    }

    __device__ void store_rows(int half, uint32_t (&again)[WORDS]) const
    {
        const int64_t row = feed.row_of(row0, half);
        if (row >= p.rows) return;
        const int64_t to = offset_of(p, p.out, row), from = p.add.data ? offset_of(p, p.add, row) : 0;
        const bool wide = p.out.wide && p.out.dtype == RILL_F32 && (p.add.wide || !p.add.data);
#pragma unroll
        for (int i = 2 * half; i < COLUMNS / 2; i += 4) {
            const int64_t column = column_of(i);
            const bool fine = is_finite(total[i]) && is_finite(total[i + 1]);
            if (fine && wide && column + 1 < p.columns) {
                float2 pair = make_float2(total[i], total[i + 1]);
                if (p.add.data) {
                    const float2 more = *(const float2 *)((const float *)p.add.data + from + column);
                    pair.x += more.x;
                    pair.y += more.y;
                }
                *(float2 *)((float *)p.out.data + to + column) = pair;
                continue;
            }
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (column + e >= p.columns) continue;
                if (is_finite(total[i + e]))
                    store_one(row, column + e, total[i + e]);
                else
                    again[(i + e) / 32] |= 1u << ((i + e) % 32);
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
        const bool kept = feed.chunks <= SLOTS;
        const int chunks = kept ? (int)(feed.chunks) : HALF;
        for (int slot = 0; slot < chunks; slot++) split_chunk(slot, slot);
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
            if (left > HALF) split_chunk(later, (slot + HALF) % (2 * HALF));
            add_chunk(slot);
            left--;
            slot = (slot + 1) % (2 * HALF);
            if (slot % HALF == 0) publish();
        }
    }
};

template <typename T, int COLUMNS, int PARTS> __device__ inline void run_block(const rl_product_args &p)
{
    if (p.A && blockIdx.x >= p.A_block) make_A(p, p.A_block);
    if (blockIdx.x >= p.blocks) return;
    Group<T, COLUMNS, PARTS> group(p);
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

template <typename T, int COLUMNS, int PARTS>
__global__ void __launch_bounds__(THREADS, 1) parts_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) run_block<T, COLUMNS, PARTS>(p);
}

} // namespace

const void *rl_product_parts_kernel(bool rough)
{
    return rough ? kernel_address<parts_kernel<float, RL_PARTS_NARROW, 2>>()
                 : kernel_address<parts_kernel<float, RL_PARTS_NARROW, 3>>();
}

size_t rl_product_parts_shared(int columns, bool rough, int64_t inner)
{
    const int64_t slot = columns * LINE * (rough ? 2 : 3), chunks = (inner + CHUNK - 1) / CHUNK;
    return (size_t)(FEED + (chunks < PLANES / slot ? chunks : PLANES / slot) * slot);
}
