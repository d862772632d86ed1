/* Columns in and out of registers: LANES rows of LANES lanes whose rows are neighbours in memory. */
#ifndef RL_CPU_SCAN_COLUMNS_H
#define RL_CPU_SCAN_COLUMNS_H

#include <stdbool.h>

#include "convert.h"
#include "transpose.h"

/* LANES neighbouring elements past the cache, where the machine can; the place is aligned to all of them. */
RL_INLINE void stream_elements(char *to, vreal value, rill_dtype dtype)
{
#if defined(__x86_64__)
    if (element_size(dtype) == sizeof(real)) {
        RL_OP(stream)((real *)to, value);
        return;
    }
#if RL_REAL_BITS == 32
    vhalf half = dtype == RILL_BF16 ? to_bf16(value) : to_f16(value);
#if defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)to, (__m256i)half);
#elif defined(__AVX2__)
    _mm_stream_si128((__m128i *)to, (__m128i)half);
#else
    _mm_stream_si64((long long *)to, (long long)half);
#endif
#endif
#else
    store_elements(to, value, dtype);
#endif
}

/* The element of row 0 and lane 0, and the bytes from lane to lane; `falling` rows lie one below the other. */
typedef struct column {
    char *data;
    int64_t lane;
} column;

RL_INLINE char *lowest(column c, bool falling, rill_dtype dtype)
{
    return falling ? c.data - (LANES - 1) * element_size(dtype) : c.data;
}

RL_INLINE column rows_on(column c, bool falling, int64_t rows, rill_dtype dtype)
{
    c.data += (falling ? -rows : rows) * element_size(dtype);
    return c;
}

#if defined(__AVX512F__)
/*
 * LANES columns of LANES numbers, turned on their way from memory: halves of two of them are joined by the load, so
 * that one stage of the transposition falls away, and all but the last of the others stay within 16 bytes, which is
 * twice as fast as moving between them.
 */
RL_INLINE vreal join(const char *lower, const char *upper)
{
    __m512d low = _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)lower));
    return (vreal)_mm512_insertf64x4(low, _mm256_loadu_pd((const double *)upper), 1);
}

RL_INLINE vreal even_parts(vreal x, vreal y)
{
    return (vreal)_mm512_shuffle_f64x2((__m512d)x, (__m512d)y, 0x88);
}

RL_INLINE vreal odd_parts(vreal x, vreal y)
{
    return (vreal)_mm512_shuffle_f64x2((__m512d)x, (__m512d)y, 0xdd);
}

#if RL_REAL_BITS == 64
RL_INLINE void load_turned(vreal *v, const char *at, int64_t lane)
{
    for (int half = 0; half < 2; half++, at += 32) {
        const char *const upper = at + 4 * lane;
        vreal a = join(at, at + 2 * lane), b = join(at + lane, at + 3 * lane);
        vreal c = join(upper, upper + 2 * lane), d = join(upper + lane, upper + 3 * lane);
        vreal first = _mm512_unpacklo_pd(a, b), second = _mm512_unpacklo_pd(c, d);
        v[4 * half] = even_parts(first, second);
        v[4 * half + 2] = odd_parts(first, second);
        first = _mm512_unpackhi_pd(a, b), second = _mm512_unpackhi_pd(c, d);
        v[4 * half + 1] = even_parts(first, second);
        v[4 * half + 3] = odd_parts(first, second);
    }
}
#else
/* Squares of 4 numbers, each within 16 bytes. */
RL_INLINE void turn_fours(vreal *v)
{
    vreal a = _mm512_unpacklo_ps(v[0], v[1]), b = _mm512_unpackhi_ps(v[0], v[1]);
    vreal c = _mm512_unpacklo_ps(v[2], v[3]), d = _mm512_unpackhi_ps(v[2], v[3]);
    v[0] = (vreal)_mm512_unpacklo_pd((__m512d)a, (__m512d)c);
    v[1] = (vreal)_mm512_unpackhi_pd((__m512d)a, (__m512d)c);
    v[2] = (vreal)_mm512_unpacklo_pd((__m512d)b, (__m512d)d);
    v[3] = (vreal)_mm512_unpackhi_pd((__m512d)b, (__m512d)d);
}

RL_INLINE void load_turned(vreal *v, const char *at, int64_t lane)
{
    for (int half = 0; half < 2; half++, at += 32) {
        const char *const upper = at + 8 * lane;
        vreal x[4], y[4];
        for (int i = 0; i < 4; i++) x[i] = join(at + i * lane, at + (i + 4) * lane);
        for (int i = 0; i < 4; i++) y[i] = join(upper + i * lane, upper + (i + 4) * lane);
        turn_fours(x);
        turn_fours(y);
        for (int i = 0; i < 4; i++) v[8 * half + i] = even_parts(x[i], y[i]);
        for (int i = 0; i < 4; i++) v[8 * half + 4 + i] = odd_parts(x[i], y[i]);
    }
}
#endif
#else
RL_INLINE void load_turned(vreal *v, const char *at, int64_t lane)
{
    for (int i = 0; i < LANES; i++) v[i] = load_any(at + i * lane);
    transpose(v);
}
#endif

/* What lies `ahead` bytes on will be read later. */
RL_INLINE void fetch_columns(column c, bool falling, rill_dtype dtype, int64_t ahead)
{
    const char *at = lowest(c, falling, dtype) + ahead;
    for (int lane = 0; lane < LANES; lane++, at += c.lane) __builtin_prefetch(at, 0, 2);
}

RL_INLINE void load_columns(vreal *rows, column c, bool falling, rill_dtype dtype)
{
    vreal v[LANES];
    const char *at = lowest(c, falling, dtype);
    const bool whole = element_size(dtype) == sizeof(real);
    if (whole) {
        load_turned(v, at, c.lane);
    } else {
        for (int lane = 0; lane < LANES; lane++) v[lane] = load_elements(at + lane * c.lane, dtype);
        transpose(v);
    }
    for (int i = 0; i < LANES; i++) rows[falling ? LANES - 1 - i : i] = v[i];
}

RL_INLINE void store_columns(column c, const vreal *rows, bool falling, rill_dtype dtype, bool past_cache)
{
    vreal v[LANES];
    char *at = lowest(c, falling, dtype);
    for (int i = 0; i < LANES; i++) v[i] = rows[falling ? LANES - 1 - i : i];
    transpose(v);
    if (past_cache)
        for (int lane = 0; lane < LANES; lane++, at += c.lane) stream_elements(at, v[lane], dtype);
    else
        for (int lane = 0; lane < LANES; lane++, at += c.lane) store_elements(at, v[lane], dtype);
}

#endif
