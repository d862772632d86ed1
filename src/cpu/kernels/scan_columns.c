/*
 * Channels whose steps are neighbours in memory ([B,D,L]), straight from tensor to tensor: LANES steps of LANES
 * channels are turned in registers, walked and turned back.
 */
#include "scan_columns.h"
#include "scan.h"
#include "scan_step.h"
#include "table.h"

enum { AHEAD = 512 }; /* bytes along a channel that are asked for early */

typedef struct places {
    column a, input, before, out, da;
} places;

RL_INLINE void load_decays(vreal *rows, const rl_scan_columns *c, column a, rill_dtype dtype, bool falling,
                           int64_t ahead)
{
    if (!c->a_is_constant) {
        load_columns(rows, a, falling, dtype, ahead);
        return;
    }
    vreal same = gather_elements(a.data, c->a_lane, LANES, dtype);
    for (int i = 0; i < LANES; i++) rows[i] = same;
}

RL_INLINE vreal forward(const rl_scan_columns *c, const places *p, rill_dtype dtype, bool falling, vreal h)
{
    const int64_t ahead = falling ? -AHEAD : AHEAD;
    vreal a[LANES], row[LANES];
    load_decays(a, c, p->a, dtype, falling, ahead);
    load_columns(row, p->input, falling, dtype, ahead);
    for (int i = 0; i < LANES; i++) row[i] = h = step_forward(a[i], row[i], h, false);
    store_columns(p->out, row, falling, dtype, c->past_cache);
    return h;
}

RL_INLINE vreal back(const rl_scan_columns *c, const places *p, rill_dtype dtype, bool falling, vreal u)
{
    const int64_t ahead = falling ? -AHEAD : AHEAD;
    vreal a[LANES], row[LANES], before[LANES];
    load_decays(a, c, p->a, dtype, falling, ahead);
    load_columns(row, p->input, falling, dtype, ahead);
    for (int i = 0; i < LANES; i++) {
        row[i] += u;
        u = step_back(a[i], row[i], false);
    }
    if (c->out) store_columns(p->out, row, falling, dtype, c->past_cache);
    if (!c->da) return u;
    load_columns(before, p->before, falling, dtype, ahead);
    for (int i = 0; i < LANES; i++) before[i] = decay_gradient(a[i], before[i], row[i], false);
    store_columns(p->da, before, falling, dtype, c->past_cache);
    return u;
}

RL_INLINE void walk_columns(const rl_scan_columns *c, rill_dtype dtype, bool falling)
{
    const int64_t size = element_size(dtype);
    places p = {.a = {(char *)c->a, c->a_lane * size},
                .input = {(char *)c->input, c->input_lane * size},
                .before = {(char *)c->before, c->before_lane * size},
                .out = {c->out, c->out_lane * size},
                .da = {c->da, c->da_lane * size}};
    vreal state = *(const vreal *)c->state;
    for (int64_t t = 0; t < c->rows; t += LANES) {
        state = c->rule.back ? back(c, &p, dtype, falling, state) : forward(c, &p, dtype, falling, state);
        if (!c->a_is_constant) p.a = rows_on(p.a, falling, LANES, dtype);
        p.input = rows_on(p.input, falling, LANES, dtype);
        if (c->da) p.before = rows_on(p.before, falling, LANES, dtype);
        if (c->out) p.out = rows_on(p.out, falling, LANES, dtype);
        if (c->da) p.da = rows_on(p.da, falling, LANES, dtype);
    }
    *(vreal *)c->state = state;
}

RL_INLINE void walk_dtype(const rl_scan_columns *c, rill_dtype dtype)
{
    if (c->falling)
        walk_columns(c, dtype, true);
    else
        walk_columns(c, dtype, false);
}

void RL_NAME(rl_scan_walk_columns)(const rl_scan_columns *c)
{
    switch (c->dtype) {
    case RILL_BF16:
        walk_dtype(c, RILL_BF16);
        break;
    case RILL_F16:
        walk_dtype(c, RILL_F16);
        break;
    default:
        walk_dtype(c, RL_REAL_BITS == 32 ? RILL_F32 : RILL_F64);
    }
}
