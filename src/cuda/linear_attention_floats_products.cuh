/*
 * Products of float32 tiles in shared memory by a warp, at float32 accuracy.  A number is the sum of two of tf32, its
 * rounding and what that leaves; of the four products the one of both small parts, 2^-22 of the whole, is left out.
 *
 * A warp makes 16 rows.  Tiles are [rows][wide + 4], which keeps all of the accesses below off each other's banks.
 * The contracted axis lies along a tile's rows (`rows_`), or across them (`columns_`); what holds the latter, or sums
 * of the warp's own, takes that axis by pairs: element 2 p of eight is the unit's p-th, 2 p + 1 its (p + 4)-th.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_PRODUCTS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_PRODUCTS_CUH

#include <machine/arithmetic.cuh>
#include <machine/mma.cuh>

namespace attention_floats
{

/* Of the left tile 16 rows, of the right one 8 columns; 8 of the contracted axis. */
struct Left {
    uint32_t big[4], small[4];
};
struct Right {
    uint32_t big[2], small[2];
};

__device__ __forceinline__ int lane_of_warp()
{
    return (int)threadIdx.x % 32;
}
/* A lane has rows group and group + 8, and of 8 columns 2 pair and the next. */
__device__ __forceinline__ int group_of_lane()
{
    return lane_of_warp() / 4;
}
__device__ __forceinline__ int pair_of_lane()
{
    return lane_of_warp() % 4;
}

/* The unit cuts off what tf32 has no room for.  Of the left operand the big part is rounded, which the 0x1000 does.
 */
__device__ __forceinline__ void split_left(float number, uint32_t &big, uint32_t &small)
{
    big = __float_as_uint(number) + 0x1000u;
    small = __float_as_uint(number - __uint_as_float(big & 0xffffe000u));
}
/* Of the right one it is cut, which takes an instruction less; the small part of one is then rounded either way. */
__device__ __forceinline__ void split_right(float number, uint32_t &big, uint32_t &small)
{
    big = __float_as_uint(number);
    small = __float_as_uint(number - __uint_as_float(big & 0xffffe000u));
}
__device__ __forceinline__ void split_left(Left &to, float a, float b, float c, float d)
{
    split_left(a, to.big[0], to.small[0]);
    split_left(b, to.big[1], to.small[1]);
    split_left(c, to.big[2], to.small[2]);
    split_left(d, to.big[3], to.small[3]);
}
__device__ __forceinline__ void split_right(Right &to, float a, float b)
{
    split_right(a, to.big[0], to.small[0]);
    split_right(b, to.big[1], to.small[1]);
}

/* COUNT eights of columns from `first` on, by turns: a product waits for the one before it of the same sum. */
template <int COUNT, int ALL_OF_THEM>
__device__ __forceinline__ void multiply(float (&sums)[ALL_OF_THEM][4], int first, const Left &a,
                                         const Right (&b)[COUNT])
{
#pragma unroll
    for (int n = 0; n < COUNT; n++) product_of_warp<TF32>(sums[first + n], a.small, b[n].big);
#pragma unroll
    for (int n = 0; n < COUNT; n++) product_of_warp<TF32>(sums[first + n], a.big, b[n].small);
#pragma unroll
    for (int n = 0; n < COUNT; n++) product_of_warp<TF32>(sums[first + n], a.big, b[n].big);
}

/* Operands */

template <int PITCH> __device__ __forceinline__ void rows_left(Left &to, const float *tile, int row, int from)
{
    const int lane = lane_of_warp();
    uint32_t raw[4];
    matrices_load<4, false>(raw, tile + (row + lane % 16) * PITCH + from + lane / 16 * 4);
    split_left(to, __uint_as_float(raw[0]), __uint_as_float(raw[1]), __uint_as_float(raw[2]),
               __uint_as_float(raw[3]));
}
/* Two neighbouring eights of columns. */
template <int PITCH>
__device__ __forceinline__ void rows_right(Right &first, Right &second, const float *tile, int row, int from)
{
    const int lane = lane_of_warp();
    uint32_t raw[4];
    matrices_load<4, false>(raw, tile + (row + lane / 16 * 8 + lane % 8) * PITCH + from + lane / 8 % 2 * 4);
    split_right(first, __uint_as_float(raw[0]), __uint_as_float(raw[1]));
    split_right(second, __uint_as_float(raw[2]), __uint_as_float(raw[3]));
}
template <int PITCH> __device__ __forceinline__ void pairs_left(Left &to, const float *tile, int row, int from)
{
    const float *at = tile + (row + group_of_lane()) * PITCH + from + 2 * pair_of_lane();
    const float2 upper = *(const float2 *)at, lower = *(const float2 *)(at + 8 * PITCH);
    split_left(to, upper.x, lower.x, upper.y, lower.y);
}
template <int PITCH> __device__ __forceinline__ void columns_right(Right &to, const float *tile, int from, int column)
{
    const float *at = tile + (from + 2 * pair_of_lane()) * PITCH + column + group_of_lane();
    split_right(to, at[0], at[PITCH]);
}
/*
 * COUNT eights of columns.  Four are dealt out, so that a lane finds its own in one place: the n-th of them has every
 * fourth column from the n-th on, in an order that keeps lanes off each other's banks and fills sectors of memory.
 */
template <int PITCH, int COUNT>
__device__ __forceinline__ void columns_right(Right (&to)[COUNT], const float *tile, int from, int column)
{
    if constexpr (COUNT == 4) {
        const int dealt = group_of_lane() % 2 ? 4 + (group_of_lane() / 2 ^ 1) : group_of_lane() / 2;
        const float *at = tile + (from + 2 * pair_of_lane()) * PITCH + column + 4 * dealt;
        const float4 first = *(const float4 *)at, second = *(const float4 *)(at + PITCH);
        split_right(to[0], first.x, second.x);
        split_right(to[1], first.y, second.y);
        split_right(to[2], first.z, second.z);
        split_right(to[3], first.w, second.w);
    } else {
#pragma unroll
        for (int n = 0; n < COUNT; n++) columns_right<PITCH>(to[n], tile, from, column + n * 8);
    }
}
/* The tile's rows times `weights`. */
template <int PITCH>
__device__ __forceinline__ void columns_left(Left &to, const float *tile, int from, int column, const float *weights)
{
    const float *at = tile + (from + 2 * pair_of_lane()) * PITCH + column + group_of_lane();
    const float2 weight = *(const float2 *)(weights + from + 2 * pair_of_lane());
    split_left(to, at[0] * weight.x, at[8] * weight.x, at[PITCH] * weight.y, at[PITCH + 8] * weight.y);
}
__device__ __forceinline__ void sums_left(Left &to, const float (&sum)[4])
{
    split_left(to, sum[0], sum[2], sum[1], sum[3]);
}

template <int COUNT> __device__ __forceinline__ void clear(float (&sums)[COUNT][4])
{
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
}

/* Products over all of the tiles' columns */

/* sums [16, 16] = left, rows from `row` on, times right, rows from `column` on, turned. */
template <int WIDE>
__device__ __forceinline__ void multiply_rows(float (&sums)[2][4], const float *left, int row, const float *right,
                                              int column)
{
    float small[2][4]; /* products of small parts */
    clear(sums);
    clear(small);
#pragma unroll 2
    for (int from = 0; from < WIDE; from += 8) {
        Left a;
        Right b[2];
        rows_left<WIDE + 4>(a, left, row, from);
        rows_right<WIDE + 4>(b[0], b[1], right, column, from);
#pragma unroll
        for (int n = 0; n < 2; n++) product_of_warp<TF32>(small[n], a.small, b[n].big);
#pragma unroll
        for (int n = 0; n < 2; n++) product_of_warp<TF32>(sums[n], a.big, b[n].big);
#pragma unroll
        for (int n = 0; n < 2; n++) product_of_warp<TF32>(small[n], a.big, b[n].small);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += small[n][i];
}

/*
 * sums [16, 8 COUNT] += left, rows from `row` on, times right, from `column` on: along the right tile's rows, or
 * across them, with columns dealt out.
 */
template <int WIDE, bool TURNED, int COUNT>
__device__ __forceinline__ void multiply_state(float (&sums)[COUNT][4], const float *left, int row,
                                               const float *right, int column)
{
    constexpr int TURNS = COUNT < 4 ? COUNT : 4;
#pragma unroll 2
    for (int from = 0; from < WIDE; from += 8) {
        Left a;
        if (TURNED)
            rows_left<WIDE + 4>(a, left, row, from);
        else
            pairs_left<WIDE + 4>(a, left, row, from);
#pragma unroll
        for (int first = 0; first < COUNT; first += TURNS) {
            Right b[TURNS];
            if (TURNED) {
#pragma unroll
                for (int n = 0; n < TURNS; n += 2)
                    rows_right<WIDE + 4>(b[n], b[n + 1], right, column + (first + n) * 8, from);
            } else {
                columns_right<WIDE + 4>(b, right, from, column + first * 8);
            }
            multiply(sums, first, a, b);
        }
    }
}

/* sums [16, 8 COUNT] += weights [16, 8] times 8 rows of the right tile, its columns, dealt or not, from `column` on.
 */
template <int WIDE, bool DEALT, int COUNT>
__device__ __forceinline__ void multiply_sums(float (&sums)[COUNT][4], const float (&weights)[4], const float *right,
                                              int from, int column)
{
    constexpr int TURNS = COUNT < 4 ? COUNT : 4;
    Left a;
    sums_left(a, weights);
#pragma unroll
    for (int first = 0; first < COUNT; first += TURNS) {
        Right b[TURNS];
        if (DEALT) {
            columns_right<WIDE + 4>(b, right, from, column + first * 8);
        } else {
#pragma unroll
            for (int n = 0; n < TURNS; n++) columns_right<WIDE + 4>(b[n], right, from, column + (first + n) * 8);
        }
        multiply(sums, first, a, b);
    }
}

} // namespace attention_floats

#endif
