/*
 * Tiles of 64 x 64 float32 numbers as operands of the units for bfloat16, by a warpgroup for each chunk.  A number is
 * the exact sum of three of bfloat16, and of the nine products of two such sums the six large ones are taken; what is
 * left out is below 2^-24 of the product.  The units cut off what they add: so a product begins at zero, with its
 * small parts, and is then added to others with rounding.
 *
 * A tile's three planes lie in shared memory as swizzles of 128 bytes have them, a line a row.  A thread brings eight
 * neighbours of every sixteenth row.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_PARTS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_PARTS_CUH

#include <machine/bulk.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_floats_chunk.cuh"

namespace attention_floats
{

constexpr int SIDE = RL_FLOATS_MOST_WIDE, GROUP = 128, PARTS = 3, LINE = SIDE * 2, PLANE = SIDE * LINE;
constexpr int OPERAND = PARTS * PLANE; /* bytes */
constexpr int TURNS = SIDE / 16; /* instructions of a product of two planes */
constexpr int RUN = 8, ROWS_ON = GROUP / (SIDE / RUN), TURNS_OF = SIDE / ROWS_ON;

__device__ __forceinline__ void split_parts(float low, float high, uint32_t (&part)[PARTS])
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        part[i] = pack_bfloats(low, high);
        low -= __uint_as_float(part[i] << 16);
        high -= __uint_as_float(part[i] & 0xffff0000u);
    }
}

/* Where eight neighbours of a row of a plane lie. */
__device__ __forceinline__ unsigned char *run_of(unsigned char *plane, int row, int run)
{
    return plane + row * LINE + (run ^ row % 8) * 16;
}

/* A thread's part of a tile on its way. */
struct Raw {
    float4 number[TURNS_OF][2];

    __device__ __forceinline__ static int row(int turn, int thread)
    {
        return turn * ROWS_ON + thread / (SIDE / RUN);
    }
    __device__ __forceinline__ static int run(int thread)
    {
        return thread % (SIDE / RUN);
    }
    /* Of rows that lie `step` apart, which are pieces of 16 bytes; the rest is 0. */
    __device__ __forceinline__ void load(const float *from, int64_t step, int steps, int lanes, int thread)
    {
        const float *at = from + row(0, thread) * step + run(thread) * RUN;
#pragma unroll
        for (int turn = 0; turn < TURNS_OF; turn++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                number[turn][i] = float4{0, 0, 0, 0};
                if (row(turn, thread) < steps && run(thread) * RUN + i * 4 < lanes)
                    number[turn][i] = *(const float4 *)(at + turn * ROWS_ON * step + i * 4);
            }
    }
    __device__ __forceinline__ void make_finite()
    {
#pragma unroll
        for (int turn = 0; turn < TURNS_OF; turn++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float4 &own = number[turn][i];
                own.x = is_finite(own.x) ? own.x : 0, own.y = is_finite(own.y) ? own.y : 0;
                own.z = is_finite(own.z) ? own.z : 0, own.w = is_finite(own.w) ? own.w : 0;
            }
    }
    /* Rows times `weights`, if given. */
    __device__ __forceinline__ void weigh(const float *weights, int thread)
    {
#pragma unroll
        for (int turn = 0; turn < TURNS_OF; turn++) {
            const float weight = weights[row(turn, thread)];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float4 &own = number[turn][i];
                own.x *= weight, own.y *= weight, own.z *= weight, own.w *= weight;
            }
        }
    }
    __device__ __forceinline__ void store(unsigned char *planes, int thread) const
    {
#pragma unroll
        for (int turn = 0; turn < TURNS_OF; turn++) {
            uint32_t word[4][PARTS];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float4 own = number[turn][i];
                split_parts(own.x, own.y, word[2 * i]);
                split_parts(own.z, own.w, word[2 * i + 1]);
            }
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                *(uint4 *)run_of(planes + part * PLANE, row(turn, thread), run(thread)) =
                    uint4{word[0][part], word[1][part], word[2][part], word[3][part]};
        }
    }
};

/* A tensor's rows of the chunk, where they are no pieces of 16 bytes: one number after the other. */
__device__ inline void store_one_by_one(unsigned char *planes, const rl_attention_view &view, const Task &task,
                                        int head, int64_t lanes, const float *weights, bool finite)
{
    const int64_t base = task.at(view, head);
    const int steps = task.steps();
#pragma unroll 1
    for (int i = task.thread; i < SIDE * SIDE; i += task.threads) {
        const int step = i / SIDE, lane = i % SIDE;
        float number = 0;
        if (step < steps && lane < lanes)
            number = load_any<float>(view.data, view.dtype, base + step * view.step + lane * view.lane);
        if (finite && !is_finite(number)) number = 0;
        if (weights) number *= weights[step];
        uint32_t part[PARTS];
        split_parts(number, 0, part);
#pragma unroll
        for (int k = 0; k < PARTS; k++)
            ((uint16_t *)run_of(planes + k * PLANE, step, lane / RUN))[lane % RUN] = (uint16_t)part[k];
    }
}

/* A tensor's tile: on its way, and then into planes. */
struct Tensor {
    Raw raw;
    bool wide;

    __device__ __forceinline__ void load(const rl_attention_view &view, bool even, const Task &task, int head,
                                         int64_t lanes)
    {
        wide = even && lanes % 4 == 0;
        if (wide)
            raw.load((const float *)view.data + task.at(view, head), view.step, task.steps(), (int)lanes,
                     task.thread);
    }
    __device__ __forceinline__ void store(unsigned char *planes, const rl_attention_view &view, const Task &task,
                                          int head, int64_t lanes, const float *weights, bool finite)
    {
        if (!wide) {
            store_one_by_one(planes, view, task, head, lanes, weights, finite);
            return;
        }
        if (finite) raw.make_finite();
        if (weights) raw.weigh(weights, task.thread);
        raw.store(planes, task.thread);
    }
};

/* Whether none of a tile's finite numbers is larger, as far as the first plane tells. */
__device__ inline bool planes_are_within(const unsigned char *planes, float most, int thread)
{
    bool within = true;
    for (int i = thread; i < PLANE / 4; i += GROUP) {
        const uint32_t word = ((const uint32_t *)planes)[i];
        const float low = fabsf(__uint_as_float(word << 16)), high = fabsf(__uint_as_float(word & 0xffff0000u));
        within = within && (low <= most || !is_finite(low)) && (high <= most || !is_finite(high));
    }
    return within;
}

/* Operands: a line along what is summed, or rows of it. */
__device__ __forceinline__ uint64_t along(const unsigned char *planes, int part, int turn)
{
    return tile_descriptor(planes + part * PLANE + turn * 32, 0, 8 * LINE, SWIZZLE_128);
}
__device__ __forceinline__ uint64_t across(const unsigned char *planes, int part, int turn)
{
    return tile_descriptor(planes + part * PLANE + turn * (16 * LINE), 0, 8 * LINE, SWIZZLE_128);
}

/* sum = A B. */
template <bool A_ACROSS, bool B_ACROSS>
__device__ __forceinline__ void multiply_planes(float (&sum)[32], const unsigned char *a, const unsigned char *b)
{
    bool adds = false;
#pragma unroll
    for (int order = PARTS - 1; order >= 0; order--)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
            for (int i = order; i >= 0; i--) {
                product_of_tiles<BF16, SIDE, A_ACROSS, B_ACROSS>(
                    sum, A_ACROSS ? across(a, i, turn) : along(a, i, turn),
                    B_ACROSS ? across(b, order - i, turn) : along(b, order - i, turn), adds);
                adds = true;
            }
}
/* The same with A in registers: [turn][part]. */
__device__ __forceinline__ void multiply_parts(float (&sum)[32], const uint32_t (&a)[TURNS][PARTS][4],
                                               const unsigned char *b)
{
    bool adds = false;
#pragma unroll
    for (int order = PARTS - 1; order >= 0; order--)
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
            for (int i = order; i >= 0; i--) {
                product_of_registers<BF16, SIDE, true>(sum, a[turn][i], across(b, order - i, turn), adds);
                adds = true;
            }
}

/* The thread's numbers, with all earlier columns, as A. */
__device__ __forceinline__ void split_sums(uint32_t (&to)[TURNS][PARTS][4], const float (&sum)[32])
{
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = (2 * turn + i / 2) * 4 + i % 2 * 2;
            uint32_t part[PARTS];
            split_parts(sum[at], sum[at + 1], part);
#pragma unroll
            for (int k = 0; k < PARTS; k++) to[turn][k][i] = part[k];
        }
}

} // namespace attention_floats

#endif
