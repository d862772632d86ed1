/*
 * Sums over steps by the units for bfloat16, as product_parts.cuh has them:  out[row, column] = Σ_k a[k, row] b[k,
 * column], in parts of the steps.
 *
 *              96 or 144 columns      A block's two groups have 64 rows each.  Both factors lie
 *                +----------+         with their lanes next to each other, and so they stay, in lines of 64 lanes
 *       64 rows  |   tile   | group 0 which the units take turned.  A chunk of 32 steps is copied into shared memory
 *                +----------+         some chunks ahead: bfloat16 to where the units find it, floats to where the
 *       64 rows  |   tile   | group 1 thread that has copied them will split them into planes.  Of planes there are
 *                +----------+         two slots: while one is multiplied, the next one is filled, by a group that
 * does nothing else, for who brings products on their way must wait for the units.
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
using product_parts::ROOM;
using product_parts::split;
using product_parts::TILE;

namespace
{

constexpr int GROUPS = RL_PARTS_GROUPS_OVER_STEPS, ROWS = GROUPS * TILE;
template <typename T> constexpr bool IS_BRAIN = std::is_same<T, bf16>::value;
template <typename T> constexpr int MOVERS = IS_BRAIN<T> ? 256 : 128; /* threads: products of bfloat16 are fewer */
template <typename T> constexpr int THREADS = GROUPS * 128 + MOVERS<T>;

constexpr int LINE = 64;                                     /* lanes */
constexpr int ATOM = 8 * LINE * 2, PANEL = CHUNK * LINE * 2; /* bytes: of 8 steps, of all */
constexpr int SLOTS = 2, MOST_AHEAD = 4;                     /* chunks on their way */

/*
 * A unit is 16 bytes of global memory: lanes of one step.  A mover has units of one step only, and shares it with
 * others.  The steps of a warp are such that, exchanged, their units fall into different banks.
 */
template <typename T, int LANES, int THREAD_COUNT> struct Units {
    static constexpr int ACROSS = THREAD_COUNT / CHUNK, EACH = 16 / sizeof(T), NEXT = ACROSS * EACH;
    static constexpr int COUNT = (LANES + NEXT - 1) / NEXT, BYTES = COUNT * THREAD_COUNT * 16;

    struct alignas(16) Unit {
        T lane[EACH];
    };

    __device__ static int first()
    {
        return threadIdx.x % ACROSS * EACH; /* movers are the last of a number of warps */
    }
    __device__ static bool has(int i)
    {
        return LANES % NEXT == 0 || first() + i * NEXT < LANES;
    }
    __device__ static int step()
    {
        const int i = threadIdx.x % THREAD_COUNT / ACROSS;
        return ACROSS == 8 ? (i & ~6) | (i & 2) << 1 | (i & 4) >> 1 : i;
    }
    /* Where it waits. */
    __device__ static unsigned char *place(unsigned char *units, int i)
    {
        return units + (i * THREAD_COUNT + threadIdx.x % THREAD_COUNT) * 16;
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

    __device__ static unsigned char *place(unsigned char *planes, int lane)
    {
        const int step = Mine::step(), in_panel = lane % LINE;
        return planes + lane / LINE * PANEL + step * (2 * LINE) + ((in_panel / 8) ^ (step % 8)) * 16 +
               in_panel % 8 * 2;
    }

    /* Splits what has come. */
    __device__ static void put(unsigned char *planes, unsigned char *units)
    {
        constexpr int EACH = Mine::EACH;
        struct alignas(EACH * 2) Words {
            uint32_t word[EACH / 2];
        };
#pragma unroll
        for (int i = 0; i < Mine::COUNT; i++) {
            if (!Mine::has(i)) continue;
            const typename Mine::Unit unit = *(const typename Mine::Unit *)Mine::place(units, i);
            uint32_t word[PARTS][EACH / 2];
            split_unit<T, PARTS>(unit.lane, word);
            unsigned char *to = place(planes, Mine::first() + i * Mine::NEXT);
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
    static constexpr bool ROUNDS = PARTS == 3;  /* what is added up of a chunk */
    static constexpr bool DIRECT = IS_BRAIN<T>; /* a needs no splitting */
    using A = Planes<T, ROWS, COUNT, MOVERS<T>>;
    using B = Planes<float, COLUMNS, PARTS, MOVERS<T>>;
    using MineA = typename A::Mine;
    using MineB = typename B::Mine;

    /* Shared memory: slots of planes, those of a alone, and what is on its way. */
    static constexpr int SLOT = B::BYTES + (DIRECT ? 0 : A::BYTES), OWN = DIRECT ? A::BYTES : 0;
    static constexpr int RAW = MineB::BYTES + (DIRECT ? 0 : MineA::BYTES);
    static constexpr int FITTING = (ROOM - SLOTS * SLOT - 2 * OWN) / (RAW + OWN);
    static constexpr int AHEAD = FITTING < MOST_AHEAD ? FITTING : MOST_AHEAD, OWN_SLOTS = DIRECT ? AHEAD + 2 : 0;
    static constexpr int SHARED = SLOTS * SLOT + OWN_SLOTS * OWN + AHEAD * RAW;
    static_assert(AHEAD >= 2 && SHARED <= ROOM, "chunks are on their way");

    const rl_product_args &p;
    int64_t row0, column0, part, begin, end; /* steps */
    int64_t next;                            /* the thread's step of the chunk that is copied next */
    const T *from_a;
    const float *from_b; /* the thread's first lanes of it */
    int copied, taken;   /* where it will wait, and what waits longest: 0 to AHEAD - 1 */
    int own_put, own;    /* where a's planes go next, and where they are multiplied */
    float sum[COLUMNS / 2], total[ROUNDS ? COLUMNS / 2 : 1];

    __device__ explicit Sum(const rl_product_args &p) : p(p), copied(0), taken(0), own_put(0), own(0)
    {
        const int64_t block = blockIdx.x / p.column_blocks, chunks = (p.inner + CHUNK - 1) / CHUNK;
        part = block / p.row_blocks;
        row0 = block % p.row_blocks * ROWS;
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        begin = chunks * part / p.part_count * CHUNK;
        end = min(chunks * (part + 1) / p.part_count * CHUNK, p.inner);
        next = begin + MineA::step();
        from_a = (const T *)p.a.data + (row0 + MineA::first()) * p.a.lane + next * p.a.step;
        from_b = (const float *)p.b + column0 + MineB::first() + next * p.b_row;
    }

    __device__ int64_t step_offset(int64_t k) const
    {
        return p.a.even ? k * p.a.step : offset_of(p, p.a, k);
    }

    __device__ unsigned char *slot_of(int slot) const
    {
        return dynamic_shared + slot * SLOT;
    }
    __device__ unsigned char *own_slot(int slot) const
    {
        return dynamic_shared + SLOTS * SLOT + slot * OWN;
    }
    __device__ unsigned char *raw(int which) const
    {
        return dynamic_shared + SLOTS * SLOT + OWN_SLOTS * OWN + which * RAW;
    }

    /* Lanes beyond the last, and steps, are zeros. */
    __device__ void copy_b(unsigned char *to) const
    {
        const int columns = next < end ? (int)min(p.columns - column0, (int64_t)COLUMNS) - MineB::first() : 0;
#pragma unroll
        for (int i = 0; i < MineB::COUNT; i++) {
            if (!MineB::has(i)) continue;
            const int left = min(max(columns - i * MineB::NEXT, 0), MineB::EACH);
            copy_async_16(MineB::place(to, i), left ? from_b + i * MineB::NEXT : (const float *)p.b, left * 4);
        }
    }

    __device__ void copy_a(unsigned char *to)
    {
        const int rows = next < end ? (int)min(p.rows - row0, (int64_t)ROWS) - MineA::first() : 0;
        if (!p.a.even && next < end)
            from_a = (const T *)p.a.data + (row0 + MineA::first()) * p.a.lane + offset_of(p, p.a, next);
#pragma unroll
        for (int i = 0; i < MineA::COUNT; i++) {
            if (!MineA::has(i)) continue;
            const int lane = MineA::first() + i * MineA::NEXT,
                      left = min(max(rows - i * MineA::NEXT, 0), MineA::EACH);
            unsigned char *const place = DIRECT ? A::place(to, lane) : MineA::place(to, i);
            if (p.a.wide) {
                copy_async_16(place, left ? from_a + i * MineA::NEXT : (const T *)p.a.data, left * (int)sizeof(T));
            } else {
                typename MineA::Unit unit = {};
#pragma unroll
                for (int j = 0; j < MineA::EACH; j++)
                    if (j < left) unit.lane[j] = from_a[(i * MineA::NEXT + j) * p.a.lane];
                *(typename MineA::Unit *)place = unit;
            }
        }
    }

    /* Brings the next chunk on its way. */
    __device__ void copy()
    {
        unsigned char *const to = raw(copied);
        copied = copied + 1 == AHEAD ? 0 : copied + 1;
        copy_b(to);
        copy_a(DIRECT ? own_slot(own_put) : to + MineB::BYTES);
        if (DIRECT) own_put = own_put + 1 == OWN_SLOTS ? 0 : own_put + 1;
        close_copies();
        next += CHUNK;
        from_a += CHUNK * p.a.step;
        from_b += CHUNK * p.b_row;
    }

    /* Splits the chunk that was copied first; a thread splits its own copies. */
    __device__ void put(int slot)
    {
        unsigned char *const from = raw(taken);
        wait_copies<AHEAD - 1>();
        taken = taken + 1 == AHEAD ? 0 : taken + 1;
        B::put(slot_of(slot), from);
        if constexpr (!DIRECT) A::put(slot_of(slot) + B::BYTES, from + MineB::BYTES);
    }

    __device__ void multiply(int slot, bool adds)
    {
        const unsigned char *const b = slot_of(slot), *const a = DIRECT ? own_slot(own) : b + B::BYTES;
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
                        product_of_tiles<BF16, COLUMNS, true, true>(sum, A::describe(a, i, group, product),
                                                                    B::describe(b, order - i, 0, product), adds);
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
        shared_publish();
        __syncthreads(); /* the chunk is complete, and nobody multiplies with the one before any more */
    }

    __device__ int chunks() const
    {
        return begin < end ? (int)((end - begin + CHUNK - 1) / CHUNK) : 0;
    }

    /* The movers' way through the chunks, and that of the groups that multiply. */
    __device__ void move()
    {
        for (int i = 0; i < AHEAD; i++) copy();
        put(0);
        copy();
        publish();
        for (int chunk = 0; chunk < chunks(); chunk++) {
            put((chunk + 1) % SLOTS);
            copy();
            publish();
        }
    }

    __device__ void add_up()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
#pragma unroll
        for (int i = 0; ROUNDS && i < COLUMNS / 2; i++) total[i] = 0;
        publish();
        for (int chunk = 0; chunk < chunks(); chunk++) {
            multiply(chunk % SLOTS, !ROUNDS && chunk > 0);
            finish();
            publish();
        }
        store();
    }

    __device__ void run()
    {
        if (threadIdx.x >= GROUPS * 128)
            move();
        else
            add_up();
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
        const int rows = (int)min(p.rows - row, (int64_t)ROWS),
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

template <typename T, int COLUMNS, int PARTS>
__global__ void __launch_bounds__(THREADS<T>, 1) steps_kernel(const __grid_constant__ rl_product_args p)
{
    let_later_start();
    await_earlier();
    if constexpr (HAS_PRODUCTS) Sum<T, COLUMNS, PARTS>(p).run();
}

template <typename T, int COLUMNS, int PARTS> rl_product_kernel_of pick()
{
    return {kernel_address<steps_kernel<T, COLUMNS, PARTS>>(), Sum<T, COLUMNS, PARTS>::SHARED, THREADS<T>, ROWS,
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
