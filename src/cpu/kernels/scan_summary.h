/* The summary of rows, as it grows row by row: see scan_summary.c. */
#ifndef RL_CPU_SCAN_SUMMARY_H
#define RL_CPU_SCAN_SUMMARY_H

#include <math.h>

#include "scan.h"
#include "scan_step.h"
#include "table.h"

#if RL_REAL_BITS == 64

/* The larger of two magnitudes; the other one where one is NaN, or may be. */
RL_INLINE vreal larger(vreal x, vreal y)
{
#if defined(__AVX512F__)
    return _mm512_range_pd(x, y, 0xb);
#else
    return at_least((vreal)magnitude_bits(y), (vreal)magnitude_bits(x));
#endif
}

/* The least magnitude of products on the way. */
RL_INLINE vreal lesser(vreal least, vreal product)
{
#if defined(__AVX512F__)
    return _mm512_range_pd(least, product, 0xa);
#else
    return at_most(least, (vreal)magnitude_bits(product));
#endif
}

/* What stands for a complex number's magnitude, at most that: its larger part. */
RL_INLINE vreal larger_part(vreal x, bool is_complex)
{
    return is_complex ? larger(x, __builtin_shufflevector(x, x, SWAPPED_PARTS)) : x;
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

/* x + y - sum, where sum is x + y rounded. */
RL_INLINE vreal sum_error(vreal x, vreal y, vreal sum)
{
    vreal part = sum - x;
    return (x - (sum - part)) + (y - part);
}

/*
 * high + low, good to nearly twice the bits, where high is what plain arithmetic gives.  The same few roundings at
 * every turn, as of a constant decay's product, would have a bias that adds up.
 */
typedef struct longer {
    vreal high, low;
} longer;

RL_INLINE longer times_longer(longer x, longer y)
{
    vreal high = x.high * y.high;
    vreal low = fma_(x.high, y.low, fma_(x.low, y.high, product_error(x.high, y.high, high)));
    return (longer){high, low};
}

RL_INLINE longer times_number(vreal x, longer y, bool is_complex)
{
    if (!is_complex) {
        vreal high = x * y.high;
        return (longer){high, fma_(x, y.low, product_error(x, y.high, high))};
    }
    vreal re = __builtin_shufflevector(x, x, REAL_PARTS),
          swapped = __builtin_shufflevector(y.high, y.high, SWAPPED_PARTS);
    vreal im = (vreal)((vint)__builtin_shufflevector(x, x, IMAGINARY_PARTS) ^ sign_of_part(0));
    vreal one = re * y.high, other = im * swapped, high = one + other;
    vreal low = product_error(re, y.high, one) + product_error(im, swapped, other) + sum_error(one, other, high);
    return (longer){high, low + times(x, y.low, true)};
}

RL_INLINE longer plus_number(longer x, vreal y)
{
    vreal high = x.high + y;
    return (longer){high, x.low + sum_error(x.high, y, high)};
}

RL_INLINE longer plus_longer(longer x, longer y)
{
    vreal high = x.high + y.high;
    return (longer){high, x.low + y.low + sum_error(x.high, y.high, high)};
}

/* What infinities, or products near them, have left of a low part is dropped. */
RL_INLINE vreal finite_or_0(vreal x)
{
    return choose(x - x == (vreal){0}, x, (vreal){0});
}

/*
 * The same number; where high ones have cancelled, so that the low one counts, as high as it can be.  Else the high
 * one stays what plain arithmetic gives: under decays that forget, the loop's own number.
 */
RL_INLINE longer settled(longer x)
{
    vreal low = finite_or_0(x.low), high = x.high + low;
    vint kept = (vreal)magnitude_bits(low) <= (vreal)magnitude_bits(x.high) * splat(0x1p-44);
    return (longer){choose(kept, x.high, high), choose(kept, low, finite_or_0(sum_error(x.high, low, high)))};
}

RL_INLINE vreal square_roots(vreal x)
{
#if defined(__x86_64__)
    return RL_OP(sqrt)(x);
#else
    for (int lane = 0; lane < LANES; lane++) x[lane] = sqrt(x[lane]);
    return x;
#endif
}

/* The squares of complex numbers, which stay in range where they are float. */
RL_INLINE vreal squares(vreal a)
{
    vreal square = a * a;
    return square + __builtin_shufflevector(square, square, SWAPPED_PARTS);
}

/* The squares of complex numbers, the magnitudes of real ones: what order by size needs. */
RL_INLINE vint size_bits(vreal a, bool is_complex)
{
    return magnitude_bits(is_complex ? squares(a) : a);
}

typedef struct running {
    longer decay, fresh;
    vreal least, peak;
    vint largest; /* as size_bits */
} running;

RL_INLINE running start_summary(double decay_scale, bool is_complex)
{
    running r = {.decay.high = splat(decay_scale), .least = splat(decay_scale)};
    if (is_complex)
        for (int lane = 1; lane < LANES; lane += 2) r.decay.high[lane] = 0;
    return r;
}

/* One step of a walk, and what its roundings have left out; as longer as that is finite. */
RL_INLINE longer step_longer(vreal a, vreal input, longer state, bool back, bool is_complex)
{
    if (back) {
        longer g = plus_number(state, input);
        longer u = times_number(conjugate(a, is_complex), g, is_complex);
        return (longer){step_back(a, g.high, is_complex), u.low};
    }
    longer p = times_number(a, state, is_complex);
    vreal high = add_unless_reset(a, p.high, input, input, is_complex);
    return (longer){high, p.low + sum_error(p.high, input, high)};
}

/*
 * What errors are multiplied by, and a state on the way: of real rows nearly their magnitudes, of complex rows of
 * float squares, for roots take long.
 */
RL_INLINE vreal stretch(vreal a, bool is_complex, bool narrow)
{
    if (!is_complex) return a;
    return narrow ? squares(a) : square_roots(squares(a));
}

RL_INLINE vreal height(vreal state, bool is_complex, bool narrow)
{
    if (!is_complex || !narrow) return state;
    state *= splat(1 / RL_FRESH_SCALE(true));
    return state * state;
}

/* `narrow` rows have so many bits to spare that plain arithmetic does, and that growth needs no care. */
RL_INLINE running add_row(running r, vreal a, vreal input, bool back, bool is_complex, bool narrow)
{
    vreal decay = back ? conjugate(a, is_complex) : a;
    if (back) r.peak = larger(r.peak, height(r.fresh.high + input, is_complex, narrow));
    r.peak = stretch(a, is_complex, narrow) * r.peak;
    if (narrow) {
        r.decay.high = times(decay, r.decay.high, is_complex);
        r.fresh.high =
            back ? step_back(a, input + r.fresh.high, is_complex) : step_forward(a, input, r.fresh.high, is_complex);
    } else {
        r.decay = times_number(decay, r.decay, is_complex);
        r.fresh = step_longer(a, input, r.fresh, back, is_complex);
        r.largest = greater_bits(r.largest, size_bits(a, is_complex));
    }
    if (!back) r.peak = larger(r.peak, height(r.fresh.high, is_complex, narrow));
    r.least = lesser(r.least, larger_part(r.decay.high, is_complex));
    return r;
}

/* The same of rows of float where no decay is 0, or what it drops is finite; the end shows if not. */
RL_INLINE running add_plain_narrow_row(running r, vreal a, vreal input, bool back, bool is_complex)
{
    vreal decay = back ? conjugate(a, is_complex) : a, stretched = stretch(a, is_complex, true);
    r.decay.high = times(decay, r.decay.high, is_complex);
    r.least = lesser(r.least, larger_part(r.decay.high, is_complex));
    if (back) {
        vreal g = r.fresh.high + input;
        r.fresh.high = times(decay, g, is_complex);
        r.peak = stretched * larger(r.peak, height(g, is_complex, true));
    } else {
        r.fresh.high = is_complex ? times(a, r.fresh.high, true) + input : fma_(a, r.fresh.high, input);
        r.peak = larger(stretched * r.peak, height(r.fresh.high, is_complex, true));
    }
    return r;
}

/* Where a decay turns one part into the other, either has the errors of both. */
RL_INLINE void store_peak(const rl_scan_summary *s, vreal peak, vint decays)
{
    if (s->rule.is_complex) {
        vreal turns = (vreal)magnitude_bits((vreal)decays);
        turns = __builtin_shufflevector(turns, turns, IMAGINARY_PARTS);
        if (s->narrow) peak = square_roots(peak) * splat(RL_FRESH_SCALE(true));
        vreal whole = larger(peak, __builtin_shufflevector(peak, peak, SWAPPED_PARTS));
        peak = choose((vint)turns == (vint){0}, peak, whole);
        store_any(s->turns, turns);
    }
    store_any(s->peak, (vreal)magnitude_bits(peak));
}

/*
 * A product that came near 0 asks for a second look at the decays.  `decays` are all bits of complex ones: with an
 * imaginary part in any there are some.
 */
RL_INLINE void end_summary(const rl_scan_summary *s, running r, vint decays)
{
    r.decay = settled(r.decay);
    r.fresh = settled(r.fresh);
    store_any(s->decay, r.decay.high);
    store_any(s->decay_low, r.decay.low);
    store_any(s->largest, (vreal)r.largest);
    for (int lane = 0; lane < LANES && s->rule.is_complex; lane++) s->largest[lane] = sqrt(s->largest[lane]);
    store_any(s->fresh, r.fresh.high);
    store_any(s->fresh_low, r.fresh.low);
    store_any(s->least, r.least);
    store_peak(s, r.peak, decays);
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        store_any(s->reset, (vreal){0});
    else
        RL_NAME(rl_scan_look_again)(s);
}

/* The same where no decay is 0, or what it drops is finite; the end shows if not. */
RL_INLINE running add_plain_row(running r, vreal a, vreal input, bool back)
{
    r.decay = times_number(a, r.decay, false);
    r.largest = greater_bits(r.largest, magnitude_bits(a));
    r.least = lesser(r.least, r.decay.high);
    if (back) {
        longer g = plus_number(r.fresh, input);
        r.peak = a * larger(r.peak, g.high);
        r.fresh = times_number(a, g, false);
    } else {
        r.fresh = plus_number(times_number(a, r.fresh, false), input);
        r.peak = larger(a * r.peak, r.fresh.high);
    }
    return r;
}

RL_INLINE void end_plain_summary(const rl_scan_summary *s, running r)
{
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        end_summary(s, r, (vint){0});
    else
        RL_NAME(rl_scan_summarise)(s);
}

#endif
#endif
