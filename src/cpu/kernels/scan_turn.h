/*
 * LANES columns of LANES numbers turned into rows on their way from memory, and rows into columns on their way back.
 *
 * The parts of a register that one instruction reaches are its 16-byte quarters (AVX2: halves).  Moving within them
 * is two or three times as fast as between them, and quarters come as they are wanted when a register is joined from
 * two places in memory, so most of the work is done by those.  With the baseline, transpose.h does it all.
 */
#ifndef RL_CPU_SCAN_TURN_H
#define RL_CPU_SCAN_TURN_H

#include "transpose.h"

#if defined(__AVX2__)
#if defined(__AVX512F__)
#define RL_JOINED_BYTES 32

RL_INLINE vreal join(const char *lower, const char *upper)
{
    __m512d low = _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)lower));
    return (vreal)_mm512_insertf64x4(low, _mm256_loadu_pd((const double *)upper), 1);
}

RL_INLINE vreal even_quarters(vreal x, vreal y)
{
    return (vreal)_mm512_shuffle_f64x2((__m512d)x, (__m512d)y, 0x88);
}

RL_INLINE vreal odd_quarters(vreal x, vreal y)
{
    return (vreal)_mm512_shuffle_f64x2((__m512d)x, (__m512d)y, 0xdd);
}
#else
#define RL_JOINED_BYTES 16

RL_INLINE vreal join(const char *lower, const char *upper)
{
    __m256d low = _mm256_castpd128_pd256(_mm_loadu_pd((const double *)lower));
    return (vreal)_mm256_insertf128_pd(low, _mm_loadu_pd((const double *)upper), 1);
}
#endif

/* Squares of numbers within 16 bytes: QUARTER rows of QUARTER numbers in each. */
enum { QUARTER = 16 / sizeof(real) };

#if RL_REAL_BITS == 64
RL_INLINE void turn_quarters(vreal *v)
{
    vreal low = RL_OP(unpacklo)(v[0], v[1]), high = RL_OP(unpackhi)(v[0], v[1]);
    v[0] = low;
    v[1] = high;
}
#else
#if defined(__AVX512F__)
typedef __m512d pairs;
#else
typedef __m256d pairs;
#endif

RL_INLINE void turn_quarters(vreal *v)
{
    vreal a = RL_OP(unpacklo)(v[0], v[1]), b = RL_OP(unpackhi)(v[0], v[1]);
    vreal c = RL_OP(unpacklo)(v[2], v[3]), d = RL_OP(unpackhi)(v[2], v[3]);
    v[0] = (vreal)RL_X86(unpacklo, pd)((pairs)a, (pairs)c);
    v[1] = (vreal)RL_X86(unpackhi, pd)((pairs)a, (pairs)c);
    v[2] = (vreal)RL_X86(unpacklo, pd)((pairs)b, (pairs)d);
    v[3] = (vreal)RL_X86(unpackhi, pd)((pairs)b, (pairs)d);
}
#endif

/*
 * Row i is the i-th number of every column.  Registers hold the same half of two columns that lie QUARTER apart
 * (AVX2) or so that the last step brings their quarters in order.  Both halves of a column are read together: columns
 * may share one set of the cache, where the line would not stay.
 */
RL_INLINE void load_turned(vreal *v, const char *at, int64_t column)
{
    vreal half[2][LANES / 2];
    for (int i = 0; i < LANES / 2; i++) {
        const char *from = at + (i / QUARTER * 2 * QUARTER + i % QUARTER) * column;
        for (int k = 0; k < 2; k++)
            half[k][i] = join(from + k * RL_JOINED_BYTES, from + QUARTER * column + k * RL_JOINED_BYTES);
    }
    for (int k = 0; k < 2; k++) {
        vreal *x = half[k], *to = v + k * (LANES / 2);
#if defined(__AVX512F__)
        turn_quarters(x);
        turn_quarters(x + QUARTER);
        for (int i = 0; i < QUARTER; i++) to[i] = even_quarters(x[i], x[i + QUARTER]);
        for (int i = 0; i < QUARTER; i++) to[QUARTER + i] = odd_quarters(x[i], x[i + QUARTER]);
#else
        turn_quarters(x);
        for (int i = 0; i < QUARTER; i++) to[i] = x[i];
#endif
    }
}

/* The same, and its own inverse, from registers. */
RL_INLINE void turn_registers(vreal *v)
{
    vreal x[LANES];
    for (int i = 0; i < LANES; i++) x[i] = v[i];
    for (int i = 0; i < LANES; i += QUARTER) turn_quarters(x + i);
    for (int i = 0; i < QUARTER; i++) {
#if defined(__AVX512F__)
        const __m512d p = (__m512d)x[i], q = (__m512d)x[QUARTER + i], r = (__m512d)x[2 * QUARTER + i],
                      s = (__m512d)x[3 * QUARTER + i];
        vreal a = (vreal)_mm512_shuffle_f64x2(p, q, 0x44), b = (vreal)_mm512_shuffle_f64x2(r, s, 0x44);
        vreal c = (vreal)_mm512_shuffle_f64x2(p, q, 0xee), d = (vreal)_mm512_shuffle_f64x2(r, s, 0xee);
        v[i] = even_quarters(a, b);
        v[QUARTER + i] = odd_quarters(a, b);
        v[2 * QUARTER + i] = even_quarters(c, d);
        v[3 * QUARTER + i] = odd_quarters(c, d);
#else
        const __m256d p = (__m256d)x[i], q = (__m256d)x[QUARTER + i];
        v[i] = (vreal)_mm256_permute2f128_pd(p, q, 0x20);
        v[QUARTER + i] = (vreal)_mm256_permute2f128_pd(p, q, 0x31);
#endif
    }
}

#else

RL_INLINE void load_turned(vreal *v, const char *at, int64_t column)
{
    for (int i = 0; i < LANES; i++) v[i] = load_any(at + i * column);
    transpose(v);
}

RL_INLINE void turn_registers(vreal *v)
{
    transpose(v);
}

#endif
#endif
