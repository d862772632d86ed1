/*
 * Products of float32 accuracy on the units for 16 bits.  Over lanes a float is taken as the sum of two float16
 * numbers, which leaves out at most its last bit, and of the four products of two such sums the three large ones
 * (what is left out is below 2^-22 of the product, and near 2^-26 mostly).  Powers of two bring the largest of a
 * row's chunk, and of a column, near 2^14; sums that are far below what these could make are summed again by
 * multiply-adds.  Over steps, where rows have no such scale, a float is the exact sum of three bfloat16 numbers, and
 * of the nine products the six large ones are taken, 2^-24.  For gradients of 16-bit data two parts of bfloat16 are
 * enough, 2^-16, and one of what is bfloat16; 16-bit data are one part.
 *
 *                     96 columns        A group of 128 threads has a tile of 64 rows.  b is split into planes in
 *                   +----------+        shared memory, 32 of k to a slot, which all groups of the block share: once,
 *      a: 64 rows   |   tile   | group  or where slots are too few again and again.  Of a, a thread copies what it
 *                   +----------+        holds of it as units of products take it into shared memory of its own, some
 *         64 rows   |   tile   | group  chunks of 32 of k ahead, and splits it in registers.
 *                   +----------+
 *
 * The units cut off what they add.  So of float32 a chunk of 32 of k begins at zero, adds the small products first,
 * and is then added to the sum with rounding; chunks follow each other in order.  k is in another order within a
 * chunk, of a and b alike: thread q of four has eight neighbours, of which the first two go where the units' first
 * columns are.
 *
 *     k = 8 q + 4 s + 2 h + e   is column   2 q + 8 h + e   of the chunk's product s
 *
 * An infinity has no parts.  Whatever comes out not finite is summed again by multiply-adds.
 */
#ifndef RL_CUDA_PRODUCT_PARTS_CUH
#define RL_CUDA_PRODUCT_PARTS_CUH

#include <machine/bulk.cuh>
#include <machine/copies.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/wgmma.cuh>
#include <type_traits>

#include "elements.cuh"
#include "numbers.cuh"
#include "product_args.h"

namespace product_parts
{

constexpr int TILE = RL_PARTS_TILE, CHUNK = RL_PARTS_CHUNK, MINE = 8, LINE = CHUNK * 2;
constexpr int UNIT = 16, UNITS = 128 * UNIT; /* bytes: of a thread, of a group */
constexpr int ROOM = 227 * 1024;             /* bytes of shared memory */

/* Parts that are needed of a bfloat16, float16 or float32 for products with `PARTS` of something else. */
template <typename T, int PARTS> constexpr int parts_of = sizeof(T) == 4 ? PARTS : 2;
template <int PARTS> constexpr int parts_of<bf16, PARTS> = 1;

/*
 * What is multiplied: a of type T in so many parts, b in so many, of which products up to some order are taken; and
 * by how many groups of a block, in tiles of how many columns, with how many chunks of a group's own rows on their
 * way.
 */
template <typename Type, int A_COUNT, int B_COUNT, int GROUP_COUNT, int COLUMN_COUNT, int STAGE_COUNT,
          Number KIND = BF16>
struct Way {
    using T = Type;
    static constexpr int A_PARTS = A_COUNT, B_PARTS = B_COUNT, ORDERS = A_COUNT > B_COUNT ? A_COUNT : B_COUNT;
    static constexpr int GROUPS = GROUP_COUNT, THREADS = GROUPS * 128, ROWS = GROUPS * TILE, COLUMNS = COLUMN_COUNT;
    static constexpr Number NUMBER = KIND;
    static constexpr bool SCALES = KIND == F16 && sizeof(T) == 4;
    static constexpr bool ROUNDS = SCALES;                /* what is added up of a chunk */
    static constexpr int SCALE_BYTES = SCALES ? 2048 : 0; /* of b's columns, in front of the planes */
    static_assert(!SCALES || COLUMNS * 2 * sizeof(float) <= SCALE_BYTES, "a scale up and down of each column");

    /* Shared memory: what is on its way, the scales, and as many slots for chunks of b as there is room for. */
    static constexpr int STAGES = STAGE_COUNT, STAGE = TILE * CHUNK * (int)sizeof(T), FEED = GROUPS * STAGES * STAGE;
    static constexpr int SLOT = COLUMNS * LINE * B_PARTS, SLOTS = (ROOM - FEED - SCALE_BYTES) / SLOT;
    static_assert(SLOTS >= 4, "halves of the slots are filled in turn");
};

template <int COUNT> __device__ inline void split(float low, float high, uint32_t (&part)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        part[i] = pack_bfloats(low, high);
        low -= __uint_as_float(part[i] << 16);
        high -= __uint_as_float(part[i] & 0xffff0000u);
    }
}

/* Powers of two that bring the largest of some numbers near 2^14, and back (of zeros: to 0).  The very small may lose
 * bits. */
struct Scale {
    float up, down;
};
__device__ inline Scale scale_of(float most)
{
    const uint32_t exponent = max(__float_as_uint(most) >> 23, 15u);
    return {__uint_as_float((268 - exponent) << 23), most > 0 ? __uint_as_float((exponent - 14) << 23) : 0};
}

/* Two float16 of each, beside each other: of a number below 2^15 all but its last bit. */
__device__ inline void split_halves(float low, float high, uint32_t (&part)[2])
{
    part[0] = pack_halves(low, high);
    part[1] = pack_halves(low - half_to_float((uint16_t)part[0]), high - half_to_float((uint16_t)(part[0] >> 16)));
}

__device__ inline int64_t offset_of(const rl_product_args &p, const rl_product_rows &rows, int64_t row)
{
    if (rows.even) return row * rows.step;
    const int64_t batch = row / p.length;
    return batch * rows.batch + (row - batch * p.length) * rows.step;
}

/* What a thread has of a chunk: of each of its two rows, neighbours that four threads share. */
constexpr int COUNT = 2 * MINE;
__device__ constexpr int index_of(int half, int i)
{
    return half * MINE + i;
}

template <typename T> __device__ inline Scale scale_row(const T (&value)[COUNT], int half)
{
    float most = 0;
#pragma unroll
    for (int i = 0; i < MINE; i++) most = fmaxf(most, fabsf(widen(value[index_of(half, i)])));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    return scale_of(fmaxf(most, __shfl_xor_sync(~0u, most, 2)));
}

/*
 * The units' words of a chunk: of product s and part i of[s PARTS + i]; and what the products of each half are to be
 * multiplied with.
 */
template <typename Way>
__device__ inline void split_rows(const typename Way::T (&value)[COUNT], uint32_t (&of)[2 * Way::A_PARTS][4],
                                  float (&down)[2])
{
    using T = typename Way::T;
    constexpr int PARTS = Way::A_PARTS;
    Scale scale[2] = {};
#pragma unroll
    for (int row = 0; Way::SCALES && row < 2; row++) {
        scale[row] = scale_row(value, row);
        down[row] = scale[row].down;
    }
#pragma unroll
    for (int word = 0; word < 8; word++) {
        const int s = word / 4, half = word / 2 % 2, row = word % 2, k = 4 * s + 2 * half;
        const T low = value[index_of(row, k)], high = value[index_of(row, k + 1)];
        if constexpr (sizeof(T) == 2) {
            of[s][row + 2 * half] = low.bits | (uint32_t)high.bits << 16;
        } else {
            uint32_t part[PARTS];
            if constexpr (Way::SCALES)
                split_halves(widen(low) * scale[row].up, widen(high) * scale[row].up, part);
            else
                split(widen(low), widen(high), part);
#pragma unroll
            for (int i = 0; i < PARTS; i++) of[s * PARTS + i][row + 2 * half] = part[i];
        }
    }
}

/* A thread's part of a: two rows, eight of k in a chunk. */
template <typename Way> struct Feed {
    using T = typename Way::T;
    static constexpr int STAGES = Way::STAGES, STAGE = Way::STAGE;
    static constexpr int PER_UNIT = UNIT / (int)sizeof(T);

    struct alignas(UNIT) Line {
        T value[PER_UNIT];
    };

    const rl_product_args &p;
    int chunks, chunk, left;    /* of k; the one that is fetched next; all to come, of all tiles */
    int64_t row0, row_step;     /* the tile's first row; from tile to tile */
    const T *at[2];             /* the rows */
    int own;                    /* where the first stage is */
    int lane, warp, put, taken; /* put, taken: stages */

    __device__ explicit Feed(const rl_product_args &p)
        : p(p), chunks((int)((p.inner + CHUNK - 1) / CHUNK)), put(0), taken(0)
    {
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32 % 4;
        own = threadIdx.x / 128 * (STAGES * STAGE) + threadIdx.x % 128 * UNIT;
    }

    __device__ int64_t row_of(int64_t first, int half) const
    {
        return first + 16 * warp + lane / 4 + 8 * half;
    }

    /* Rows beyond the last are taken for the last; they are not stored. */
    __device__ const T *seek(int64_t first, int half) const
    {
        const int64_t row = min(row_of(first, half), p.rows - 1);
        return (const T *)p.a.data + offset_of(p, p.a, row);
    }

    __device__ void start(int64_t first_row, int64_t step, int count)
    {
        row0 = first_row;
        row_step = step;
        left = count;
        chunk = 0;
        for (int half = 0; half < 2; half++) at[half] = seek(row0, half);
        for (int i = 0; i < STAGES; i++) fetch();
    }

    __device__ void copy(unsigned char *to, int64_t k) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < MINE; i += PER_UNIT)
                copy_async_16(to + index_of(half, i) / PER_UNIT * UNITS, at[half] + k + i, UNIT);
    }

    /* The same of a last chunk, which is filled up with zeros; of four numbers that are partly there each by itself.
     */
    __device__ void copy_rest(unsigned char *to, int64_t k) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < MINE; i += PER_UNIT) {
                const int left = (int)min(max(p.inner - k - i, (int64_t)0), (int64_t)PER_UNIT);
                const T *const from = at[half] + (left ? k + i : 0);
                unsigned char *const unit = to + index_of(half, i) / PER_UNIT * UNITS;
                if (left == 0 || left == PER_UNIT) {
                    copy_async_16(unit, from, left * (int)sizeof(T));
                    continue;
                }
#pragma unroll
                for (int j = 0; j < PER_UNIT; j++) ((T *)unit)[j] = j < left ? from[j] : T{};
            }
    }

    /* Brings the next chunk on its way, if there is one. */
    __device__ void fetch()
    {
        const int64_t k = (int64_t)chunk * CHUNK + lane % 4 * MINE;
        unsigned char *to = dynamic_shared + own + put * STAGE;
        put = put + 1 == STAGES ? 0 : put + 1;
        if (left > 0) {
            if (!p.a.wide)
                put_one_by_one(to, k);
            else if ((int64_t)(chunk + 1) * CHUNK <= p.inner)
                copy(to, k);
            else
                copy_rest(to, k);
            left--;
            if (++chunk == chunks) next_tile();
        }
        close_copies();
    }

    __device__ void next_tile()
    {
        chunk = 0;
        row0 += row_step;
#pragma unroll
        for (int half = 0; half < 2; half++) at[half] = seek(row0, half);
    }

    __device__ void put_one_by_one(unsigned char *to, int64_t k) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll 1
            for (int i = 0; i < MINE; i++) {
                const int64_t mine = k + i;
                const int index = index_of(half, i);
                *(T *)(to + index / PER_UNIT * UNITS + index % PER_UNIT * sizeof(T)) =
                    mine < p.inner ? at[half][mine * p.a.lane] : T{};
            }
    }

    /* The units' words of the chunk that was fetched first. */
    __device__ void take(uint32_t (&of)[2 * Way::A_PARTS][4], float (&down)[2])
    {
        T value[COUNT];
        wait_copies<STAGES - 1>();
        const unsigned char *from = dynamic_shared + own + taken * STAGE;
        taken = taken + 1 == STAGES ? 0 : taken + 1;
#pragma unroll
        for (int i = 0; i < COUNT; i += PER_UNIT) {
            const Line line = *(const Line *)(from + i / PER_UNIT * UNITS);
#pragma unroll
            for (int j = 0; j < PER_UNIT; j++) value[i + j] = line.value[j];
        }
        split_rows<Way>(value, of, down);
    }
};

#include "product_parts_split.cuh"

/* sum (+)= the products of a chunk, the small ones first. */
template <typename Way>
__device__ inline void multiply(float (&sum)[Way::COLUMNS / 2], const uint32_t (&words)[2 * Way::A_PARTS][4],
                                int slot, bool adds)
{
    constexpr int PLANE = Way::COLUMNS * LINE;
    const unsigned char *planes = dynamic_shared + Way::FEED + Way::SCALE_BYTES + slot * Way::SLOT;
#pragma unroll
    for (int order = Way::ORDERS - 1; order >= 0; order--)
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int i = Way::A_PARTS - 1; i >= 0; i--) {
                if (order < i || order - i >= Way::B_PARTS) continue;
                const uint64_t b = tile_descriptor(planes + (order - i) * PLANE + 32 * s, 16, 8 * LINE, SWIZZLE_64);
                product_of_registers<Way::NUMBER, Way::COLUMNS, false>(sum, words[s * Way::A_PARTS + i], b, adds);
                adds = true;
            }
}

} // namespace product_parts

#endif
