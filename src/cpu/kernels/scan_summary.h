/* The summary of rows, as it grows row by row: see scan_summary.c. */
#ifndef RL_CPU_SCAN_SUMMARY_H
#define RL_CPU_SCAN_SUMMARY_H

#include <math.h>

#include "scan.h"
#include "scan_step.h"
#include "table.h"

#if RL_REAL_BITS == 64

/* At most the number's magnitude where it counts, that of its larger part. */
RL_INLINE vreal magnitude(vreal x, bool is_complex)
{
    vreal size = (vreal)magnitude_bits(x);
    if (!is_complex) return size;
    vreal other = __builtin_shufflevector(size, size, SWAPPED_PARTS);
    return if_greater(size, other, size, other);
}

/* x y - product, where product is x y rounded. */
RL_INLINE vreal product_error(vreal x, vreal y, vreal product)
{
#if defined(__FMA__) || defined(__aarch64__)
    return fma_(x, y, -product);
#else
    const vreal splitter = splat(0x1p27 + 1);
    vreal xs = x * splitter, ys = y * splitter, x1 = xs - (xs - x), y1 = ys - (ys - y), x2 = x - x1, y2 = y - y1;
    return x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2);
#endif
}

/* A product of many numbers: high + low, good to nearly twice the bits.  Many roundings would have a bias. */
typedef struct long_product {
    vreal high, low;
} long_product;

RL_INLINE long_product times_longer(long_product x, long_product y)
{
    vreal high = x.high * y.high;
    vreal low = fma_(x.high, y.low, fma_(x.low, y.high, product_error(x.high, y.high, high)));
    return (long_product){high, low};
}

RL_INLINE long_product times_number(long_product x, vreal y)
{
    vreal high = x.high * y;
    return (long_product){high, fma_(x.low, y, product_error(x.high, y, high))};
}

/* The squares of complex numbers, the magnitudes of real ones: what order by size needs. */
RL_INLINE vint size_bits(vreal a, bool is_complex)
{
    if (!is_complex) return magnitude_bits(a);
    vreal square = a * a;
    return magnitude_bits(square + __builtin_shufflevector(square, square, SWAPPED_PARTS));
}

typedef struct running {
    long_product decay;
    vreal fresh, least;
    vint largest; /* as size_bits */
} running;

RL_INLINE running start_summary(double decay_scale, bool is_complex)
{
    running r = {.decay.high = splat(decay_scale), .least = splat(decay_scale)};
    if (is_complex)
        for (int lane = 1; lane < LANES; lane += 2) r.decay.high[lane] = 0;
    return r;
}

/* `narrow` rows have so many bits to spare that a plain product does, and that growth needs no care. */
RL_INLINE running add_row(running r, vreal a, vreal input, bool back, bool is_complex, bool narrow)
{
    if (narrow || is_complex)
        r.decay.high = times(back ? conjugate(a, is_complex) : a, r.decay.high, is_complex);
    else
        r.decay = times_number(r.decay, a);
    if (!narrow) r.largest = greater_bits(r.largest, size_bits(a, is_complex));
    r.least = at_most(r.least, magnitude(r.decay.high, is_complex));
    r.fresh = back ? step_back(a, input + r.fresh, is_complex) : step_forward(a, input, r.fresh, is_complex);
    return r;
}

/* A product that came near 0 asks for a second look at the decays. */
RL_INLINE void end_summary(const rl_scan_summary *s, running r)
{
    store_any(s->decay, r.decay.high);
    store_any(s->decay_low, r.decay.low);
    store_any(s->largest, (vreal)r.largest);
    for (int lane = 0; lane < LANES && s->rule.is_complex; lane++) s->largest[lane] = sqrt(s->largest[lane]);
    store_any(s->fresh, r.fresh);
    store_any(s->least, r.least);
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        store_any(s->reset, (vreal){0});
    else
        RL_NAME(rl_scan_look_again)(s);
}

/* The same where no decay is 0, or what it drops is finite; the end shows if not. */
RL_INLINE running add_plain_row(running r, vreal a, vreal input, bool back)
{
    r.decay = times_number(r.decay, a);
    r.largest = greater_bits(r.largest, magnitude_bits(a));
    r.least = at_most(r.least, magnitude(r.decay.high, false));
    r.fresh = back ? a * (input + r.fresh) : fma_(a, r.fresh, input);
    return r;
}

RL_INLINE void end_plain_summary(const rl_scan_summary *s, running r)
{
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        end_summary(s, r);
    else
        RL_NAME(rl_scan_summarise)(s);
}

#endif
#endif
