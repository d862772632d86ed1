/* B and C of a tile, converted and regrouped by blocks of states, so that the recurrence reads them in one stream. */
#include "convert.h"
#include "table.h"

RL_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `count` numbers, `which` (0: B, 1: C) of row t, from state n on. */
RL_INLINE void place(real *bc, const rl_input_tile *from, const real *values, int which, int64_t t, int64_t n,
                     int64_t count)
{
    if ((int)LANES >= (int)RL_STATE_BLOCK && count % RL_STATE_BLOCK == 0 && n % RL_STATE_BLOCK == 0) {
        real *to = bc + n * 2 * from->rows + (t * 2 + which) * RL_STATE_BLOCK;
        for (int64_t i = 0; i < count; i += RL_STATE_BLOCK, to += RL_STATE_BLOCK * 2 * from->rows)
            memcpy(to, values + i, RL_STATE_BLOCK * sizeof *to);
        return;
    }
    while (count > 0) {
        int64_t block = n / RL_STATE_BLOCK, first = block * RL_STATE_BLOCK, inside = n - first;
        int64_t width = least(RL_STATE_BLOCK, from->states - first), here = least(width - inside, count);
        real *to = bc + first * 2 * from->rows + (t * 2 + which) * width + inside;
        for (int64_t i = 0; i < here; i++) to[i] = values[i];
        values += here, n += here, count -= here;
    }
}

RL_INLINE void pack_shared(real *bc, const rl_input_tile *from, const rl_matrix *m, int which, rill_dtype dtype)
{
    const int size = element_size(dtype);
    for (int64_t t = 0; t < from->rows; t++) {
        const char *row = (const char *)m->data + t * m->row * size;
        for (int64_t n = 0; n < from->states; n += LANES) {
            int64_t count = least(LANES, from->states - n);
            const char *at = row + n * m->lane * size;
            vreal v = m->lane == 1 && count == LANES ? load_elements(at, dtype)
                                                     : gather_elements(at, m->lane, count, dtype);
            place(bc, from, (const real *)&v, which, t, n, count);
        }
    }
}

/* One vector a state, its lanes taken from their own groups. */
RL_INLINE void pack_spread(real *bc, const rl_input_tile *from, const rl_matrix *m, int64_t group, int which,
                           rill_dtype dtype)
{
    const int size = element_size(dtype);
    for (int64_t n = 0; n < from->states; n++) {
        int64_t first = n / RL_STATE_BLOCK * RL_STATE_BLOCK, width = least(RL_STATE_BLOCK, from->states - first);
        vreal *to = (vreal *)bc + first * 2 * from->rows + which * width + (n - first);
        for (int64_t t = 0; t < from->rows; t++) {
            char row[RL_VECTOR_BYTES] __attribute__((aligned(RL_VECTOR_BYTES))) = {0};
            const char *at = (const char *)m->data + (t * m->row + n * m->lane) * size;
            for (int64_t lane = 0, used = from->phase; lane < from->lanes; lane++) {
                memcpy(row + lane * size, at, (size_t)size);
                if (++used == from->group_channels) at += group * size, used = 0;
            }
            to[t * 2 * width] = load_elements(row, dtype);
        }
    }
}

RL_INLINE void pack_any(real *bc, const rl_input_tile *from, rill_dtype dtype)
{
    if (from->spread) {
        pack_spread(bc, from, &from->B, from->B_group, 0, dtype);
        pack_spread(bc, from, &from->C, from->C_group, 1, dtype);
    } else {
        pack_shared(bc, from, &from->B, 0, dtype);
        pack_shared(bc, from, &from->C, 1, dtype);
    }
}

void RL_NAME(rl_pack)(void *bc, const rl_input_tile *from)
{
    switch (from->B.dtype) {
    case RILL_BF16:
        pack_any(bc, from, RILL_BF16);
        break;
    case RILL_F16:
        pack_any(bc, from, RILL_F16);
        break;
    default:
        pack_any(bc, from, RL_REAL_BITS == 32 ? RILL_F32 : RILL_F64);
    }
}
