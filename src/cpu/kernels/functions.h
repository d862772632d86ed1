/*
 * exp, softplus and the gate, a vector at a time.
 *
 * exp(x) = 2^n p(r) with n = round(x / ln 2) and r = x - n ln 2 in two pieces (Cody and Waite: n times the upper
 * piece is exact, also without fma), |r| <= ln 2 / 2.  The polynomials have their first two coefficients at exactly 1
 * and the others from a minimax fit of the relative error, so the error falls with r² and slow decays have no bias.
 */
#ifndef RL_CPU_FUNCTIONS_H
#define RL_CPU_FUNCTIONS_H

#include "vec.h"

#if RL_REAL_BITS == 32
#define LOG2_E 0x1.715476p+0f
#define LN2_UPPER 0x1.63p-1f /* 9 bits; n has at most 8 */
#define LN2_LOWER -0x1.bd0106p-13f
#define ROUNDER 0x1.8p+23f /* added to a number below 2^22, leaves its nearest integer in the low bits */
#define EXP_SMALL 0.34f
#define FRACTION_BITS 23
#define EXPONENT_BIAS 127
#define EXP_LOW -104.0f /* below it exp rounds to 0 */
#define EXP_HIGH 89.0f  /* above it exp overflows */
#define EXP_SAFE 86.0f  /* within ± this the result is normal and 2^n is one exponent */
#define SQRT_HALF_BITS 0x3f3504f3
static const real exp_fine[] = {0x1.6a23c2p-10f, 0x1.123a2p-7f, 0x1.5558f4p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
static const real atanh_terms[] = {2 / 9.0f, 2 / 7.0f, 2 / 5.0f, 2 / 3.0f};
#else
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_UPPER 0x1.62e42fefa0000p-1 /* 37 bits; n has at most 11 */
#define LN2_LOWER 0x1.cf79abc9e3b3ap-40
#define ROUNDER 0x1.8p+52
#define EXP_SMALL 0.34
#define FRACTION_BITS 52
#define EXPONENT_BIAS 1023
#define EXP_LOW -746.0
#define EXP_HIGH 710.0
#define EXP_SAFE 705.0
#define SQRT_HALF_BITS 0x3fe6a09e667f3bcd
static const real exp_fine[] = {
    0x1.ad7f218d01b0bp-26, 0x1.28ad9b8ece3fep-22, 0x1.71df25cb7b334p-19, 0x1.a01999e2ab5b5p-16, 0x1.a01a012a01579p-13,
    0x1.6c16c1843869bp-10, 0x1.1111111127d3fp-7,  0x1.5555555550841p-5,  0x1.55555555554f9p-3,  0x1.000000000000ap-1};
static const real atanh_terms[] = {2 / 21.0, 2 / 19.0, 2 / 17.0, 2 / 15.0, 2 / 13.0,
                                   2 / 11.0, 2 / 9.0,  2 / 7.0,  2 / 5.0,  2 / 3.0};
#endif

/* The Horner sum of c[0] r^(count-1) + ... + c[count-1]. */
RL_INLINE vreal horner(const real *c, int count, vreal r)
{
    vreal sum = splat(c[0]);
    for (int i = 1; i < count; i++) sum = fma_(sum, r, splat(c[i]));
    return sum;
}

/* r, and n in the low bits of ROUNDER's. */
RL_INLINE vreal exp_reduce(vreal x, vint *n)
{
    vreal shifted = fma_(x, splat(LOG2_E), splat(ROUNDER));
    vreal rounded = shifted - splat(ROUNDER);
    *n = (vint)shifted;
    return fma_(rounded, splat(-LN2_LOWER), fma_(rounded, splat(-LN2_UPPER), x));
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

/* p(r), in about [0.7, 1.42]. */
RL_INLINE vreal exp_polynomial(vreal r)
{
    vreal p = horner(exp_fine, sizeof exp_fine / sizeof *exp_fine, r);
    return fma_(fma_(p, r, splat(1)), r, splat(1));
}

/* For any argument; NaN stays NaN. */
RL_INLINE vreal exp_(vreal x)
{
    vint n;
    vreal r = exp_reduce(at_most(at_least(x, splat(EXP_LOW)), splat(EXP_HIGH)), &n);
    return scale_wide(exp_polynomial(r), n);
}

/* What the caller knows of |x| in every lane.  The value is the same whichever is told. */
enum { EXP_ANY, EXP_IS_SAFE, EXP_IS_SMALL };

/* As exp_, by the shortest way: within EXP_SAFE nothing leaves the normal range, within EXP_SMALL n is 0. */
RL_INLINE vreal exp_decay(vreal x, int known)
{
    vint n;
    if (known == EXP_IS_SMALL) return exp_polynomial(x);
    if (known == EXP_ANY) return exp_(x);
    vreal r = exp_reduce(x, &n);
    return scale_normal(exp_polynomial(r), n);
}

/*
 * log(1 + e) for e >= 0: 1 + e = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], so that f = 2^-k e + (2^-k - 1) is e
 * itself for small e and is rounded once otherwise; then with s = f / (2 + f), log(1 + f) = f - s (f - R(s²)), where
 * R is the series of 2 atanh(s) / s without its first term.
 */
RL_INLINE vreal log1p_(vreal e)
{
    vint k = ((vint)(e + splat(1)) - (integer)SQRT_HALF_BITS) >> FRACTION_BITS;
    vreal power = (vreal)((EXPONENT_BIAS - k) << FRACTION_BITS);
    vreal f = fma_(e, power, power - splat(1));
    vreal s = f / (f + splat(2)), square = s * s;
    vreal series = square * horner(atanh_terms, sizeof atanh_terms / sizeof *atanh_terms, square);
    vreal count = (vreal)(k + (vint)splat(ROUNDER)) - splat(ROUNDER);
    vreal rest = fma_(count, splat(LN2_LOWER), fma_(series - f, s, f));
    return fma_(count, splat(LN2_UPPER), rest);
}

/* value > 20 ? value : log(1 + exp(value)), to a few ulp also where it is tiny. */
RL_INLINE vreal softplus_(vreal value)
{
    return if_greater(value, splat(20), value, log1p_(exp_(value)));
}

/* value σ(value); exp is taken of -|value|, so nothing overflows on the way.  -inf gives NaN, as the product does. */
RL_INLINE vreal silu_(vreal value)
{
    vreal e = exp_((vreal)((vint)value | (vint)splat((real)-0.0)));
    vreal numerator = if_greater(splat(0), value, e, splat(1));
    return value * (numerator / (e + splat(1)));
}

#endif
