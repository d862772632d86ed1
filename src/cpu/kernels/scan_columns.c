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
        fetch_columns(a, falling, dtype, c->ahead);
        return;
    }
    vreal same = gather_elements(a.data, c->a_lane, LANES, dtype);
    for (int i = 0; i < LANES; i++) rows[i] = same;
}

/* How a group of rows is taken: plain, no decay is 0; line, its place in a cache line, or -1 for ordinary stores. */
typedef struct group {
    rill_dtype dtype;
    bool falling, plain;
    int line;
    lines *out, *da;
    vreal *h;  /* the group's rows of h, where `before` is made of those and the next group's first one */
    bool last; /* of all groups */
} group;

RL_INLINE void put_columns(lines *l, column to, const vreal *rows, group g)
{
    if (g.line >= 0)
        stream_columns(l, to, rows, g.line, g.falling, g.dtype);
    else
        store_columns(to, rows, g.falling, g.dtype);
}

RL_INLINE vreal forward(const places *p, group g, const vreal *a, vreal *row, vreal h)
{
    if (g.plain)
        for (int i = 0; i < LANES; i++) row[i] = h = a[i] * h + row[i];
    else
        for (int i = 0; i < LANES; i++) row[i] = h = step_forward(a[i], row[i], h, false);
    put_columns(g.out, p->out, row, g);
    return h;
}

/* Rows that end with the first one of the next group. */
RL_INLINE void shift_rows(vreal *before, vreal *h, const rl_scan_columns *c, column next, group g, bool last)
{
    for (int i = 1; i < LANES; i++) before[i - 1] = h[i];
    if (last) {
        before[LANES - 1] = gather_elements(next.data, c->before_lane, LANES, g.dtype);
        return;
    }
    load_columns(h, next, g.falling, g.dtype);
    fetch_columns(next, g.falling, g.dtype, c->ahead);
    before[LANES - 1] = h[0];
}

RL_INLINE vreal back(const rl_scan_columns *c, const places *p, group g, const vreal *a, vreal *row, vreal u)
{
    vreal before[LANES];
    for (int i = 0; i < LANES; i++) {
        row[i] += u;
        u = step_back(a[i], row[i], false);
    }
    if (c->out) put_columns(g.out, p->out, row, g);
    if (!c->da) return u;
    if (g.h) {
        shift_rows(before, g.h, c, rows_on(p->before, g.falling, LANES - 1, g.dtype), g, g.last);
    } else {
        load_columns(before, p->before, g.falling, g.dtype);
        fetch_columns(p->before, g.falling, g.dtype, c->ahead);
    }
    for (int i = 0; i < LANES; i++) before[i] = decay_gradient(a[i], before[i], row[i], false);
    put_columns(g.da, p->da, before, g);
    return u;
}

RL_INLINE vreal step_columns(const rl_scan_columns *c, const places *p, group g, const vreal *a, vreal *row,
                             vreal state)
{
    return c->rule.back ? back(c, p, g, a, row, state) : forward(p, g, a, row, state);
}

/* The place in a line of the group of rows from t on; lines that the rows do not fill are stored as others. */
RL_INLINE int line_of(const rl_scan_columns *c, int64_t t, rill_dtype dtype)
{
    const int64_t groups = groups_of_line(dtype), index = t / LANES, all = c->rows / LANES;
    return c->past_cache && index < all / groups * groups ? (int)(index % groups) : -1;
}

RL_INLINE void walk(const rl_scan_columns *c, rill_dtype dtype, bool falling)
{
    lines out, da;
    group g = {.dtype = dtype, .falling = falling, .out = &out, .da = &da};
    places p = places_of(c, dtype);
    vreal state = *(const vreal *)c->state, h[LANES];
    if (c->da) {
        load_columns(h, rows_on(p.before, falling, -1, dtype), falling, dtype);
        g.h = h;
    }
    for (int64_t t = 0; t < c->rows; t += LANES) {
        vreal a[LANES], row[LANES];
        g.last = t + LANES == c->rows;
        load_decays(a, c, p.a, dtype, falling);
        load_columns(row, p.input, falling, dtype);
        fetch_columns(p.input, falling, dtype, c->ahead);
        g.line = line_of(c, t, dtype);
        state = step_columns(c, &p, g, a, row, state);
        move_on(&p, c, dtype, falling);
    }
    *(vreal *)c->state = state;
}

/* Two vectors of pieces side by side: while one waits for its last step, the other goes on. */
RL_INLINE void give(const rl_scan_columns *c, rill_dtype dtype, bool falling, bool plain)
{
    lines out[2], da[2];
    group g = {.dtype = dtype, .falling = falling, .plain = plain};
    places p[2] = {places_of(&c[0], dtype), places_of(&c[1], dtype)};
    vreal state[2] = {*(const vreal *)c[0].state, *(const vreal *)c[1].state};
    for (int64_t t = 0; t < c->rows; t += LANES)
        for (int set = 0; set < 2; set++) {
            const vreal *tile_a = (const vreal *)c[set].tile_a + t,
                        *tile_input = (const vreal *)c[set].tile_input + t;
            vreal row[LANES];
            for (int i = 0; i < LANES; i++) row[i] = tile_input[i];
            fetch_columns(p[set].input, falling, dtype, c->ahead);
            g.line = line_of(c, t, dtype), g.out = &out[set], g.da = &da[set];
            state[set] = step_columns(&c[set], &p[set], g, tile_a, row, state[set]);
            move_on(&p[set], &c[set], dtype, falling);
        }
    for (int set = 0; set < 2; set++) *(vreal *)c[set].state = state[set];
}

RL_INLINE void give_or_walk(const rl_scan_columns *c, rill_dtype dtype, bool from_tile)
{
    const bool plain = c[0].no_resets && c[from_tile ? 1 : 0].no_resets;
    if (from_tile && c->falling && plain)
        give(c, dtype, true, true);
    else if (from_tile && c->falling)
        give(c, dtype, true, false);
    else if (from_tile && plain)
        give(c, dtype, false, true);
    else if (from_tile)
        give(c, dtype, false, false);
    else if (c->falling)
        walk(c, dtype, true);
    else
        walk(c, dtype, false);
}

RL_INLINE void any_dtype(const rl_scan_columns *c, bool from_tile)
{
    switch (c->dtype) {
    case RILL_BF16:
        give_or_walk(c, RILL_BF16, from_tile);
        break;
    case RILL_F16:
        give_or_walk(c, RILL_F16, from_tile);
        break;
    default:
        give_or_walk(c, RL_REAL_BITS == 32 ? RILL_F32 : RILL_F64, from_tile);
    }
}

void RL_NAME(rl_scan_walk_columns)(const rl_scan_columns *columns)
{
    any_dtype(columns, false);
}

void RL_NAME(rl_scan_give_columns)(const rl_scan_columns *columns)
{
    any_dtype(columns, true);
}

#if RL_REAL_BITS == 64
RL_INLINE void take(const rl_scan_columns *c, running *r, bool falling, bool is_back)
{
    places p[2] = {places_of(&c[0], RILL_F64), places_of(&c[1], RILL_F64)};
    for (int set = 0; set < 2; set++) r[set] = start_summary(RL_DECAY_SCALE(false), false);
    for (int64_t t = 0; t < c->rows; t += LANES)
        for (int set = 0; set < 2; set++) {
            vreal *tile_a = (vreal *)c[set].tile_a + t, *tile_input = (vreal *)c[set].tile_input + t;
            vreal a[LANES], row[LANES];
            load_decays(a, c, p[set].a, RILL_F64, falling);
            load_columns(row, p[set].input, falling, RILL_F64);
            for (int i = 0; i < LANES; i++) {
                tile_a[i] = a[i];
                tile_input[i] = row[i];
                r[set] = add_plain_row(r[set], a[i], row[i], is_back);
            }
            move_on(&p[set], &c[set], RILL_F64, falling);
        }
}

void RL_NAME(rl_scan_take_columns)(const rl_scan_columns *columns, const rl_scan_summary *summaries)
{
    running r[2];
    if (columns->falling && columns->rule.back)
        take(columns, r, true, true);
    else if (columns->falling)
        take(columns, r, true, false);
    else if (columns->rule.back)
        take(columns, r, false, true);
    else
        take(columns, r, false, false);
    for (int set = 0; set < 2; set++) end_plain_summary(&summaries[set], r[set]);
}
#endif
