/*
 * exp, softplus and the gate, a vector at a time.
 *
 * exp(x) = 2^n 2^f, n being x / ln 2 rounded and f what is rounded away.  n is an integer, or in AVX-512, where one
 * register holds the powers 2^(i / 16) and can be permuted, a multiple of 1 / 16, which halves the polynomial of 2^f.
 * The polynomial has the first coefficients 1 and ln 2, and the others from a minimax fit of the relative error: the
 * error falls with f², so slow decays have no bias.  It stays below 1.2 ulp with fma and 2 ulp without.
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
#define INTEGER_ROUNDER 0x1.8p+23f
#define REAL_MAX FLT_MAX
#define FRACTION_BITS 23
#define EXPONENT_BIAS 127
#define EXP_LOW -104.0f /* below it exp rounds to 0 */
#define EXP_HIGH 89.0f  /* above it exp overflows */
#define EXP_SAFE 86.0f  /* within ± this the result is normal and 2^n is one exponent */
#define EXP2_LOW -151.0f
#define EXP2_HIGH 129.0f
#if defined(__AVX512F__)
#define RL_TABLE_BITS 4
static const real exp2_terms[] = {0x1.c6b33ep-5f, 0x1.ebfff4p-3f, 0x1.62e43p-1f};
#else
#define RL_TABLE_BITS 0
static const real exp2_terms[] = {0x1.414dccp-13f, 0x1.5f049cp-10f, 0x1.3b2e1p-7f,
                                  0x1.c6af88p-5f,  0x1.ebfbdcp-3f,  0x1.62e43p-1f};
#endif
static const real atanh_terms[] = {0x1.f1d5c2p-3f, 0x1.b6cd2p-3f, 0x1.2509d8p-2f, 0x1.9996a6p-2f, 0x1.555558p-1f};
#else
#define LOG2_E 0x1.71547652b82fep+0
#define LOG2_E_REST 0x1.777d0ffda0d24p-56
#define LN2_UPPER 0x1.62e42fefa0000p-1 /* 37 bits; n has at most 11 */
#define LN2_LOWER 0x1.cf79abc9e3b3ap-40
#define INTEGER_ROUNDER 0x1.8p+52
#define RL_TABLE_BITS 0
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
                                  0x1.ebfbdff82c5a1p-3,  0x1.62e42fefa39efp-1};
static const real atanh_terms[] = {0x1.517bc084fca61p-3, 0x1.1e3894bb15ba0p-4, 0x1.c180979439754p-4,
                                   0x1.dfe043a72faeap-4, 0x1.1123605a8a476p-3, 0x1.3b12d45df81b9p-3,
                                   0x1.745d1e10857efp-3, 0x1.c71c71a592a29p-3, 0x1.24924924c2524p-2,
                                   0x1.9999999999551p-2, 0x1.5555555555556p-1};
#endif

/* Added to a number, leaves its nearest integer, or multiple of 1 / RL_TABLE, in the low bits. */
#define ROUNDER (INTEGER_ROUNDER / (1 << RL_TABLE_BITS))

#if RL_TABLE_BITS > 0
enum { RL_TABLE = 1 << RL_TABLE_BITS };

/* The bits of 2^(i / RL_TABLE), less those that i itself brings when n is shifted into the exponent; and what their
 * rounding has left out, relative to them. */
static const vint exp2_table = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
                                0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
                                0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
static const vreal exp2_rest = {0,
                                0x1.8d96d4p-25f,
                                -0x1.9c0c22p-27f,
                                0x1.964904p-25f,
                                0x1.125002p-25f,
                                0x1.370be4p-25f,
                                -0x1.0a355p-25f,
                                -0x1.00d8acp-27f,
                                0x1.26055cp-26f,
                                -0x1.05cb44p-25f,
                                0x1.67a1cap-28f,
                                0x1.a3b5e4p-28f,
                                -0x1.f9c304p-27f,
                                -0x1.6961b4p-28f,
                                -0x1.a5217cp-28f,
                                0x1.61428ep-28f};
#endif

/* Up to here δ / ln 2 is finite. */
#define DELTA_LARGE (REAL_MAX / 2)

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
    vuint half = (vuint)(n >> 1), other = (vuint)n - half;
    vuint upper = (half + EXPONENT_BIAS) << FRACTION_BITS, lower = (other + EXPONENT_BIAS) << FRACTION_BITS;
    return p * (vreal)upper * (vreal)lower;
}

/* n, or its multiple by RL_TABLE, out of the low bits of a number to which ROUNDER was added. */
RL_INLINE vint whole_of(vreal shifted)
{
    return (vint)((vuint)shifted - (vuint)splat(ROUNDER));
}

/*
 * 2^(n + f), n in the low bits of a number to which ROUNDER was added.  `safe`: the result is normal in every lane;
 * its value is the same either way.
 */
#if RL_TABLE_BITS > 0
RL_INLINE vreal exp2_of(vreal shifted, vreal f, int safe)
{
    const int up = FRACTION_BITS - RL_TABLE_BITS;
    vuint bits = (vuint)shifted, raised = safe ? bits << up : (bits & (RL_TABLE - 1)) << up;
    vreal power = (vreal)((vuint)look_up(exp2_table, (vint)bits) + raised);
    vreal above = fma_(horner(TERMS(exp2_terms), f), f, (vreal)look_up((vint)exp2_rest, (vint)bits));
    vreal p = fma_(power, above, power);
    return safe ? p : scale_wide(p, whole_of(shifted) >> RL_TABLE_BITS);
}
#else
RL_INLINE vreal exp2_of(vreal shifted, vreal f, int safe)
{
    vreal p = fma_(horner(TERMS(exp2_terms), f), f, splat(1));
    return safe ? (vreal)((vuint)p + ((vuint)shifted << FRACTION_BITS)) : scale_wide(p, whole_of(shifted));
}
#endif

/* exp(x).  `safe`: |x| <= EXP_SAFE in every lane; the value is the same, the way shorter.  NaN stays NaN. */
RL_INLINE vreal exp_(vreal x, int safe)
{
    if (!safe) x = at_most(at_least(x, splat(EXP_LOW)), splat(EXP_HIGH));
    vreal shifted = fma_(x, splat(LOG2_E), splat(ROUNDER)), n = shifted - splat(ROUNDER);
    vreal r = fma_(n, splat(-LN2_LOWER), fma_(n, splat(-LN2_UPPER), x));
    return exp2_of(shifted, r * splat(LOG2_E), safe);
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
/* For |δ| <= DELTA_LARGE, or NaN. */
RL_INLINE decay_rate decay_rate_of(vreal delta)
{
    vreal upper = delta * splat(LOG2_E);
    return (decay_rate){.upper = upper, .rest = fma_(delta, splat(LOG2_E_REST), fma_(delta, splat(LOG2_E), -upper))};
}

/* exp(δ A), NaN where δ A is.  `safe`: |δ A| <= EXP_SAFE in every lane; the value is the same, the way shorter. */
RL_INLINE vreal exp_decay(decay_rate rate, vreal A, int safe)
{
    vreal shifted = fma_(rate.upper, A, splat(ROUNDER)), n = shifted - splat(ROUNDER);
    vreal e = exp2_of(shifted, fma_(rate.rest, A, fma_(rate.upper, A, -n)), safe), exponent = rate.upper * A;
    if (safe) return e;
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

/* exp(δ A) straight from δ, of any size: the same value where δ / ln 2 can be had, and rounded as the product else.
 */
RL_INLINE vreal exp_decay_of(vreal delta, vreal A)
{
    vreal plain = exp_(delta * A, 0), rated = exp_decay(decay_rate_of(delta), A, 0);
    return if_greater((vreal)magnitude_bits(delta), splat(DELTA_LARGE), plain, rated);
}

/* exp(-|value|), in [0, 1]. */
RL_INLINE vreal exp_of_minus(vreal value, int safe)
{
    return exp_((vreal)((vint)value | (vint)splat((real)-0.0)), safe);
}

/* e / below, where `below` is from 2 to 3, or NaN.  In AVX-512 a step of Newton's takes 14 bits to 28. */
RL_INLINE vreal quotient(vreal e, vreal below)
{
#if RL_REAL_BITS == 32 && defined(__AVX512F__)
    vreal inverse = _mm512_rcp14_ps(below);
    return e * fma_(inverse, fma_(-below, inverse, splat(1)), inverse);
#else
    return e / below;
#endif
}

/*
 * softplus(value) = log(1 + exp(value)), value itself above 20, from e = exp(-|value|): it is max(value, 0) + log(1 +
 * e), and with s = e / (2 + e) <= 1/3 log(1 + e) = e - s (e - R), where R(s²) is 2 atanh(s) / s without its first
 * term, here s² times a minimax polynomial.  So it is good to a few ulp also where it is tiny.
 */
RL_INLINE vreal softplus_from(vreal value, vreal e)
{
    vreal s = quotient(e, e + splat(2)), square = s * s;
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
