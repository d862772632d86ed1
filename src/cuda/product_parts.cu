/* The tiles of products by parts: product_parts.cuh tells how. */
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_parts.cuh"

using namespace product_parts;

namespace
{

template <typename T, int COLUMNS, bool over_steps, int PARTS> struct Group {
    static constexpr int COUNT = parts_of<T, PARTS>, SLOTS = PLANES / (COLUMNS * LINE * PARTS), HALF = SLOTS / 2;
    static constexpr int WORDS = (COLUMNS / 2 + 31) / 32;

    const rl_product_args &p;
    Feed<T, over_steps> feed;
    int64_t row0, column0;
    float total[COLUMNS / 2];

    __device__ explicit Group(const rl_product_args &p) : p(p), feed(p)
    {
    }

    __device__ void split_chunk(int64_t chunk, int slot) const
    {
        split_b<over_steps, COLUMNS, PARTS>(p, column0, chunk, slot);
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
        const int64_t first = feed.begin * CHUNK, last = min(feed.end * CHUNK, p.inner);
        const T *const row = feed.seek(row0, half);
        float sum = 0;
        if constexpr (over_steps) {
#pragma unroll 1
            for (int64_t k = first; k < last; k++)
                sum = fmaf(widen(row[feed.k_offset(k)]), ((const float *)p.b)[k * p.b_row + column], sum);
        } else {
            const rl_product_weight &weight = weight_of(p, column);
#pragma unroll 1
            for (int64_t k = first; k < last; k++)
                sum = fmaf(widen(row[feed.k_offset(k)]),
                           load_any<float>(weight.data, weight.dtype, column * weight.row + k * weight.lane), sum);
        }
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

    __device__ void store_part(int64_t part, uint32_t (&again)[WORDS]) const
    {
        float *out = (float *)p.parts + part * p.columns * p.rows;
        const int64_t row = feed.row_of(row0, 0);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const int64_t column = column_of(i), mine = row + i / 2 % 2;
            if (column >= p.columns || mine >= p.rows) continue;
            out[column * p.rows + mine] = total[i];
            if (!is_finite(total[i])) again[i / 32] |= 1u << (i % 32);
        }
    }

    __device__ void store(int64_t part) const
    {
        uint32_t again[WORDS] = {};
        if constexpr (over_steps) {
            store_part(part, again);
        } else {
            store_rows(0, again);
            store_rows(1, again);
        }
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
#pragma unroll 1
            for (uint32_t left = again[word]; left; left &= left - 1) {
                const int i = 32 * word + __ffs((int)left) - 1, half = i / 2 % 2;
                const int64_t row = feed.row_of(row0, half), column = column_of(i);
                const float value = sum_plainly(half, column);
                if constexpr (over_steps)
                    ((float *)p.parts)[(part * p.columns + column) * p.rows + row] = value;
                else
                    store_one(row, column, value);
            }
        }
    }

    /* The first chunks of b: all that there are, or half of the slots. */
    __device__ bool begin_slots() const
    {
        const bool kept = feed.end - feed.begin <= SLOTS;
        const int chunks = kept ? (int)(feed.end - feed.begin) : HALF;
        for (int slot = 0; slot < chunks; slot++) split_chunk(feed.begin + slot, slot);
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
        for (int64_t chunk = feed.begin; chunk < feed.end; chunk++) {
            const int64_t later = chunk + HALF < feed.end ? chunk + HALF : chunk + HALF - (feed.end - feed.begin);
            if (left > HALF) split_chunk(later, (slot + HALF) % (2 * HALF));
            add_chunk(slot);
            left--;
            slot = (slot + 1) % (2 * HALF);
            if (slot % HALF == 0) publish();
        }
    }
};

template <typename T, int COLUMNS, bool over_steps, int PARTS>
__device__ inline void run_block(const rl_product_args &p)
{
    constexpr int ROWS = TILE * groups_of<over_steps>;
    if (!over_steps && p.A && blockIdx.x >= p.A_block) make_A(p, p.A_block);
    if (blockIdx.x >= p.blocks) return;
    Group<T, COLUMNS, over_steps, PARTS> group(p);
    const int64_t chunks = (p.inner + CHUNK - 1) / CHUNK, block = blockIdx.x / p.column_blocks;
    const int64_t part = over_steps ? block / p.row_blocks : 0, stride = p.blocks / p.column_blocks;
    const int64_t first = over_steps ? block % p.row_blocks : block;
    const int64_t tiles = over_steps ? 1 : (p.row_blocks - first + stride - 1) / stride;
    group.column0 = blockIdx.x % p.column_blocks * COLUMNS;
    group.row0 = first * ROWS + threadIdx.x / 128 * TILE;
    group.feed.begin = chunks * part / p.part_count;
    group.feed.end = chunks * (part + 1) / p.part_count;
    int64_t left = tiles * (group.feed.end - group.feed.begin);
    int slot = 0;
    group.feed.start(group.row0, stride * ROWS, left);
    const bool kept = group.begin_slots();
    for (int64_t tile = 0; tile < tiles; tile++) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) group.total[i] = 0;
        if (!kept) group.run_ring(left, slot);
        for (int i = 0; kept && i < group.feed.end - group.feed.begin; i++) group.add_chunk(i);
        group.store(part);
        group.row0 += stride * ROWS;
    }
}

template <typename T, int COLUMNS, bool over_steps, int PARTS>
__global__ void __launch_bounds__(groups_of<over_steps> * 128, 1)
    parts_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) run_block<T, COLUMNS, over_steps, PARTS>(p);
}

template <int COLUMNS> const void *pick_over_steps(int32_t dtype, bool rough)
{
    switch (dtype) {
    case RILL_F32:
        return rough ? kernel_address<parts_kernel<float, COLUMNS, true, 2>>()
                     : kernel_address<parts_kernel<float, COLUMNS, true, 3>>();
    case RILL_BF16:
        return kernel_address<parts_kernel<bf16, COLUMNS, true, 2>>();
    default:
        return kernel_address<parts_kernel<f16, COLUMNS, true, 2>>();
    }
}

} // namespace

const void *rl_product_parts_kernel(bool rough)
{
    return rough ? kernel_address<parts_kernel<float, RL_PARTS_NARROW, false, 2>>()
                 : kernel_address<parts_kernel<float, RL_PARTS_NARROW, false, 3>>();
}

const void *rl_product_parts_over_steps(int32_t dtype, int columns, bool rough)
{
    return columns == RL_PARTS_WIDE ? pick_over_steps<RL_PARTS_WIDE>(dtype, rough)
                                    : pick_over_steps<RL_PARTS_NARROW>(dtype, rough);
}

size_t rl_product_parts_shared(int columns, bool rough, int64_t inner)
{
    const int64_t slot = columns * LINE * (rough ? 2 : 3), chunks = (inner + CHUNK - 1) / CHUNK;
    return (size_t)(FEED + (chunks < PLANES / slot ? chunks : PLANES / slot) * slot);
}
