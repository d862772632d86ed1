/* The tiles of products by parts: product_parts.cuh tells how. */
#include <machine/early.cuh>

#include "product_A.cuh"
#include "product_parts.cuh"

using namespace product_parts;

namespace
{

constexpr int LINE_FLOATS = 32; /* of a line of the L2 cache */

template <typename Way> struct Group {
    using T = typename Way::T;
    static constexpr int COLUMNS = Way::COLUMNS, SLOTS = Way::SLOTS, HALF = SLOTS / 2;

    const rl_product_args &p;
    Feed<Way> feed;
    int64_t row0, column0;
    float total[COLUMNS / 2];
    float most[Way::SCALES ? 2 : 1]; /* of a tile's scales down */

    __device__ explicit Group(const rl_product_args &p) : p(p), feed(p)
    {
    }

    /* The units' registers are left alone while they work: else the compiler has one product wait for the other. */
    __device__ void multiply_chunk(float (&sum)[COLUMNS / 2], float (&down)[2], int slot, bool adds)
    {
        uint32_t words[2 * Way::A_PARTS][4];
        feed.template take<Way::A_PARTS>(words, down);
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

    __device__ int64_t column_of(int i) const
    {
        return column0 + i / 8 * 16 + feed.lane % 4 * 4 + i / 4 % 2 * 2 + i % 2;
    }

    __device__ void store_one(int64_t row, int64_t column, float value) const
    {
        if (p.add.data) value += ((const float *)p.add.data)[offset_of(p, p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, offset_of(p, p.out, row) + column * p.out.lane, value);
    }

    /* Brings what will be added to the tile into the L2 cache. */
    __device__ void look_ahead() const
    {
        const int64_t column = column0 + feed.lane % 4 * LINE_FLOATS;
        if (!p.add.wide || feed.lane % 4 * LINE_FLOATS >= COLUMNS || column >= p.columns) return;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = feed.row_of(row0, half);
            if (row < p.rows) fetch_ahead((const float *)p.add.data + offset_of(p, p.add, row) + column);
        }
    }

    __device__ Quad<float> four_of(int i) const
    {
        return {{total[i], total[i + 1], total[i + 4], total[i + 5]}};
    }

    /* Four neighbours of a row. */
    __device__ void store_four(int64_t at, const Quad<float> &four) const
    {
        if (p.out.dtype == RILL_F32) {
            *(Quad<float> *)((float *)p.out.data + at) = four;
            return;
        }
        Quad<bf16> quad;
        const bool brain = p.out.dtype == RILL_BF16;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float low = four.get(2 * j), high = four.get(2 * j + 1);
            quad.word[j] = brain ? pack_bfloats(low, high) : pack_halves(low, high);
        }
        *(Quad<bf16> *)((bf16 *)p.out.data + at) = quad;
    }

    /* Whether sums can be stored in fours, but for columns that do not exist. */
    __device__ bool is_fine() const
    {
        return p.out.wide && p.out.dtype != RILL_F64 && (p.add.wide || !p.add.data) && p.columns % 4 == 0;
    }

    /* What is to be added to a half of the thread's rows is on its way all at a time. */
    __device__ void store_fours(int64_t row, int half) const
    {
        constexpr int FOURS = COLUMNS / 16;
        const int64_t first = column_of(2 * half), to = offset_of(p, p.out, row) + first;
        const int left = (int)min(p.columns - first, (int64_t)COLUMNS);
        Quad<float> four[FOURS] = {};
        if (p.add.data) {
            const float *more = (const float *)p.add.data + offset_of(p, p.add, row) + first;
#pragma unroll
            for (int j = 0; j < FOURS; j++)
                if (j * 16 < left) four[j] = *(const Quad<float> *)(more + j * 16);
        }
#pragma unroll
        for (int j = 0; j < FOURS; j++) {
            const Quad<float> sum = four_of(8 * j + 2 * half);
#pragma unroll
            for (int k = 0; k < 4; k++) four[j].set(k, four[j].get(k) + sum.get(k));
            if (j * 16 < left) store_four(to + j * 16, four[j]);
        }
    }

    __device__ void store_each(int64_t row, int half) const
    {
#pragma unroll 1
        for (int which = 2 * half; which < COLUMNS / 2; which += which % 2 ? 3 : 1) {
            const int64_t column = column_of(which);
            if (column >= p.columns) continue;
            float value = 0;
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) value = i == which ? total[i] : value;
            store_one(row, column, value);
        }
    }

    /* A sum by multiply-adds, which the lanes of the warp share. */
    __device__ float sum_plainly(int64_t row, int64_t column) const
    {
        const T *const from = (const T *)p.a.data + offset_of(p, p.a, row);
        const rl_product_weight &weight = weight_of(p, column);
        float sum = 0;
#pragma unroll 4
        for (int64_t k = feed.lane; k < p.inner; k += 32)
            sum = fmaf(widen(from[k * p.a.lane]),
                       load_any<float>(weight.data, weight.dtype, column * weight.row + k * weight.lane), sum);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        return sum;
    }

    /* What products gave that is not finite is summed again, one number after the other. */
    __device__ void repair()
    {
        uint64_t wrong = 0;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) wrong |= (uint64_t)!is_finite(total[i]) << i;
#pragma unroll 1
        for (uint32_t lanes; (lanes = __ballot_sync(~0u, wrong != 0)) != 0; wrong &= wrong - 1) {
#pragma unroll 1
            for (; lanes; lanes &= lanes - 1) {
                const int whose = __ffs((int)lanes) - 1, i = __shfl_sync(~0u, __ffsll((long long)wrong) - 1, whose);
                const int64_t row = row0 + 16 * feed.warp + whose / 4 + 8 * (i / 2 % 2);
                const int64_t column = column0 + i / 8 * 16 + whose % 4 * 4 + i / 4 % 2 * 2 + i % 2;
                if (row >= p.rows || column >= p.columns) continue;
                const float sum = sum_plainly(row, column);
#pragma unroll
                for (int j = 0; j < COLUMNS / 2; j++)
                    if (feed.lane == whose && j == i) total[j] = sum;
            }
        }
    }

    /*
     * Back from the columns' scales.  What lies far below the product of its row's and its column's largest may have
     * lost more bits than the loop: it is marked as not finite.
     */
    __device__ void scale_down()
    {
        const float *const scale = Split<Way>::scales() + COLUMNS + feed.lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const float down = scale[i / 4 * 8 + i % 2],
                        least = most[i / 2 % 2] * (1 << 9); /* 2^-20 of the largest */
            total[i] = fabsf(total[i]) < least && down > 0 ? __int_as_float(0x7fffffff) : total[i] * down;
        }
    }

    __device__ void store()
    {
        if constexpr (Way::SCALES) scale_down();
        repair();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = feed.row_of(row0, half);
            if (row >= p.rows) continue;
            if (is_fine())
                store_fours(row, half);
            else
                store_each(row, half);
        }
    }

    static constexpr int TOGETHER = Way::SCALES ? 3 : 4; /* chunks of b on their way at a time */

    __device__ void find_scales() const
    {
        float most[Split<Way>::ITEMS] = {};
        for (int64_t first = 0; first < feed.chunks; first += TOGETHER) {
            Split<Way> split[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (first + i < feed.chunks) split[i].fetch(p, column0, first + i);
#pragma unroll
            for (int i = 0; i < TOGETHER; i++)
                if (first + i < feed.chunks) split[i].measure(most);
        }
        Split<Way>::put_scales(most);
        __syncwarp(); /* the scales of the warp's own lines, but for their way back, are there */
    }

    /* The first chunks of b: all that there are, or half of the slots. */
    __device__ bool begin_slots() const
    {
        const bool kept = feed.chunks <= SLOTS;
        const int chunks = kept ? (int)feed.chunks : HALF;
        if constexpr (Way::SCALES) find_scales();
        for (int first = 0; first < chunks; first += TOGETHER) {
            Split<Way> split[TOGETHER];
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
#pragma unroll
        for (int i = 0; i < Way::COLUMNS / 2; i++) group.total[i] = 0;
        for (float &most : group.most) most = 0;
        group.look_ahead();
        if (!kept) group.run_ring(left, slot);
        for (int i = 0; kept && i < group.feed.chunks; i++) group.add_chunk(i, i);
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
