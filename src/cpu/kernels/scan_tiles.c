/* Tiles of scan in and out of tensors: what tiles.c does, and what only scan needs. */
#include "convert.h"
#include "scan.h"
#include "table.h"

RL_INLINE real load_one(const void *from, rill_dtype dtype)
{
    if (RL_REAL_BITS == 64 && dtype == RILL_F32) return (real) * (const float *)from;
    return load_element(from, dtype);
}

/* The same number in all lanes, the same row again and again, or both. */
static void load_repeated(vreal *tile, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    if (from->lane == 0) {
        const int64_t step = from->row * element_size(from->dtype);
        for (int64_t t = 0; t < rows && (t == 0 || step != 0); t++)
            tile[t] = splat(load_one((const char *)from->data + t * step, from->dtype));
    } else {
        RL_NAME(rl_scan_load)(tile, &(rl_matrix){from->data, from->dtype, 1, from->lane}, 1, lanes);
    }
    if (from->row == 0)
        for (int64_t t = 1; t < rows; t++) tile[t] = tile[0];
}

/* Complex double: a pair of lanes each, moved as they are. */
enum { PAIR_BYTES = 16, PAIRS = RL_VECTOR_BYTES / PAIR_BYTES };

static void load_pairs(char *tile, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    const char *data = from->data;
    for (int64_t t = 0; t < rows; t++, tile += RL_VECTOR_BYTES, data += from->row * PAIR_BYTES)
        for (int64_t lane = 0; lane < PAIRS; lane++)
            if (lane < lanes)
                memcpy(tile + lane * PAIR_BYTES, data + lane * from->lane * PAIR_BYTES, PAIR_BYTES);
            else
                memset(tile + lane * PAIR_BYTES, 0, PAIR_BYTES);
}

static void store_pairs(const rl_matrix *to, const char *tile, int64_t rows, int64_t lanes)
{
    char *data = to->data;
    for (int64_t t = 0; t < rows; t++, tile += RL_VECTOR_BYTES, data += to->row * PAIR_BYTES)
        for (int64_t lane = 0; lane < PAIRS; lane++)
            if (lane < lanes) memcpy(data + lane * to->lane * PAIR_BYTES, tile + lane * PAIR_BYTES, PAIR_BYTES);
}

void RL_NAME(rl_scan_load)(void *tile, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    if (!from->data)
        for (int64_t t = 0; t < rows; t++) ((vreal *)tile)[t] = splat(-(real)0);
    else if (from->dtype == RILL_C128)
        load_pairs(tile, from, rows, lanes);
    else if (from->row == 0 || from->lane == 0)
        load_repeated(tile, from, rows, lanes);
    else
        RL_NAME(rl_load)(tile, LANES, from, rows, lanes);
}

void RL_NAME(rl_scan_store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes)
{
    if (to->dtype == RILL_C128)
        store_pairs(to, tile, rows, lanes);
    else
        RL_NAME(rl_store)(to, tile, rows, lanes);
}

void RL_NAME(rl_scan_stream)(void *to_memory, const void *from_memory, int64_t bytes)
{
    char *to = to_memory;
    const char *from = from_memory;
#if defined(__x86_64__)
    int64_t head = -(int64_t)(uintptr_t)to & (RL_VECTOR_BYTES - 1);
    if (head > bytes) head = bytes;
    memcpy(to, from, (size_t)head);
    to += head, from += head, bytes -= head;
    for (; bytes >= RL_VECTOR_BYTES; to += RL_VECTOR_BYTES, from += RL_VECTOR_BYTES, bytes -= RL_VECTOR_BYTES)
        RL_OP(stream)((real *)to, load_any(from));
#endif
    memcpy(to, from, (size_t)bytes);
}
