/*
 * Sums over steps by the units for bfloat16, as product_parts.cuh has them:  out[row, column] = Σ_k a[k, row] b[k,
 * column], in parts of the steps.
 *
 *              96 or 144 columns      A block's two groups have 64 rows each.  Both factors lie with their lanes next
 * to
 *                +----------+         each other, and so they stay: a chunk of 32 steps goes from memory through
 *       64 rows  |   tile   | group 0 registers, where it is split, into planes of lines of 64 lanes, which the units
 *                +----------+         take turned.  There are two slots for chunks.  While one is multiplied, the
 * next, 64 rows  |   tile   | group 1 which has come into registers, is split and put into the other slot, and the
 * one
 *                +----------+         behind it is on its way.
 *
 * Of float32 each chunk begins at zero, and is added to the sum with rounding, since the units cut off what they add.
 * With two parts, what is cut off in a few thousand steps does no harm.
 */
#include <machine/bulk.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/wgmma.cuh>

#include "product_parts.cuh"

using product_parts::CHUNK;
using product_parts::offset_of;
using product_parts::parts_of;
using product_parts::split;
using product_parts::TILE;

namespace
{

constexpr int GROUPS = RL_PARTS_GROUPS_OVER_STEPS, THREADS = GROUPS * 128, ROWS = GROUPS * TILE, SLOTS = 2;
constexpr int LINE = 64;                                     /* lanes */
constexpr int ATOM = 8 * LINE * 2, PANEL = CHUNK * LINE * 2; /* bytes: of 8 steps, of all */

/*
 * A unit is 16 bytes of global memory: lanes of one step.  Eight threads have a step, and a thread units of one step
 * only.  The steps of a warp are such that, exchanged, their units fall into different banks.
 */
constexpr int ACROSS = 8;

template <typename T, int LANES> struct Units {
    static constexpr int EACH = 16 / sizeof(T), NEXT = ACROSS * EACH, COUNT = (LANES + NEXT - 1) / NEXT;

    struct alignas(16) Unit {
        T lane[EACH];
    };
    Unit unit[COUNT];

    __device__ static int first()
    {
        return threadIdx.x % ACROSS * EACH;
    }
    __device__ static bool has(int i)
    {
        return LANES % NEXT == 0 || first() + i * NEXT < LANES;
    }
};

__device__ inline int own_step()
{
    const int i = threadIdx.x / ACROSS;
    return (i & ~6) | (i & 2) << 1 | (i & 4) >> 1;
}

template <typename T, int PARTS, int EACH>
__device__ inline void split_unit(const T (&lane)[EACH], uint32_t (&word)[PARTS][EACH / 2])
{
#pragma unroll
    for (int i = 0; i < EACH; i += 2) {
        if constexpr (PARTS == 1) {
            word[0][i / 2] = lane[i].bits | (uint32_t)lane[i + 1].bits << 16;
        } else {
            uint32_t part[PARTS];
            split(widen(lane[i]), widen(lane[i + 1]), part);
#pragma unroll
            for (int k = 0; k < PARTS; k++) word[k][i / 2] = part[k];
        }
    }
}

/* A chunk's planes, one for each part: panels of 64 lanes, of which neighbouring 16 bytes are exchanged. */
template <typename T, int LANES, int PARTS> struct Planes {
    static constexpr int PANELS = (LANES + LINE - 1) / LINE, PLANE = PANELS * PANEL, BYTES = PARTS * PLANE;
    using Mine = Units<T, LANES>;

    __device__ static void put(unsigned char *planes, const Mine &mine)
    {
        constexpr int EACH = Mine::EACH;
        struct alignas(EACH * 2) Words {
            uint32_t word[EACH / 2];
        };
#pragma unroll
        for (int i = 0; i < Mine::COUNT; i++) {
            if (!Mine::has(i)) continue;
            const int step = own_step(), lane = Mine::first() + i * Mine::NEXT, in_panel = lane % LINE;
            uint32_t word[PARTS][EACH / 2];
            split_unit<T, PARTS>(mine.unit[i].lane, word);
            unsigned char *to = planes + lane / LINE * PANEL + step * (2 * LINE) +
                                ((in_panel / 8) ^ (step % 8)) * 16 + in_panel % 8 * 2;
#pragma unroll
            for (int k = 0; k < PARTS; k++) *(Words *)(to + k * PLANE) = *(const Words *)word[k];
        }
    }

    __device__ static uint64_t describe(const unsigned char *planes, int part, int panel, int product)
    {
        return tile_descriptor(planes + part * PLANE + panel * PANEL + product * (2 * ATOM), PANEL, ATOM,
                               SWIZZLE_128);
    }
};

template <typename T, int COLUMNS, int PARTS> struct Sum {
    static constexpr int COUNT = parts_of<T, PARTS>, WORDS = (COLUMNS / 2 + 31) / 32;
    static constexpr bool ROUNDS = PARTS == 3; /* what is added up of a chunk */
    using A = Planes<T, ROWS, COUNT>;
    using B = Planes<float, COLUMNS, PARTS>;
    static constexpr int SLOT = A::BYTES + B::BYTES;

    const rl_product_args &p;
    int64_t row0, column0, part, begin, end; /* steps */
    bool a_wide;
    const T *from_a;
    const float *from_b; /* the thread's first lanes of the step that it fetches next */
    typename A::Mine a;
    typename B::Mine b;
    float sum[COLUMNS / 2], total[ROUNDS ? COLUMNS / 2 : 1];

    __device__ explicit Sum(const rl_product_args &p) : p(p)
    {
        const int64_t block = blockIdx.x / p.column_blocks, chunks = (p.inner + CHUNK - 1) / CHUNK;
        part = block / p.row_blocks;
        row0 = block % p.row_blocks * ROWS;
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        begin = chunks * part / p.part_count * CHUNK;
        end = min(chunks * (part + 1) / p.part_count * CHUNK, p.inner);
        a_wide = p.a.wide && row0 + ROWS <= p.rows;
        from_a = (const T *)p.a.data + (row0 + A::Mine::first()) * p.a.lane + (begin + own_step()) * p.a.step;
        from_b = (const float *)p.b + column0 + B::Mine::first() + (begin + own_step()) * p.b_row;
    }

    __device__ int64_t step_offset(int64_t k) const
    {
        return p.a.even ? k * p.a.step : offset_of(p, p.a, k);
    }

    __device__ void fetch(int64_t k0)
    {
        using MineA = typename A::Mine;
        using MineB = typename B::Mine;
        const int64_t k = k0 + own_step();
        const int columns = (int)min(p.columns - column0, (int64_t)COLUMNS) - MineB::first();
        const int rows = (int)min(p.rows - row0, (int64_t)ROWS) - MineA::first();
        if (!p.a.even && k < end)
            from_a = (const T *)p.a.data + (row0 + MineA::first()) * p.a.lane + offset_of(p, p.a, k);
#pragma unroll
        for (int i = 0; i < MineB::COUNT; i++) {
            b.unit[i] = {};
            const int left = k < end ? columns - i * MineB::NEXT : 0;
            if (left >= MineB::EACH) {
                b.unit[i] = *(const typename MineB::Unit *)(from_b + i * MineB::NEXT);
            } else { /* what pads a row is nobody's */
#pragma unroll
                for (int j = 0; j < MineB::EACH - 1; j++)
                    if (j < left) b.unit[i].lane[j] = from_b[i * MineB::NEXT + j];
            }
        }
#pragma unroll
        for (int i = 0; i < MineA::COUNT; i++) {
            a.unit[i] = {};
            if (k >= end) continue;
            if (a_wide) {
                a.unit[i] = *(const typename MineA::Unit *)(from_a + i * MineA::NEXT);
            } else {
#pragma unroll
                for (int j = 0; j < MineA::EACH; j++)
                    if (i * MineA::NEXT + j < rows) a.unit[i].lane[j] = from_a[(i * MineA::NEXT + j) * p.a.lane];
            }
        }
        from_a += CHUNK * p.a.step;
        from_b += CHUNK * p.b_row;
    }

    __device__ void put(int slot) const
    {
        unsigned char *planes = dynamic_shared + slot * SLOT;
        A::put(planes, a);
        B::put(planes + A::BYTES, b);
    }

    __device__ void multiply(int slot, bool adds)
    {
        const unsigned char *planes = dynamic_shared + slot * SLOT;
        const int group = threadIdx.x / 128;
        hold(sum);
        products_fence();
#pragma unroll
        for (int order = PARTS - 1; order >= 0; order--)
#pragma unroll
            for (int product = 0; product < CHUNK / 16; product++)
#pragma unroll
                for (int i = COUNT - 1; i >= 0; i--) {
                    if (order < i) continue;
                    product_of_tiles<BF16, COLUMNS, true, true>(sum, A::describe(planes, i, group, product),
                                                                B::describe(planes + A::BYTES, order - i, 0, product),
                                                                adds);
                    adds = true;
                }
        products_commit();
    }

    __device__ void finish()
    {
        products_wait<0>();
        hold(sum);
        if constexpr (ROUNDS)
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) total[i] += sum[i];
    }

    __device__ void publish() const
    {
        shared_publish();
        __syncthreads(); /* the chunk is complete, and nobody multiplies with the one before any more */
    }

    __device__ void run()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
#pragma unroll
        for (int i = 0; ROUNDS && i < COLUMNS / 2; i++) total[i] = 0;
        fetch(begin);
        put(0);
        fetch(begin + CHUNK);
        publish();
        int slot = 0;
        for (int64_t k = begin; k < end; k += CHUNK, slot ^= 1) {
            multiply(slot, !ROUNDS && k > begin);
            put(slot ^ 1);
            fetch(k + 2 * CHUNK);
            finish();
            publish();
        }
        store();
    }

    __device__ float result(int i) const
    {
        if constexpr (ROUNDS) return total[i];
        return sum[i];
    }

    /* The sum in the order of k; for what products gave that is not finite. */
    __device__ float sum_plainly(int64_t row, int64_t column) const
    {
        float plain = 0;
#pragma unroll 1
        for (int64_t k = begin; k < end; k++)
            plain = fmaf(widen(((const T *)p.a.data)[step_offset(k) + row * p.a.lane]),
                         ((const float *)p.b)[k * p.b_row + column], plain);
        return plain;
    }

    __device__ void store() const
    {
        float *out = (float *)p.parts + part * p.columns * p.rows;
        const int64_t row = row0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const int64_t column = column0 + threadIdx.x % 4 * 2;
        uint32_t again[WORDS] = {};
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const int64_t r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
            if (c >= p.columns || r >= p.rows) continue;
            out[c * p.rows + r] = result(i);
            if (!is_finite(result(i))) again[i / 32] |= 1u << (i % 32);
        }
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
#pragma unroll 1
            for (uint32_t left = again[word]; left; left &= left - 1) {
                const int i = 32 * word + __ffs((int)left) - 1;
                const int64_t r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
                out[c * p.rows + r] = sum_plainly(r, c);
            }
        }
    }
};

template <typename T, int COLUMNS, int PARTS>
__global__ void __launch_bounds__(THREADS, PARTS == 3 ? 1 : 2) steps_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) Sum<T, COLUMNS, PARTS>(p).run();
}

template <typename T, int COLUMNS, int PARTS> rl_product_kernel_of pick()
{
    return {kernel_address<steps_kernel<T, COLUMNS, PARTS>>(), SLOTS * Sum<T, COLUMNS, PARTS>::SLOT, THREADS, ROWS,
            COLUMNS};
}

template <int COLUMNS> rl_product_kernel_of pick_type(int32_t dtype, bool rough)
{
    switch (dtype) {
    case RILL_F32:
        return rough ? pick<float, COLUMNS, 2>() : pick<float, COLUMNS, 3>();
    case RILL_BF16:
        return pick<bf16, COLUMNS, 2>();
    default:
        return pick<f16, COLUMNS, 2>();
    }
}

} // namespace

rl_product_kernel_of rl_product_steps_kernel(int32_t dtype, int columns, bool rough)
{
    return columns == RL_PARTS_WIDE ? pick_type<RL_PARTS_WIDE>(dtype, rough)
                                    : pick_type<RL_PARTS_NARROW>(dtype, rough);
}
