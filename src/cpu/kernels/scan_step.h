/* One step of scan and of its gradients, a vector of lanes at a time; complex numbers are pairs of lanes. */
#ifndef RL_CPU_SCAN_STEP_H
#define RL_CPU_SCAN_STEP_H

#include "vec.h"

#if RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 16
#define REAL_PARTS 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14
#define IMAGINARY_PARTS 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15
#define SWAPPED_PARTS 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#elif RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 8
#define REAL_PARTS 0, 0, 2, 2, 4, 4, 6, 6
#define IMAGINARY_PARTS 1, 1, 3, 3, 5, 5, 7, 7
#define SWAPPED_PARTS 1, 0, 3, 2, 5, 4, 7, 6
#elif RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 4
#define REAL_PARTS 0, 0, 2, 2
#define IMAGINARY_PARTS 1, 1, 3, 3
#define SWAPPED_PARTS 1, 0, 3, 2
#else
#define REAL_PARTS 0, 0
#define IMAGINARY_PARTS 1, 1
#define SWAPPED_PARTS 1, 0
#endif

/* mask ? yes : no; a mask's lane is all ones or 0. */
RL_INLINE vreal choose(vint mask, vreal yes, vreal no)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    return _mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), no, yes);
#elif defined(__AVX512F__)
    return _mm512_mask_blend_pd(_mm512_movepi64_mask((__m512i)mask), no, yes);
#elif defined(__AVX2__)
    return RL_OP(blendv)(no, yes, (vreal)mask);
#else
    return (vreal)((mask & (vint)yes) | (~mask & (vint)no));
#endif
}

/* The sign bit in the lanes of the real (0) or imaginary (1) parts. */
RL_INLINE vint sign_of_part(int part)
{
    const integer sign = (integer)((natural)1 << (RL_REAL_BITS - 1));
    vint mask = {0};
    for (int lane = part; lane < LANES; lane += 2) mask[lane] = sign;
    return mask;
}

RL_INLINE vreal conjugate(vreal x, bool is_complex)
{
    return is_complex ? (vreal)((vint)x ^ sign_of_part(1)) : x;
}

/* The plain formula, as in the loop: xr yr - xi yi, xr yi + xi yr. */
RL_INLINE vreal times(vreal x, vreal y, bool is_complex)
{
    if (!is_complex) return x * y;
    vreal re = __builtin_shufflevector(x, x, REAL_PARTS), im = __builtin_shufflevector(x, x, IMAGINARY_PARTS);
    vreal swapped = __builtin_shufflevector(y, y, SWAPPED_PARTS);
    return re * y + (vreal)((vint)im ^ sign_of_part(0)) * swapped;
}

/* A property of numbers from that of their parts. */
RL_INLINE vint both_parts(vint mask, bool is_complex)
{
    return is_complex ? mask & __builtin_shufflevector(mask, mask, SWAPPED_PARTS) : mask;
}

RL_INLINE vint is_zero(vreal x, bool is_complex)
{
    return both_parts(x == (vreal){0}, is_complex);
}

/* `other` where a decay is 0, else x + y; with masks the choice adds nothing to the chain of steps. */
RL_INLINE vreal add_unless_reset(vreal a, vreal x, vreal y, vreal other, bool is_complex)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    if (!is_complex) return _mm512_mask_add_ps(other, _mm512_cmp_ps_mask(a, splat(0), _CMP_NEQ_UQ), x, y);
#elif defined(__AVX512F__)
    if (!is_complex) return _mm512_mask_add_pd(other, _mm512_cmp_pd_mask(a, splat(0), _CMP_NEQ_UQ), x, y);
#endif
    return choose(is_zero(a, is_complex), other, x + y);
}

RL_INLINE vreal step_forward(vreal a, vreal input, vreal h, bool is_complex)
{
    return add_unless_reset(a, times(a, h, is_complex), input, input, is_complex);
}

/* What the step hands on, of the whole gradient g. */
RL_INLINE vreal step_back(vreal a, vreal g, bool is_complex)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    if (!is_complex) return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(a, splat(0), _CMP_NEQ_UQ), a, g);
#elif defined(__AVX512F__)
    if (!is_complex) return _mm512_maskz_mul_pd(_mm512_cmp_pd_mask(a, splat(0), _CMP_NEQ_UQ), a, g);
#endif
    return choose(is_zero(a, is_complex), (vreal){0}, times(conjugate(a, is_complex), g, is_complex));
}

RL_INLINE vreal decay_gradient(vreal a, vreal before, vreal g, bool is_complex)
{
    vint finite = both_parts(before - before == (vreal){0}, is_complex);
    return choose(is_zero(a, is_complex) & ~finite, (vreal){0}, times(g, conjugate(before, is_complex), is_complex));
}

#endif
