#include "scan_rows.h"

#include <math.h>
#include <stddef.h>

/*
 * The step's place in a block of this size, or -1 outside of all blocks.  Blocks lie in a long sequence at odd places
 * of its start, its middle and its last part, and end with it; in a short one there is one, at the end.
 */
static int64_t in_block(int64_t k, int64_t length, int64_t size)
{
    const int64_t starts[] = {length - size, 7, length / 5 + 3, length / 2 - 2, length / 4 * 3};
    for (int i = 0; i < (length / 4 > 2 * size + 16 ? 5 : 1); i++)
        if (k >= starts[i] && k < starts[i] + size) return k - starts[i];
    return -1;
}

static void hold(double *a, double *b)
{
    *a = 1;
    *b = 0;
}

/* Row 1 of HARD_INPUTS. */
static void average(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = 0.5;
    *b = 1;
}

static double average_right(int64_t k)
{
    return 2 * (1 - exp2(-(double)(k + 1)));
}

/* Row 2. */
static void count(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = *b = 1;
}

static double count_right(int64_t k)
{
    return (double)(k + 1);
}

/* Row 3, in blocks: an infinite state, a NaN, each dropped by a reset some steps later. */
static void special_inputs(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t i = in_block(k, length, 40);
    (void)wide;
    hold(a, b);
    if (i < 0) return;
    *a = i == 20 || i == 24 || i == 39 ? 0 : 0.5;
    *b = i == 0 ? INFINITY : i == 21 ? NAN : i == 38 ? -INFINITY : *a == 0 ? 3 : 1;
}

/* The decays themselves are not finite: on a state of 1, on one of 0. */
static void special_decays(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t i = in_block(k, length, 20);
    (void)wide;
    hold(a, b);
    if (i == 0) *a = INFINITY;
    if (i == 6) *a = NAN;
    if (i == 5 || i == 19) *a = 0, *b = 1;
    if (i == 9) *a = 0;
    if (i == 10) *a = -INFINITY;
}

/* Row 3 at every step. */
static void resets(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    *a = 0;
    *b = k % 1000 == 999 ? INFINITY : (double)(k % 5);
}

/* Row 4. */
static void alternate(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = -1;
    *b = 0;
}

static double alternate_right(int64_t k)
{
    return k % 2 ? 1 : -1;
}

static void two_thirds(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = -0.5;
    *b = 1;
}

static double two_thirds_right(int64_t k)
{
    return (1 - (k % 2 ? 1 : -1) * exp2(-(double)(k + 1))) * 2 / 3;
}

/* Row 5. */
static void growth_of_nothing(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = 4;
    *b = 0;
}

static double nothing_right(int64_t k)
{
    (void)k;
    return 0;
}

/* Decays of 1e30, and one input in the very last step. */
static void late_input(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    *a = wide ? 1e300 : 1e30;
    *b = k == length - 1;
}

/* Row 6, and in blocks: 2^66 is next to 1e20, and a power of two. */
static void burst(int64_t i, double *a, double *b)
{
    *a = i < 8 ? 0x1p66 : i == 8 ? 0 : 0.5;
    *b = i == 8;
}

static void one_burst(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    burst(k, a, b);
    if (k < 8) *a = 1e20;
}

static double one_burst_right(int64_t k)
{
    return k < 8 ? 0 : exp2(-(double)(k - 8));
}

static void bursts(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t i = in_block(k, length, 16);
    (void)wide;
    hold(a, b);
    if (i >= 0) burst(i, a, b);
}

/* Row 7. */
static void down_and_up(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    *a = k < 150 ? 0.5 : 2;
    *b = k == 0;
}

static double down_and_up_right(int64_t k)
{
    return k < 150 ? exp2(-(double)k) : exp2((double)(k - 298));
}

/* To the smallest denormal of the type and back, in blocks. */
static void valleys(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t depth = wide ? 1074 : 149, i = in_block(k, length, 2 * depth);
    hold(a, b);
    if (i >= 0) *a = i < depth ? 0.5 : 2;
}

/* To almost the largest number and back. */
static void hills(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t height = wide ? 1023 : 127, i = in_block(k, length, 2 * height);
    hold(a, b);
    if (i >= 0) *a = i < height ? -2 : -0.5;
}

/* Row 8: a fixed point from which every error runs away; at every step, and in blocks. */
static void fixed_point(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    *a = 2;
    *b = -1;
}

/* The same with growth that a part of a few hundred steps does not betray by its size: 10^12, 10^3, 7 in 128. */
static void gentle(double growth, double *a, double *b)
{
    *a = 1 + growth;
    *b = -growth;
}

static void fixed_point_quarter(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    gentle(0.25, a, b);
}

static void fixed_point_16th(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    gentle(0.0625, a, b);
}

static void fixed_point_64th(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)k, (void)length, (void)wide;
    gentle(0.015625, a, b);
}

/* The same after steps in which everything fades, where nothing in the loop rounds either; for half of the time, or
 * for the last few steps only. */
static void late_growth(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)wide;
    if (k >= length / 2)
        gentle(0.015625, a, b);
    else
        gentle(-0.25, a, b);
}

static void last_growth(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    if (k >= length - 45)
        fixed_point(k, length, wide, a, b);
    else
        gentle(-0.25, a, b);
}

static double one_right(int64_t k)
{
    (void)k;
    return 1;
}

static void fixed_points(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    hold(a, b);
    if (in_block(k, length, 300) >= 0) fixed_point(k, length, wide, a, b);
}

/* Growth beyond every number, then a reset. */
static void overflow(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    int64_t i = in_block(k, length, 301);
    (void)wide;
    hold(a, b);
    if (i >= 0) *a = i < 300 ? -16 : 0;
    if (i == 300) *b = 1;
}

/* Huge and tiny decays by turns; two and two of them, so that products of pairs leave the range. */
static void seesaw(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    double far = wide ? 0x1p800 : 0x1p100;
    (void)length;
    *a = k % 2 ? 1 / far : far;
    *b = 0;
}

static void double_seesaw(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    double far = wide ? 0x1p-530 : 0x1p-72;
    (void)length;
    *a = k % 4 < 2 ? far : 1 / far;
    *b = 0;
}

/* A large state that comes in and is gone with the first step. */
static void first_cancels(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    *a = 1;
    *b = k == 0 ? 1 - 1e6 : (double)(k % 7 - 3) / 1024;
}

/* A large sum, which the plain loop rounds too, taken back in the middle. */
static void sum_cancels(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)wide;
    *a = 1;
    *b = k < length / 2   ? 0.7 + (double)(k % 13) / 16
         : k > length / 2 ? (double)(k % 7 - 3) / 1024
                          : 1 - 1.075 * (double)k;
}

/* Decays next to 1, below and above: errors last, and grow. */
static void slow(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    *a = 0.9999;
    *b = (double)(k % 3) / 1024;
}

static void slow_growth(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)wide;
    *a = 1 + 8.0 / (double)length;
    *b = (double)(k % 3 - 1) / 1024;
}

/* Long stretches of growth and of decay, with input all the way. */
static void tides(int64_t k, int64_t length, bool wide, double *a, double *b)
{
    (void)length, (void)wide;
    *a = k / 200 % 2 ? 1 / 1.375 : 1.25;
    *b = 1;
}

/* clang-format off */
const scan_row scan_rows[] = {
    {"row 1", average, 256, false, 0, false, true, average_right, false},
    {"row 2", count, 1024, false, 0, true, true, count_right, false},
    {"row 3, inputs", special_inputs, 0, true, 1, false, false, NULL, false},
    {"row 3, decays", special_decays, 0, true, 1, true, false, NULL, false},
    {"row 3, resets", resets, 0, true, INFINITY, true, false, NULL, false},
    {"row 4", alternate, 33, true, 1, true, true, alternate_right, false},
    {"row 4, long", alternate, 0, true, 1, true, true, alternate_right, false},
    {"row 4, two thirds", two_thirds, 256, false, 0, false, true, two_thirds_right, false},
    {"row 5", growth_of_nothing, 128, false, 0, true, true, nothing_right, false},
    {"row 5, from 0", growth_of_nothing, 128, true, 0, true, true, nothing_right, false},
    {"row 5, long", growth_of_nothing, 0, false, 0, true, true, nothing_right, false},
    {"row 5, late", late_input, 0, false, 0, true, true, NULL, false},
    {"row 6", one_burst, 16, false, 0, true, true, one_burst_right, false},
    {"row 6, long", bursts, 0, false, 0, true, false, NULL, false},
    {"row 7", down_and_up, 300, false, 0, true, true, down_and_up_right, false},
    {"row 7, long", valleys, 0, true, 1, true, true, NULL, false},
    {"row 7, hills", hills, 0, true, -1, true, true, NULL, false},
    {"row 8", fixed_point, 100, true, 1, true, true, one_right, false},
    {"row 8, long", fixed_point, 0, true, 1, true, true, one_right, false},
    {"row 8, by 1.25", fixed_point_quarter, 0, true, 1, true, true, one_right, false},
    {"row 8, by 1.0625", fixed_point_16th, 0, true, 1, true, true, one_right, false},
    {"row 8, by 1.015625", fixed_point_64th, 0, true, 1, false, true, one_right, false},
    {"row 8, after fading", late_growth, 0, true, 1, false, true, one_right, true},
    {"row 8, at the end", last_growth, 0, true, 1, false, true, one_right, true},
    {"row 8, blocks", fixed_points, 0, true, 1, true, true, one_right, false},
    {"overflow", overflow, 0, true, 1, true, false, NULL, false},
    {"seesaw", seesaw, 0, true, 1, true, true, NULL, false},
    {"double seesaw", double_seesaw, 0, true, 1, true, true, NULL, false},
    {"first cancels", first_cancels, 0, true, 1e6, false, true, NULL, false},
    {"sum cancels", sum_cancels, 0, false, 0, false, true, NULL, false},
    {"slow", slow, 0, true, 1, false, true, NULL, false},
    {"slow growth", slow_growth, 0, true, 1, false, true, NULL, false},
    {"tides", tides, 0, false, 0, false, true, NULL, false},
    {NULL, NULL, 0, false, 0, false, false, NULL, false},
};
/* clang-format on */

const scan_row scan_row_plain = {"beside it", average, 0, false, 0, false, true, average_right, false};
