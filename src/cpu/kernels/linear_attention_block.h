/* Blocks of a product of matrices in registers, and what the kernels of linear attention share besides. */
#ifndef RL_CPU_LINEAR_ATTENTION_BLOCK_H
#define RL_CPU_LINEAR_ATTENTION_BLOCK_H

#include "linear_attention.h"
#include "vec.h"

/* Rows of a block: with two vectors a row, as many sums as hide the latency of fma and leave registers for the rest.
 */
#if defined(__AVX512F__)
enum { BLOCK_ROWS = 8 };
#else
enum { BLOCK_ROWS = 4 };
#endif

/*
 * Where products of matrices may stand for the loop.  Numbers up to these cannot overflow on the way.  A product of
 * decays below FADED may have lost its bits: then only moderate numbers may meet it, which leave nothing of it that
 * could be seen beside the smallest normal number.
 */
#if RL_REAL_BITS == 32
#define INPUT_MOST 0x1p30f
#define STATE_MOST 0x1p70f
#define FADED 0x1p-100
#define MODERATE_INPUT 0x1p10f
#define MODERATE_STATE 0x1p20f
#define GATES_INPUT_MOST 0x1p18f /* products of four meet in the gates' gradients */
#define GATES_STATE_MOST 0x1p48f
#else
#define INPUT_MOST 0x1p240
#define STATE_MOST 0x1p560
#define FADED 0x1p-900
#define MODERATE_INPUT 0x1p40
#define MODERATE_STATE 0x1p80
#define GATES_INPUT_MOST 0x1p200
#define GATES_STATE_MOST 0x1p400
#endif
#define KEYS_MOST (1 << 20)
#define GROWTH_MOST 2.0 /* of any run of gates: more would let terms cancel that the loop never forms */

RL_INLINE int64_t bits_of(real x)
{
    integer bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

RL_INLINE int64_t magnitude_of(real x)
{
    return bits_of(x < 0 ? -x : x) & (int64_t)(((natural)-1) >> 1);
}

RL_INLINE int64_t greatest_lane(vint x)
{
    integer most = x[0];
    for (int lane = 1; lane < LANES; lane++) most = x[lane] > most ? x[lane] : most;
    return most;
}

RL_INLINE int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

RL_INLINE int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* In one fixed order. */
RL_INLINE real sum_of_lanes(vreal x)
{
    real part[LANES];
    memcpy(part, &x, sizeof part);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* sums[r][c] += Σ_i a[r a_row + i] b[c b_column + i] over i < count. */
RL_INLINE void multiply(vreal (*sums)[RL_PANEL_VECTORS], int rows, int vectors, const real *a, int64_t a_row,
                        const vreal *b, int64_t b_column, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        vreal column[RL_PANEL_VECTORS];
        for (int c = 0; c < vectors; c++) column[c] = b[c * b_column + i];
        for (int r = 0; r < rows; r++) {
            vreal x = splat(a[r * a_row + i]);
            for (int c = 0; c < vectors; c++) sums[r][c] = fma_(x, column[c], sums[r][c]);
        }
    }
}

/* A product of vector i of a panel; 0 in the lanes that hold no value. */
RL_INLINE vreal in_columns(const rl_attention_panel *p, int64_t i, vreal product)
{
    vint lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    return (vreal)((vint)product & (lane < splat_bits((integer)(p->columns - i * LANES))));
}

#endif
