/*
 * Products of float32 accuracy on the units for bfloat16: a float is the exact sum of three bfloat16 numbers, and of
 * the nine products of two such sums the six large ones are taken (what is left out is below 2^-24 of the product).
 * For gradients of 16-bit data, two parts and three products: 2^-16.
 *
 *             96 or 144 columns          A group of 128 threads has a tile of 64 rows.  b is split once into three
 *                +----------+            planes in shared memory, a panel of up to 384 or 256 of k at a time, which
 * all a: 64 rows   |   tile   | group 0    groups of the block share.  a never is in shared memory: its threads load
 *                +----------+            what they hold of it as units of products take it, 32 of k at a time, split
 *      64 rows   |   tile   | group 1    it in registers, and load the next while the units work.
 *                +----------+
 *
 * The units cut off what they add.  So a chunk of 32 of k begins at zero, adds the small products first, and is then
 * added to the sum with rounding; chunks follow each other in order.  k is in another order within a chunk, of a and
 * b alike: thread q of four loads twice four neighbours, of which the first two go where the units' first columns
 * are.
 *
 *     k = 16 s + 4 q + 2 h + e   is column   2 q + 8 h + e   of the chunk's product s
 *
 * An infinity has no parts.  Whatever comes out not finite is summed again by multiply-adds, in order.
 */
#include <machine/bulk.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/wgmma.cuh>

#include "elements.cuh"
#include "numbers.cuh"
#include "product_args.h"

namespace
{

constexpr int TILE = RL_PARTS_TILE, CHUNK = RL_PARTS_CHUNK, MINE = 8, LINE = CHUNK * 2;
constexpr int SHARED = 24 * RL_PARTS_WIDE * LINE; /* bytes of planes */

constexpr int groups_of(int columns, bool over_steps)
{
    return columns == RL_PARTS_WIDE || over_steps ? 2 : 3;
}

/* Parts that are needed of a bfloat16, float16 or float32. */
template <typename T, int PARTS> constexpr int parts_of = sizeof(T) == 4 ? PARTS : 2;
template <int PARTS> constexpr int parts_of<bf16, PARTS> = 1;

/* Where a thread's i-th k is in a chunk, of those of its four that begin at 0. */
__device__ constexpr int place_of(int i)
{
    return i % 4 + i / 4 * 16;
}

template <int COUNT> __device__ inline void split(float low, float high, uint32_t (&part)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        part[i] = pack_bfloats(low, high);
        low -= __uint_as_float(part[i] << 16);
        high -= __uint_as_float(part[i] & 0xffff0000u);
    }
}

/* What a thread holds of a chunk of a: two rows, eight of k. */
template <typename T> struct Held {
    T value[2][MINE];
};

/* The units' words of it: of product s and part i. */
template <typename T, int COUNT> struct Words {
    uint32_t of[2 * COUNT][4];

    __device__ void fill(const Held<T> &held)
    {
#pragma unroll
        for (int at = 0; at < 8; at++) {
            const int s = at / 4, half = at / 2 % 2, row = at % 2, k = 4 * s + 2 * half;
            if constexpr (COUNT == 1) {
                of[s][row + 2 * half] = held.value[row][k].bits | (uint32_t)held.value[row][k + 1].bits << 16;
            } else {
                uint32_t part[COUNT];
                split(widen(held.value[row][k]), widen(held.value[row][k + 1]), part);
#pragma unroll
                for (int i = 0; i < COUNT; i++) of[s * COUNT + i][row + 2 * half] = part[i];
            }
        }
    }
};

template <typename T, int COLUMNS, bool over_steps, int PARTS> struct Group {
    static constexpr int COUNT = parts_of<T, PARTS>, PLANE = COLUMNS * LINE; /* parts of a; bytes */
    static constexpr int PANEL = SHARED / (PLANE * PARTS), GROUPS = groups_of(COLUMNS, over_steps);
    static constexpr int WORDS = (COLUMNS / 2 + 31) / 32;

    const rl_product_args &p;
    int lane, warp, group;
    int64_t row0, column0;
    int64_t begin, end; /* of k, chunks */
    const T *at[2];     /* a's rows; over steps its lanes */
    float total[COLUMNS / 2];

    __device__ explicit Group(const rl_product_args &p) : p(p)
    {
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32 % 4;
        group = threadIdx.x / 128;
    }

    __device__ int64_t row_of(int half) const
    {
        return row0 + 16 * warp + (over_steps ? 2 * (lane / 4) + half : lane / 4 + 8 * half);
    }

    __device__ int64_t offset_of(const rl_product_rows &rows, int64_t row) const
    {
        const int64_t batch = row / p.length;
        return batch * rows.batch + (row - batch * p.length) * rows.step;
    }

    /* Rows beyond the last are taken for the last; they are not stored. */
    __device__ void seek()
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = min(row_of(half), p.rows - 1);
            at[half] = (const T *)p.a.data + (over_steps ? row * p.a.lane : offset_of(p.a, row));
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) total[i] = 0;
    }

    __device__ int64_t k_offset(int64_t k) const
    {
        if constexpr (!over_steps) return k * p.a.lane;
        return p.a.even ? k * p.a.step : offset_of(p.a, k);
    }

    __device__ void fetch(Held<T> &held, int64_t chunk) const
    {
        const int64_t k = chunk * CHUNK + lane % 4 * 4;
        const bool whole = (chunk + 1) * CHUNK <= p.inner;
        if constexpr (!over_steps) {
            if (whole && p.a.wide) {
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int i = 0; i < MINE; i += 4) {
                        const Quad<T> quad = *(const Quad<T> *)(at[half] + k + place_of(i));
#pragma unroll
                        for (int j = 0; j < 4; j++) held.value[half][i + j] = quad.get(j);
                    }
                return;
            }
        } else if (whole && p.a.wide && p.a.even && row0 + TILE <= p.rows) {
            struct alignas(2 * sizeof(T)) Pair {
                T value[2];
            };
            const T *from = at[0] + k * p.a.step;
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                const Pair pair = *(const Pair *)(from + place_of(i) * p.a.step);
                held.value[0][i] = pair.value[0];
                held.value[1][i] = pair.value[1];
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const bool there = k + place_of(i) < p.inner;
            const int64_t offset = there ? k_offset(k + place_of(i)) : 0;
#pragma unroll
            for (int half = 0; half < 2; half++) held.value[half][i] = there ? at[half][offset] : T{};
        }
    }

    /* The weight that a column is of, which then counts from the weight's first. */
    __device__ const rl_product_weight &weight_of(int64_t &column) const
    {
        const rl_product_weight *weight = p.weights;
#pragma unroll
        for (int i = 1; i < RL_PRODUCT_WEIGHTS; i++)
            if (weight == p.weights + i - 1 && column >= weight->columns) {
                column -= weight->columns;
                weight++;
            }
        return *weight;
    }

    /* What belongs together along k of one of b's columns. */
    __device__ void fetch_b(float (&value)[MINE], int64_t column, int64_t k) const
    {
        const bool there = column < p.columns;
        if constexpr (over_steps) {
#pragma unroll
            for (int i = 0; i < MINE; i++)
                value[i] = there && k + place_of(i) < p.inner
                               ? ((const float *)p.b)[(k + place_of(i)) * p.b_row + column]
                               : 0.0f;
        } else {
            const rl_product_weight &weight = weight_of(column);
            const int64_t row = column * weight.row;
            if (weight.wide && there && k + place_of(MINE - 1) < p.inner) {
#pragma unroll
                for (int i = 0; i < MINE; i += 4) {
                    const Quad<float> quad =
                        *(const Quad<float> *)((const float *)weight.data + row + k + place_of(i));
#pragma unroll
                    for (int j = 0; j < 4; j++) value[i + j] = quad.get(j);
                }
                return;
            }
#pragma unroll
            for (int i = 0; i < MINE; i++)
                value[i] = there && k + place_of(i) < p.inner
                               ? load_any<float>(weight.data, weight.dtype, row + (k + place_of(i)) * weight.lane)
                               : 0.0f;
        }
    }

    /* The planes of some chunks: a warp takes 8 columns of a chunk at a time. */
    __device__ void split_b(int64_t chunk0, int chunks) const
    {
        const int column = over_steps ? lane % 8 : lane / 4, quarter = over_steps ? lane / 8 : lane % 4;
        const int warps = blockDim.x / 32;
#pragma unroll 2
        for (int item = threadIdx.x / 32; item < chunks * (COLUMNS / 8); item += warps) {
            const int chunk = item / (COLUMNS / 8), line = item % (COLUMNS / 8) * 8 + column;
            float value[MINE];
            fetch_b(value, column0 + line, (chunk0 + chunk) * CHUNK + quarter * 4);
            unsigned char *to = dynamic_shared + chunk * (PARTS * PLANE) + line * LINE + quarter * 4;
#pragma unroll
            for (int unit = 0; unit < MINE / 2; unit++) { /* 16 bytes of a line, as its swizzle exchanges them */
                uint32_t part[PARTS];
                split(value[2 * unit], value[2 * unit + 1], part);
#pragma unroll
                for (int i = 0; i < PARTS; i++)
                    *(uint32_t *)(to + i * PLANE + (unit ^ (line / 2 % 4)) * 16) = part[i];
            }
        }
    }

    /* sum = the products of a chunk, the small ones first. */
    __device__ void multiply(float (&sum)[COLUMNS / 2], const Words<T, COUNT> &words, int slot) const
    {
        const unsigned char *planes = dynamic_shared + slot * (PARTS * PLANE);
        bool adds = false;
#pragma unroll
        for (int order = PARTS - 1; order >= 0; order--)
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int i = COUNT - 1; i >= 0; i--) {
                    if (order < i) continue;
                    const uint64_t b =
                        tile_descriptor(planes + (order - i) * PLANE + 32 * s, 16, 8 * LINE, SWIZZLE_64);
                    product_of_registers<BF16, COLUMNS, false>(sum, words.of[s * COUNT + i], b, adds);
                    adds = true;
                }
    }

    __device__ void run_panel(int64_t chunk0, int chunks)
    {
        Held<T> held;
        fetch(held, chunk0);
        for (int slot = 0; slot < chunks; slot++) {
            float sum[COLUMNS / 2];
            Words<T, COUNT> words;
            words.fill(held);
            if (slot + 1 < chunks) fetch(held, chunk0 + slot + 1);
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
            hold(sum);
            hold(words.of);
            products_fence();
            multiply(sum, words, slot);
            products_commit();
            products_wait<0>();
            hold(sum);
            hold(words.of);
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) total[i] += sum[i];
        }
    }

    /* The sum in the order of k; for what products gave that is not finite. */
    __device__ float sum_plainly(int half, int64_t column) const
    {
        const int64_t last = min(end * CHUNK, p.inner);
        const T *const mine = half == 0 ? at[0] : at[1];
        float sum = 0;
        if constexpr (over_steps) {
#pragma unroll 1
            for (int64_t k = begin * CHUNK; k < last; k++)
                sum = fmaf(widen(mine[k_offset(k)]), ((const float *)p.b)[k * p.b_row + column], sum);
        } else {
            const rl_product_weight &weight = weight_of(column);
#pragma unroll 1
            for (int64_t k = 0; k < last; k++)
                sum = fmaf(widen(mine[k_offset(k)]),
                           load_any<float>(weight.data, weight.dtype, column * weight.row + k * weight.lane), sum);
        }
        return sum;
    }

    __device__ int64_t column_of(int i) const
    {
        return column0 + 8 * (i / 4) + lane % 4 * 2 + i % 2;
    }

    __device__ void store_one(int64_t row, int64_t column, float value) const
    {
        if (p.add.data) value += ((const float *)p.add.data)[offset_of(p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, offset_of(p.out, row) + column * p.out.lane, value);
    }

    __device__ void store_rows(int half, uint32_t (&again)[WORDS]) const
    {
        const int64_t row = row_of(half);
        if (row >= p.rows) return;
        const int64_t to = offset_of(p.out, row), from = p.add.data ? offset_of(p.add, row) : 0;
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
        const int64_t row = row_of(0);
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
                const int64_t row = row_of(half), column = column_of(i);
                const float value = sum_plainly(half, column);
                if constexpr (over_steps)
                    ((float *)p.parts)[(part * p.columns + column) * p.rows + row] = value;
                else
                    store_one(row, column, value);
            }
        }
    }

    /* A panel's planes, for which all of the block waits, then its products. */
    __device__ void run(bool keeps)
    {
        const bool mine = row0 < p.rows;
        if (mine) seek();
        for (int64_t chunk = begin; chunk < end; chunk += PANEL) {
            const int chunks = (int)min(end - chunk, (int64_t)PANEL);
            if (!keeps) {
                __syncthreads(); /* nobody multiplies with the panel before any more */
                split_b(chunk, chunks);
                shared_publish();
                __syncthreads(); /* the panel is complete */
            }
            if (mine) run_panel(chunk, chunks);
        }
    }
};

__device__ inline void make_A(const rl_product_args &p)
{
    const rl_product_weight &from = p.A_log;
    const int64_t count = from.columns * p.A_states, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += stride) {
        const int64_t channel = k / p.A_states, state = k - channel * p.A_states;
        const int64_t at = channel * from.row + state * from.lane;
        p.A[k] = (float)-exp(load_any<double>(from.data, from.dtype, at));
    }
}

template <typename T, int COLUMNS, bool over_steps, int PARTS>
__device__ inline void run_block(const rl_product_args &p)
{
    Group<T, COLUMNS, over_steps, PARTS> group(p);
    constexpr int ROWS = TILE * group.GROUPS;
    const int64_t chunks = (p.inner + CHUNK - 1) / CHUNK, block = blockIdx.x / p.column_blocks;
    group.column0 = blockIdx.x % p.column_blocks * COLUMNS;
    if constexpr (over_steps) {
        const int64_t part = block / p.row_blocks;
        group.row0 = block % p.row_blocks * ROWS + group.group * TILE;
        group.begin = chunks * part / p.part_count;
        group.end = chunks * (part + 1) / p.part_count;
        group.run(false);
        if (group.row0 < p.rows) group.store(part);
    } else {
        if (p.A) make_A(p);
        group.begin = 0;
        group.end = chunks;
        for (int64_t first = block; first < p.row_blocks; first += gridDim.x / p.column_blocks) {
            group.row0 = first * ROWS + group.group * TILE;
            group.run(first > block && chunks <= group.PANEL);
            if (group.row0 < p.rows) group.store(0);
        }
    }
}

template <typename T, int COLUMNS, bool over_steps, int PARTS>
__global__ void __launch_bounds__(groups_of(COLUMNS, over_steps) * 128, 1)
    parts_kernel(const __grid_constant__ rl_product_args p)
{
    if constexpr (HAS_PRODUCTS) run_block<T, COLUMNS, over_steps, PARTS>(p);
}

template <int COLUMNS> const void *pick(int32_t dtype, bool over_steps, bool rough)
{
    if (!over_steps)
        return rough ? kernel_address<parts_kernel<float, COLUMNS, false, 2>>()
                     : kernel_address<parts_kernel<float, COLUMNS, false, 3>>();
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

const void *rl_product_parts_kernel(int32_t dtype, int columns, bool over_steps, bool rough)
{
    return columns == RL_PARTS_WIDE ? pick<RL_PARTS_WIDE>(dtype, over_steps, rough)
                                    : pick<RL_PARTS_NARROW>(dtype, over_steps, rough);
}

int rl_product_parts_groups(int columns, bool over_steps)
{
    return groups_of(columns, over_steps);
}

size_t rl_product_parts_shared(void)
{
    return SHARED;
}
