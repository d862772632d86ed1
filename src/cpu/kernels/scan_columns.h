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

/* What lies `ahead` bytes on will be read later. */
RL_INLINE void fetch_columns(column c, bool falling, rill_dtype dtype, int64_t ahead)
{
    const char *at = lowest(c, falling, dtype) + ahead;
    for (int lane = 0; lane < LANES; lane++, at += c.lane) __builtin_prefetch(at, 0, 2);
}

RL_INLINE void load_columns(vreal *rows, column c, bool falling, rill_dtype dtype, int64_t ahead)
{
    vreal v[LANES];
    const char *at = lowest(c, falling, dtype);
    for (int lane = 0; lane < LANES; lane++, at += c.lane) {
        v[lane] = load_elements(at, dtype);
        __builtin_prefetch(at + ahead, 0, 2);
    }
    transpose(v);
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
