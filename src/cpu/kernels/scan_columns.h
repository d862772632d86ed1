/* Columns in and out of registers: LANES rows of LANES lanes whose rows are neighbours in memory. */
#ifndef RL_CPU_SCAN_COLUMNS_H
#define RL_CPU_SCAN_COLUMNS_H

#include <stdbool.h>

#include "convert.h"
#include "scan_turn.h"

#define RL_LINE_BYTES 64 /* of a cache line */

/* A vector of bytes past the cache; both places are aligned to it. */
RL_INLINE void stream_vector(char *to, const char *from)
{
#if defined(__x86_64__)
    RL_OP(stream)((real *)to, *(const vreal *)from);
#else
    memcpy(to, from, RL_VECTOR_BYTES);
#endif
}

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

RL_INLINE void load_columns(vreal *rows, column c, bool falling, rill_dtype dtype)
{
    vreal v[LANES];
    const char *at = lowest(c, falling, dtype);
    const bool whole = element_size(dtype) == sizeof(real);
    if (whole) {
        load_turned(v, at, c.lane);
    } else {
        for (int lane = 0; lane < LANES; lane++) v[lane] = load_elements(at + lane * c.lane, dtype);
        turn_registers(v);
    }
    for (int i = 0; i < LANES; i++) rows[falling ? LANES - 1 - i : i] = v[i];
}

RL_INLINE void turn_rows(vreal *v, const vreal *rows, bool falling)
{
    for (int i = 0; i < LANES; i++) v[i] = rows[falling ? LANES - 1 - i : i];
    turn_registers(v);
}

RL_INLINE void store_columns(column c, const vreal *rows, bool falling, rill_dtype dtype)
{
    vreal v[LANES];
    char *at = lowest(c, falling, dtype);
    turn_rows(v, rows, falling);
    for (int lane = 0; lane < LANES; lane++, at += c.lane) store_elements(at, v[lane], dtype);
}

/* Groups of LANES rows whose columns fill cache lines together. */
RL_INLINE int groups_of_line(rill_dtype dtype)
{
    return RL_LINE_BYTES / (LANES * element_size(dtype));
}

/* The columns' lines as they fill. */
typedef struct lines {
    char bytes[LANES][RL_LINE_BYTES] __attribute__((aligned(RL_LINE_BYTES)));
} lines;

/* Past the cache, a line at a time: parts of one that come apart would cost a transfer each.  Group `group` of it. */
RL_INLINE void stream_columns(lines *l, column c, const vreal *rows, int group, bool falling, rill_dtype dtype)
{
    const int groups = groups_of_line(dtype), bytes = LANES * element_size(dtype);
    vreal v[LANES];
    char *at = lowest(c, falling, dtype);
    turn_rows(v, rows, falling);
    if (groups == 1) {
        for (int lane = 0; lane < LANES; lane++, at += c.lane) stream_elements(at, v[lane], dtype);
        return;
    }
    const int place = falling ? groups - 1 - group : group;
    for (int lane = 0; lane < LANES; lane++) store_elements(l->bytes[lane] + place * bytes, v[lane], dtype);
    if (group < groups - 1) return;
    if (!falling) at -= (groups - 1) * bytes;
    for (int lane = 0; lane < LANES; lane++, at += c.lane)
        for (int i = 0; i < RL_LINE_BYTES; i += RL_VECTOR_BYTES) stream_vector(at + i, l->bytes[lane] + i);
}

#endif
