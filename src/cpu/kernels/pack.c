/* B and C of a tile, converted and regrouped by blocks of states, so that the recurrence reads them in one stream. */
#include "convert.h"
#include "table.h"

RL_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where entry n of row t lies; `which` is 0 for B and 1 for C. */
RL_INLINE real *place(real *bc, const rl_input_tile *from, int which, int64_t t, int64_t n)
{
    int64_t first = n / RL_STATE_BLOCK * RL_STATE_BLOCK, width = least(RL_STATE_BLOCK, from->states - first);
    return bc + first * 2 * from->rows + (t * 2 + which) * width + (n - first);
}

/* Whole vectors where states lie side by side, then single states. */
RL_INLINE void pack_shared(real *bc, const rl_input_tile *from, const rl_matrix *m, int which, rill_dtype dtype)
{
    const int size = element_size(dtype);
    const int64_t states = from->states,
                  whole = m->lane == 1 && LANES % RL_STATE_BLOCK == 0 ? states / LANES * LANES : 0;
    for (int64_t t = 0; t < from->rows; t++) {
        const char *row = (const char *)m->data + t * m->row * size;
        for (int64_t n = 0; n < whole; n += LANES) {
            vreal v = load_elements(row + n * size, dtype);
            for (int i = 0; i < LANES; i += RL_STATE_BLOCK)
                memcpy(place(bc, from, which, t, n + i), (const real *)&v + i, RL_STATE_BLOCK * sizeof(real));
        }
        for (int64_t n = whole; n < states; n++)
            *place(bc, from, which, t, n) = load_element(row + n * m->lane * size, dtype);
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
