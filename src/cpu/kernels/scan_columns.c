/*
 * Channels whose steps are neighbours in memory ([B,D,L]), or consecutive pieces of one such channel's time, straight
 * from tensor to tensor: LANES steps of LANES lanes are turned in registers, walked and turned back.
 */
#include "scan_columns.h"
#include "scan.h"
#include "scan_step.h"
#include "scan_summary.h"
#include "table.h"

typedef struct places {
    column a, input, before, out, da;
} places;

RL_INLINE places places_of(const rl_scan_columns *c, rill_dtype dtype)
{
    const int64_t size = element_size(dtype);
    return (places){.a = {(char *)c->a, c->a_lane * size},
                    .input = {(char *)c->input, c->input_lane * size},
                    .before = {(char *)c->before, c->before_lane * size},
                    .out = {c->out, c->out_lane * size},
                    .da = {c->da, c->da_lane * size}};
}

RL_INLINE void move_on(places *p, const rl_scan_columns *c, rill_dtype dtype, bool falling)
{
    if (!c->a_is_constant) p->a = rows_on(p->a, falling, LANES, dtype);
    p->input = rows_on(p->input, falling, LANES, dtype);
    if (c->out) p->out = rows_on(p->out, falling, LANES, dtype);
    if (!c->da) return;
    p->before = rows_on(p->before, falling, LANES, dtype);
    p->da = rows_on(p->da, falling, LANES, dtype);
}

RL_INLINE void load_decays(vreal *rows, const rl_scan_columns *c, column a, rill_dtype dtype, bool falling)
{
    if (!c->a_is_constant) {
        load_columns(rows, a, falling, dtype);
        return;
    }
    vreal same = gather_elements(a.data, c->a_lane, LANES, dtype);
    for (int i = 0; i < LANES; i++) rows[i] = same;
}

RL_INLINE vreal forward(const rl_scan_columns *c, const places *p, rill_dtype dtype, bool falling, const vreal *a,
                        vreal *row, vreal h)
{
    for (int i = 0; i < LANES; i++) row[i] = h = step_forward(a[i], row[i], h, false);
    store_columns(p->out, row, falling, dtype, c->past_cache);
    return h;
}

RL_INLINE vreal back(const rl_scan_columns *c, const places *p, rill_dtype dtype, bool falling, const vreal *a,
                     vreal *row, vreal u)
{
    vreal before[LANES];
    for (int i = 0; i < LANES; i++) {
        row[i] += u;
        u = step_back(a[i], row[i], false);
    }
    if (c->out) store_columns(p->out, row, falling, dtype, c->past_cache);
    if (!c->da) return u;
    load_columns(before, p->before, falling, dtype);
    fetch_columns(p->before, falling, dtype, c->ahead);
    for (int i = 0; i < LANES; i++) before[i] = decay_gradient(a[i], before[i], row[i], false);
    store_columns(p->da, before, falling, dtype, c->past_cache);
    return u;
}

RL_INLINE void walk_columns(const rl_scan_columns *c, rill_dtype dtype, bool falling, bool in_tile)
{
    const vreal *tile_a = c->tile_a, *tile_input = c->tile_input;
    places p = places_of(c, dtype);
    vreal state = *(const vreal *)c->state;
    for (int64_t t = 0; t < c->rows; t += LANES) {
        vreal a[LANES], row[LANES];
        if (in_tile) {
            for (int i = 0; i < LANES; i++) a[i] = tile_a[t + i], row[i] = tile_input[t + i];
        } else {
            load_decays(a, c, p.a, dtype, falling);
            load_columns(row, p.input, falling, dtype);
            if (!c->a_is_constant) fetch_columns(p.a, falling, dtype, c->ahead);
        }
        fetch_columns(p.input, falling, dtype, c->ahead);
        state =
            c->rule.back ? back(c, &p, dtype, falling, a, row, state) : forward(c, &p, dtype, falling, a, row, state);
        move_on(&p, c, dtype, falling);
    }
    *(vreal *)c->state = state;
}

RL_INLINE void walk_dtype(const rl_scan_columns *c, rill_dtype dtype)
{
    if (c->falling && c->tile_a)
        walk_columns(c, dtype, true, true);
    else if (c->falling)
        walk_columns(c, dtype, true, false);
    else if (c->tile_a)
        walk_columns(c, dtype, false, true);
    else
        walk_columns(c, dtype, false, false);
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

#if RL_REAL_BITS == 64
RL_INLINE running take(const rl_scan_columns *c, bool falling, bool is_back)
{
    vreal *tile_a = c->tile_a, *tile_input = c->tile_input;
    places p = places_of(c, RILL_F64);
    running r = start_summary(RL_DECAY_SCALE(false), false);
    for (int64_t t = 0; t < c->rows; t += LANES) {
        vreal a[LANES], row[LANES];
        load_decays(a, c, p.a, RILL_F64, falling);
        load_columns(row, p.input, falling, RILL_F64);
        if (!c->a_is_constant) fetch_columns(p.a, falling, RILL_F64, c->ahead);
        for (int i = 0; i < LANES; i++) {
            tile_a[t + i] = a[i];
            tile_input[t + i] = row[i];
            r = add_row(r, a[i], row[i], is_back, false);
        }
        move_on(&p, c, RILL_F64, falling);
    }
    return r;
}

void RL_NAME(rl_scan_take_columns)(const rl_scan_columns *c, const rl_scan_summary *s)
{
    running r;
    if (c->falling && c->rule.back)
        r = take(c, true, true);
    else if (c->falling)
        r = take(c, true, false);
    else if (c->rule.back)
        r = take(c, false, true);
    else
        r = take(c, false, false);
    if (end_summary(s, r)) RL_NAME(rl_scan_find_largest)(s);
}
#endif
