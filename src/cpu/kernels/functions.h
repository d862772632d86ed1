/*
 * exp, softplus and the gate, a vector at a time.
 *
 * exp(x) = 2^n p(f) with n = round(x / ln 2) and f = x / ln 2 - n, |f| <= 1/2.  The polynomial p of 2^f has the first
 * coefficients 1 and ln 2, and the others from a minimax fit of the relative error: the error falls with f², so slow
 * decays have no bias.  It stays below 1 ulp with fma and 2 ulp without.
 */
#ifndef RL_CPU_FUNCTIONS_H
#define RL_CPU_FUNCTIONS_H

#include <float.h>
#include <math.h>

#include "vec.h"

#if RL_REAL_BITS == 32
#define LOG2_E 0x1.715476p+0f
#define LOG2_E_REST 0x1.4ae0cp-26f
#define LN2_UPPER 0x1.63p-1f /* 9 bits: its product with n, of at most 8, is exact */
#define LN2_LOWER -0x1.bd0106p-13f
#define ROUNDER 0x1.8p+23f /* added to a number below 2^22, leaves its nearest integer in the low bits */
#define REAL_MAX FLT_MAX
#define FRACTION_BITS 23
#define EXPONENT_BIAS 127
#define EXP_LOW -104.0f /* below it exp rounds to 0 */
#define EXP_HIGH 89.0f  /* above it exp overflows */
#define EXP_SAFE 86.0f  /* within ± this the result is normal and 2^n is one exponent */
#define EXP2_LOW -151.0f
#define EXP2_HIGH 129.0f
static const real exp2_terms[] = {
    0x1.414dccp-13f, 0x1.5f049cp-10f, 0x1.3b2e1p-7f, 0x1.c6af88p-5f, 0x1.ebfbdcp-3f, 0x1.62e43p-1f, 1};
static const real atanh_terms[] = {0x1.f1d5c2p-3f, 0x1.b6cd2p-3f, 0x1.2509d8p-2f, 0x1.9996a6p-2f, 0x1.555558p-1f};
#else
#define LOG2_E 0x1.71547652b82fep+0
#define LOG2_E_REST 0x1.777d0ffda0d24p-56
#define LN2_UPPER 0x1.62e42fefa0000p-1 /* 37 bits; n has at most 11 */
#define LN2_LOWER 0x1.cf79abc9e3b3ap-40
#define ROUNDER 0x1.8p+52
#define REAL_MAX DBL_MAX
#define FRACTION_BITS 52
#define EXPONENT_BIAS 1023
#define EXP_LOW -746.0
#define EXP_HIGH 710.0
#define EXP_SAFE 705.0
#define EXP2_LOW -1076.0
#define EXP2_HIGH 1025.0
static const real exp2_terms[] = {0x1.e7c6a0addab2ap-32, 0x1.e617f4b063f1ep-28, 0x1.b526534d031fdp-24,
                                  0x1.62bfc9d32daf8p-20, 0x1.ffcbfbc770cd0p-17, 0x1.4309130dd1d5bp-13,
                                  0x1.5d87fe78c38b6p-10, 0x1.3b2ab6fba075bp-7,  0x1.c6b08d704a045p-5,
                                  0x1.ebfbdff82c5a1p-3,  0x1.62e42fefa39efp-1,  1};
static const real atanh_terms[] = {0x1.517bc084fca61p-3, 0x1.1e3894bb15ba0p-4, 0x1.c180979439754p-4,
                                   0x1.dfe043a72faeap-4, 0x1.1123605a8a476p-3, 0x1.3b12d45df81b9p-3,
                                   0x1.745d1e10857efp-3, 0x1.c71c71a592a29p-3, 0x1.24924924c2524p-2,
                                   0x1.9999999999551p-2, 0x1.5555555555556p-1};
#endif

#define TERMS(table) table, sizeof table / sizeof *table

/* The Horner sum of c[0] r^(count-1) + ... + c[count-1]. */
RL_INLINE vreal horner(const real *c, int count, vreal r)
{
    vreal sum = splat(c[0]);
    for (int i = 1; i < count; i++) sum = fma_(sum, r, splat(c[i]));
    return sum;
}

/* 2^n p for any n that a clamped argument gives: two factors, so that a denormal result is rounded once. */
RL_INLINE vreal scale_wide(vreal p, vint n)
{
    vint whole = n - (vint)splat(ROUNDER), half = whole >> 1;
    vint upper = (half + EXPONENT_BIAS) << FRACTION_BITS, lower = (whole - half + EXPONENT_BIAS) << FRACTION_BITS;
    return p * (vreal)upper * (vreal)lower;
}

/* 2^n p where the result is normal: n is added to the exponent. */
RL_INLINE vreal scale_normal(vreal p, vint n)
{
    return (vreal)((vint)p + (n << FRACTION_BITS));
}

/* exp(x).  `safe`: |x| <= EXP_SAFE in every lane; the value is the same, the way shorter.  NaN stays NaN. */
RL_INLINE vreal exp_(vreal x, int safe)
{
    if (!safe) x = at_most(at_least(x, splat(EXP_LOW)), splat(EXP_HIGH));
    vreal shifted = fma_(x, splat(LOG2_E), splat(ROUNDER)), n = shifted - splat(ROUNDER);
    vreal r = fma_(n, splat(-LN2_LOWER), fma_(n, splat(-LN2_UPPER), x));
    vreal p = horner(TERMS(exp2_terms), r * splat(LOG2_E));
    return safe ? scale_normal(p, (vint)shifted) : scale_wide(p, (vint)shifted);
}

/*
 * What the decays exp(δ A) of a step take of δ.  With fma it is δ / ln 2 in two pieces: its product with A is then
 * reduced without being rounded first, and no multiplication by 1 / ln 2 is left for the states.  Without fma it is
 * δ.
 */
typedef struct decay_rate {
    vreal upper, rest;
} decay_rate;

#if defined(__FMA__) || defined(__aarch64__)
/* Beyond REAL_MAX ln 2 the upper piece stays finite where δ is, so that a rate A of 0 is still no decay. */
RL_INLINE decay_rate decay_rate_of(vreal delta)
{
    vreal size = (vreal)magnitude_bits(delta), upper = delta * splat(LOG2_E);
    vreal rest = fma_(delta, splat(LOG2_E_REST), fma_(delta, splat(LOG2_E), -upper));
    upper = at_most(at_least(upper, splat(-REAL_MAX)), splat(REAL_MAX));
    return (decay_rate){.upper = if_greater(size, splat(REAL_MAX), delta, upper),
                        .rest = if_greater(splat(REAL_MAX / 2), size, rest, splat(0))};
}

/* exp(δ A), NaN where δ A is.  `safe`: |δ A| <= EXP_SAFE in every lane; the value is the same, the way shorter. */
RL_INLINE vreal exp_decay(decay_rate rate, vreal A, int safe)
{
    vreal shifted = fma_(rate.upper, A, splat(ROUNDER)), n = shifted - splat(ROUNDER);
    vreal p = horner(TERMS(exp2_terms), fma_(rate.rest, A, fma_(rate.upper, A, -n)));
    if (safe) return scale_normal(p, (vint)shifted);
    vreal exponent = rate.upper * A, e = scale_wide(p, (vint)shifted);
    e = if_greater(splat(EXP2_LOW), exponent, splat(0), e);
    return if_greater(exponent, splat(EXP2_HIGH), splat(INFINITY), e);
}
#else
RL_INLINE decay_rate decay_rate_of(vreal delta)
{
    return (decay_rate){.upper = delta};
}

RL_INLINE vreal exp_decay(decay_rate rate, vreal A, int safe)
{
    return exp_(rate.upper * A, safe);
}
#endif

/* exp(-|value|), in [0, 1]. */
RL_INLINE vreal exp_of_minus(vreal value, int safe)
{
    return exp_((vreal)((vint)value | (vint)splat((real)-0.0)), safe);
}

/*
 * softplus(value) = log(1 + exp(value)), value itself above 20, from e = exp(-|value|): it is max(value, 0) + log(1 +
 * e), and with s = e / (2 + e) <= 1/3 log(1 + e) = e - s (e - R), where R(s²) is 2 atanh(s) / s without its first
 * term, here s² times a minimax polynomial.  So it is good to a few ulp also where it is tiny.
 */
RL_INLINE vreal softplus_from(vreal value, vreal e)
{
    vreal s = e / (e + splat(2)), square = s * s;
    vreal rest = fma_(square, horner(TERMS(atanh_terms), square), -e);
    vreal soft = fma_(s, rest, e) + at_least(value, splat(0));
#if RL_REAL_BITS == 64
    soft = if_greater(value, splat(20), value, soft); /* in float, log(1 + e) is then below half an ulp */
#endif
    return soft;
}

/* `safe`: |value| <= SOFTPLUS_SAFE in every lane; the value is the same. */
#define SOFTPLUS_SAFE EXP_SAFE
RL_INLINE vreal softplus_(vreal value, int safe)
{
    return softplus_from(value, exp_of_minus(value, safe));
}

/* value σ(value); exp is taken of -|value|, so nothing overflows on the way.  -inf gives NaN, as the product does. */
RL_INLINE vreal silu_(vreal value)
{
    vreal e = exp_of_minus(value, 0);
    vreal numerator = if_greater(splat(0), value, e, splat(1));
    return value * (numerator / (e + splat(1)));
}

#endif
