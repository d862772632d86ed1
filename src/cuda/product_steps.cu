/*
 * Sums over steps by the units for bfloat16, as product_parts.cuh has them:  out[row, column] = Σ_k a[k, row] b[k,
 * column], in parts of the steps.
 *
 *              96 or 144 columns      A block's two groups (of bfloat16 four) have 64 rows each.  Both factors lie
 *                +----------+         with their lanes next to each other, and so they stay: a chunk of 32 steps goes
 *       64 rows  |   tile   | group 0 from memory through registers, where it is split, into planes of lines of 64
 *                +----------+         lanes, which the units take turned; bfloat16 of a is copied there as it is,
 * some 64 rows  |   tile   | group 1 chunks ahead.  There are two slots for what is split: while one is multiplied,
 *                +----------+         the next chunk, which has come into registers, is put into the other one, and
 *                                     the one behind it is on its way.
 *
 * Of float32 each chunk begins at zero, and is added to the sum with rounding, since the units cut off what they add.
 * With two parts, what is cut off in a few thousand steps does no harm.
 */
#include <machine/bulk.cuh>
#include <machine/copies.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/wgmma.cuh>
#include <type_traits>

#include "product_parts.cuh"

using product_parts::CHUNK;
using product_parts::offset_of;
using product_parts::parts_of;
using product_parts::split;
using product_parts::TILE;

namespace
{

template <typename T> constexpr bool IS_BRAIN = std::is_same<T, bf16>::value;
template <typename T> constexpr int GROUPS = IS_BRAIN<T> ? RL_PARTS_GROUPS_OVER_STEPS_16 : RL_PARTS_GROUPS_OVER_STEPS;
template <typename T> constexpr int THREADS = GROUPS<T> * 128;
template <typename T> constexpr int ROWS = GROUPS<T> *TILE;

constexpr int SLOTS = 2, AHEAD = 4; /* AHEAD: chunks of a that are copied before they are multiplied */
constexpr int LINE = 64;            /* lanes */
constexpr int ATOM = 8 * LINE * 2, PANEL = CHUNK * LINE * 2; /* bytes: of 8 steps, of all */

/*
 * A unit is 16 bytes of global memory: lanes of one step.  A thread has units of one step only, which it shares with
 * others.  The steps of a warp are such that, exchanged, their units fall into different banks.
 */
template <typename T, int LANES, int THREAD_COUNT> struct Units {
    static constexpr int ACROSS = THREAD_COUNT / CHUNK, EACH = 16 / sizeof(T), NEXT = ACROSS * EACH;
    static constexpr int COUNT = (LANES + NEXT - 1) / NEXT;

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
    __device__ static int step()
    {
        const int i = threadIdx.x / ACROSS;
        return ACROSS == 8 ? (i & ~6) | (i & 2) << 1 | (i & 4) >> 1 : i;
    }
};

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
template <typename T, int LANES, int PARTS, int THREAD_COUNT> struct Planes {
    static constexpr int PANELS = (LANES + LINE - 1) / LINE, PLANE = PANELS * PANEL, BYTES = PARTS * PLANE;
    using Mine = Units<T, LANES, THREAD_COUNT>;

    __device__ static unsigned char *place(unsigned char *planes, int i)
    {
        const int step = Mine::step(), lane = Mine::first() + i * Mine::NEXT, in_panel = lane % LINE;
        return planes + lane / LINE * PANEL + step * (2 * LINE) + ((in_panel / 8) ^ (step % 8)) * 16 +
               in_panel % 8 * 2;
    }

    __device__ static void put(unsigned char *planes, const Mine &mine)
    {
        constexpr int EACH = Mine::EACH;
        struct alignas(EACH * 2) Words {
            uint32_t word[EACH / 2];
        };
#pragma unroll
        for (int i = 0; i < Mine::COUNT; i++) {
            if (!Mine::has(i)) continue;
            uint32_t word[PARTS][EACH / 2];
            split_unit<T, PARTS>(mine.unit[i].lane, word);
#pragma unroll
            for (int k = 0; k < PARTS; k++) *(Words *)(place(planes, i) + k * PLANE) = *(const Words *)word[k];
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
    static constexpr bool ROUNDS = PARTS == 3;  /* what is added up of a chunk */
    static constexpr bool DIRECT = IS_BRAIN<T>; /* a needs no splitting */
    using A = Planes<T, ROWS<T>, COUNT, THREADS<T>>;
    using B = Planes<float, COLUMNS, PARTS, THREADS<T>>;
    using MineA = typename A::Mine;
    using MineB = typename B::Mine;

    /* Shared memory: slots of planes, and those of a alone, of which one is multiplied and the others on their way.
     */
    static constexpr int SLOT = B::BYTES + (DIRECT ? 0 : A::BYTES), OWN_SLOTS = DIRECT ? AHEAD + 1 : 0;
    static constexpr int SHARED = SLOTS * SLOT + OWN_SLOTS * A::BYTES;

    const rl_product_args &p;
    int64_t row0, column0, part, begin, end; /* steps */
    int64_t next_a;                          /* the thread's step of a that comes next */
    const T *from_a;
    const float *from_b; /* the thread's first lanes of the step that it fetches next */
    int own_put, own;    /* where a is copied to next, and where it is multiplied */
    std::conditional_t<DIRECT, char, MineA> a;
    MineB b;
    float sum[COLUMNS / 2], total[ROUNDS ? COLUMNS / 2 : 1];

    __device__ explicit Sum(const rl_product_args &p) : p(p), own_put(0), own(0)
    {
        const int64_t block = blockIdx.x / p.column_blocks, chunks = (p.inner + CHUNK - 1) / CHUNK;
        part = block / p.row_blocks;
        row0 = block % p.row_blocks * ROWS<T>;
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        begin = chunks * part / p.part_count * CHUNK;
        end = min(chunks * (part + 1) / p.part_count * CHUNK, p.inner);
        next_a = begin + MineA::step();
        from_a = (const T *)p.a.data + (row0 + MineA::first()) * p.a.lane + next_a * p.a.step;
        from_b = (const float *)p.b + column0 + MineB::first() + (begin + MineB::step()) * p.b_row;
    }

    __device__ int64_t step_offset(int64_t k) const
    {
        return p.a.even ? k * p.a.step : offset_of(p, p.a, k);
    }

    __device__ void fetch_b(int64_t k0)
    {
        const int columns = (int)min(p.columns - column0, (int64_t)COLUMNS) - MineB::first();
#pragma unroll
        for (int i = 0; i < MineB::COUNT; i++) {
            b.unit[i] = {};
            const int left = k0 + MineB::step() < end ? columns - i * MineB::NEXT : 0;
            if (left >= MineB::EACH) {
                b.unit[i] = *(const typename MineB::Unit *)(from_b + i * MineB::NEXT);
            } else { /* what pads a row is nobody's */
#pragma unroll
                for (int j = 0; j < MineB::EACH - 1; j++)
                    if (j < left) b.unit[i].lane[j] = from_b[i * MineB::NEXT + j];
            }
        }
        from_b += CHUNK * p.b_row;
    }

    /* Lanes of a that exist from the thread's first one on, in the step that comes next; where they lie. */
    __device__ int seek_a()
    {
        if (next_a >= end) return 0;
        if (!p.a.even) from_a = (const T *)p.a.data + (row0 + MineA::first()) * p.a.lane + offset_of(p, p.a, next_a);
        return (int)min(p.rows - row0, (int64_t)ROWS<T>) - MineA::first();
    }
    __device__ void leave_a()
    {
        next_a += CHUNK;
        from_a += CHUNK * p.a.step;
    }
    __device__ typename MineA::Unit load_a(int i, int rows) const
    {
        typename MineA::Unit unit = {};
        if (p.a.wide && rows - i * MineA::NEXT >= MineA::EACH)
            return *(const typename MineA::Unit *)(from_a + i * MineA::NEXT);
#pragma unroll
        for (int j = 0; j < MineA::EACH; j++)
            if (i * MineA::NEXT + j < rows) unit.lane[j] = from_a[(i * MineA::NEXT + j) * p.a.lane];
        return unit;
    }

    __device__ void fetch_a()
    {
        const int rows = seek_a();
#pragma unroll
        for (int i = 0; i < MineA::COUNT; i++) a.unit[i] = load_a(i, rows);
        leave_a();
    }

    /* Lanes beyond the last, and steps, are zeros. */
    __device__ void copy_a()
    {
        const int rows = seek_a();
        unsigned char *const to = own_slot(own_put);
        own_put = own_put + 1 == OWN_SLOTS ? 0 : own_put + 1;
#pragma unroll
        for (int i = 0; i < MineA::COUNT; i++) {
            const int left = min(max(rows - i * MineA::NEXT, 0), MineA::EACH);
            if (p.a.wide)
                copy_async_16(A::place(to, i), left ? from_a + i * MineA::NEXT : (const T *)p.a.data,
                              left * (int)sizeof(T));
            else
                *(typename MineA::Unit *)A::place(to, i) = load_a(i, rows);
        }
        close_copies();
        leave_a();
    }

    __device__ void fetch(int64_t k0)
    {
        fetch_b(k0);
        if constexpr (!DIRECT) fetch_a();
    }

    __device__ static unsigned char *own_slot(int slot)
    {
        return dynamic_shared + SLOTS * SLOT + slot * A::BYTES;
    }

    __device__ void put(int slot) const
    {
        unsigned char *const planes = dynamic_shared + slot * SLOT;
        B::put(planes, b);
        if constexpr (!DIRECT) A::put(planes + B::BYTES, a);
    }

    __device__ void multiply(int slot, bool adds)
    {
        const unsigned char *const from_b = dynamic_shared + slot * SLOT;
        const unsigned char *const from_a = DIRECT ? own_slot(own) : from_b + B::BYTES;
        const int group = threadIdx.x / 128;
        if (DIRECT) own = own + 1 == OWN_SLOTS ? 0 : own + 1;
        hold(sum);
        products_fence();
        if (row0 + group * TILE < p.rows) {
#pragma unroll
            for (int order = PARTS - 1; order >= 0; order--)
#pragma unroll
                for (int product = 0; product < CHUNK / 16; product++)
#pragma unroll
                    for (int i = COUNT - 1; i >= 0; i--) {
                        if (order < i) continue;
                        product_of_tiles<BF16, COLUMNS, true, true>(sum, A::describe(from_a, i, group, product),
                                                                    B::describe(from_b, order - i, 0, product), adds);
                        adds = true;
                    }
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
        if constexpr (DIRECT) wait_copies<AHEAD - 1>();
        shared_publish();
        __syncthreads(); /* the chunk is complete, and nobody multiplies with the one before any more */
    }

    __device__ void run()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
#pragma unroll
        for (int i = 0; ROUNDS && i < COLUMNS / 2; i++) total[i] = 0;
        for (int i = 0; DIRECT && i < AHEAD; i++) copy_a();
        fetch(begin);
        put(0);
        fetch(begin + CHUNK);
        publish();
        int slot = 0;
        for (int64_t k = begin; k < end; k += CHUNK, slot ^= 1) {
            multiply(slot, !ROUNDS && k > begin);
            put(slot ^ 1);
            if constexpr (DIRECT) copy_a();
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
        const int64_t row = row0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const int64_t column = column0 + threadIdx.x % 4 * 2;
        const int rows = (int)min(p.rows - row, (int64_t)ROWS<T>),
                  columns = (int)min(p.columns - column, (int64_t)COLUMNS);
        float *const out = (float *)p.parts + (part * p.columns + column) * p.rows + row;
        uint32_t again[WORDS] = {};
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const int r = i / 2 % 2 * 8, c = i / 4 * 8 + i % 2;
            if (c >= columns || r >= rows) continue;
            out[c * p.rows + r] = result(i);
            if (!is_finite(result(i))) again[i / 32] |= 1u << (i % 32);
        }
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
#pragma unroll 1
            for (uint32_t left = again[word]; left; left &= left - 1) {
                const int i = 32 * word + __ffs((int)left) - 1, r = i / 2 % 2 * 8, c = i / 4 * 8 + i % 2;
                out[c * p.rows + r] = sum_plainly(row + r, column + c);
            }
        }
    }
};

/* Of a multiprocessor. */
template <typename T, int COLUMNS, int PARTS>
constexpr int BLOCKS = !IS_BRAIN<T> && COLUMNS == RL_PARTS_NARROW && PARTS == 2 ? 2 : 1;

template <typename T, int COLUMNS, int PARTS>
__global__ void __launch_bounds__(THREADS<T>, BLOCKS<T, COLUMNS, PARTS>)
    steps_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) Sum<T, COLUMNS, PARTS>(p).run();
}

template <typename T, int COLUMNS, int PARTS> rl_product_kernel_of pick()
{
    return {kernel_address<steps_kernel<T, COLUMNS, PARTS>>(), Sum<T, COLUMNS, PARTS>::SHARED, THREADS<T>, ROWS<T>,
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
