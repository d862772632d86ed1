/*
 * One long channel of float64, in blocks of LANES * LANES steps that lie side by side: a block is turned in
 * registers, so that lane l holds the l-th piece of LANES steps, its row r the piece's r-th step.
 *
 * Each lane's product of decays and walk from zero are combined along the lanes, which gives the states that enter
 * the lanes, and from those every lane walks in the loop's order.  Nothing rests on the products: where a lane's walk
 * does not end, nearly to the last bit, at the state from which the next one began, the block is walked again step by
 * step.  So lane by lane every state is the loop's but for AGREEMENT of itself, whatever products did on the way.
 * What little the ends are off, and what the steps' roundings left out, is passed on to the block's end, whose state
 * is kept to twice the bits: so neither adds up from block to block.
 */
#include "scan.h"
#include "scan_columns.h"
#include "scan_summary.h"
#include "table.h"

#if RL_REAL_BITS == 64

#define AGREEMENT 0x1p-44

enum { BLOCK = LANES * LANES };

/* Lane l takes lane l - by of x, or of `fill` where there is none. */
#if RL_VECTOR_BYTES == 64
#define SHIFT_1 7, 8, 9, 10, 11, 12, 13, 14
#define SHIFT_2 6, 7, 8, 9, 10, 11, 12, 13
#define SHIFT_4 4, 5, 6, 7, 8, 9, 10, 11
#define LAST_LANE 7, 7, 7, 7, 7, 7, 7, 7
#elif RL_VECTOR_BYTES == 32
#define SHIFT_1 3, 4, 5, 6
#define SHIFT_2 2, 3, 4, 5
#define LAST_LANE 3, 3, 3, 3
#else
#define SHIFT_1 1, 2
#define LAST_LANE 1, 1
#endif

RL_INLINE vreal shift(vreal x, vreal fill, int by)
{
#if RL_VECTOR_BYTES == 64
    if (by == 4) return __builtin_shufflevector(fill, x, SHIFT_4);
#endif
#if RL_VECTOR_BYTES >= 32
    if (by == 2) return __builtin_shufflevector(fill, x, SHIFT_2);
#endif
    (void)by;
    return __builtin_shufflevector(fill, x, SHIFT_1);
}

RL_INLINE vreal last_lane(vreal x)
{
    return __builtin_shufflevector(x, x, LAST_LANE);
}

enum { LEVELS = LANES == 8 ? 3 : LANES == 4 ? 2 : 1 };

typedef struct pieces {
    vreal decay, fresh;  /* of each lane's piece, or of it and all before it */
    vreal level[LEVELS]; /* the products on the way from the one to the other */
} pieces;

RL_INLINE pieces summarise_rows(const vreal *a, const vreal *input)
{
    pieces p = {.decay = a[0], .fresh = input[0]};
    for (int i = 1; i < LANES; i++) {
        p.decay *= a[i];
        p.fresh = fma_(a[i], p.fresh, input[i]);
    }
    return p;
}

RL_INLINE pieces combine_lanes(pieces p)
{
    for (int level = 0, by = 1; level < LEVELS; level++, by *= 2) {
        p.level[level] = p.decay;
        p.fresh = fma_(p.decay, shift(p.fresh, (vreal){0}, by), p.fresh);
        p.decay *= shift(p.decay, splat(1), by);
    }
    return p;
}

/* What the states that leave the lanes must be changed by, where those that enter them were off by `off`. */
RL_INLINE vreal combine_errors(const pieces *p, vreal off)
{
    for (int level = 0, by = 1; level < LEVELS; level++, by *= 2)
        off = fma_(p->level[level], shift(off, (vreal){0}, by), off);
    return off;
}

/* The same to twice the bits: of all of a block, in the last lane. */
typedef struct long_pieces {
    longer decay, fresh;
    vreal peak; /* as of a summary */
} long_pieces;

RL_INLINE long_pieces summarise_block(const vreal *a, const vreal *input)
{
    long_pieces p = {.decay.high = a[0], .fresh.high = input[0], .peak = input[0]};
    for (int i = 1; i < LANES; i++) {
        p.decay = times_number(a[i], p.decay, false);
        p.fresh = plus_number(times_number(a[i], p.fresh, false), input[i]);
        p.peak = larger(a[i] * p.peak, p.fresh.high);
    }
    for (int by = 1; by < LANES; by *= 2) {
        longer decay = {shift(p.decay.high, splat(1), by), shift(p.decay.low, (vreal){0}, by)};
        longer fresh = {shift(p.fresh.high, (vreal){0}, by), shift(p.fresh.low, (vreal){0}, by)};
        p.fresh = plus_longer(times_longer(p.decay, fresh), p.fresh);
        p.peak = larger(larger(p.peak, p.decay.high * shift(p.peak, (vreal){0}, by)), p.fresh.high);
        p.decay = times_longer(p.decay, decay);
    }
    return p;
}

RL_INLINE vint largest_of(const vreal *a, vint most)
{
    for (int i = 0; i < LANES; i++) most = greater_bits(most, magnitude_bits(a[i]));
    return most;
}

/* As integers the bits of a NaN are more than those of any number. */
RL_INLINE double largest_lane(vint most)
{
    integer largest = 0;
    double value;
    for (int lane = 0; lane < LANES; lane++) largest = most[lane] > largest ? most[lane] : largest;
    memcpy(&value, &largest, sizeof value);
    return value;
}

typedef struct places {
    column a, input, out;
} places;

RL_INLINE places places_of(const rl_scan_run *r)
{
    const int64_t lane = (r->falling ? -LANES : LANES) * (int64_t)sizeof(double);
    return (places){.a = {(char *)r->a, r->a_is_constant ? 0 : lane},
                    .input = {(char *)r->input, lane},
                    .out = {(char *)r->out, lane}};
}

RL_INLINE void load_block(const rl_scan_run *r, const places *p, bool falling, vreal *a, vreal *input)
{
    if (r->a_is_constant)
        for (int i = 0; i < LANES; i++) a[i] = splat(*r->a);
    else
        load_columns(a, p->a, falling, RILL_F64);
    load_columns(input, p->input, falling, RILL_F64);
}

RL_INLINE void fetch_block(const rl_scan_run *r, const places *p, bool falling)
{
    if (!r->a_is_constant) fetch_columns(p->a, falling, RILL_F64, r->ahead);
    fetch_columns(p->input, falling, RILL_F64, r->ahead);
}

RL_INLINE places next_block(places p, const rl_scan_run *r, bool falling)
{
    if (!r->a_is_constant) p.a = rows_on(p.a, falling, BLOCK, RILL_F64);
    p.input = rows_on(p.input, falling, BLOCK, RILL_F64);
    p.out = rows_on(p.out, falling, BLOCK, RILL_F64);
    return p;
}

/* The plain loop, and what its roundings leave out. */
static __attribute__((noinline)) longer walk_steps(const rl_scan_run *r, const places *p, longer h)
{
    const int64_t step = r->falling ? -1 : 1;
    const double *a = (const double *)p->a.data, *input = (const double *)p->input.data;
    double *out = (double *)p->out.data;
    for (int64_t i = 0; i < BLOCK; i++) {
        double decay = r->a_is_constant ? *a : a[i * step];
        h = step_longer(splat(decay), splat(input[i * step]), h, false, false);
        out[i * step] = h.high[0];
    }
    return (longer){h.high, finite_or_0(h.low)};
}

RL_INLINE int agree(vreal ends, vreal begins)
{
    return all_at_most((vreal)magnitude_bits(ends - begins), (vreal)magnitude_bits(ends) * splat(AGREEMENT));
}

/* A block is whole lines, in order. */
RL_INLINE void stream_block(column c, const vreal *rows, bool falling)
{
    vreal v[LANES];
    char *at = lowest(c, falling, RILL_F64);
    turn_rows(v, rows, falling);
    for (int lane = 0; lane < LANES; lane++, at += c.lane) stream_elements(at, v[lane], RILL_F64);
}

/* From h on; answers what the roundings have left out at the end, if it is to know. */
RL_INLINE vreal walk_rows(const vreal *a, vreal *row, vreal h, bool exact)
{
    if (!exact) {
        for (int i = 0; i < LANES; i++) row[i] = h = a[i] * h + row[i];
        return (vreal){0};
    }
    longer state = {.high = h};
    for (int i = 0; i < LANES; i++) {
        state = plus_number(times_number(a[i], state, false), row[i]);
        row[i] = state.high;
    }
    return state.low;
}

/*
 * A block begins where products say that the one before it ends, so that it need not wait for that one's walk; what
 * the walk then finds this to be off is `debt`, paid one block later.
 */
RL_INLINE void walk_run(rl_scan_run *r, bool falling, bool exact)
{
    places p = places_of(r);
    vreal entering = splat(r->state), debt = splat(r->low), decay = splat(1);
    vint most = {0};
    for (int64_t t = 0; t < r->steps; t += BLOCK, p = next_block(p, r, falling)) {
        vreal a[LANES], row[LANES];
        load_block(r, &p, falling, a, row);
        if (r->ahead) fetch_block(r, &p, falling);
        most = largest_of(a, most);
        pieces all = combine_lanes(summarise_rows(a, row));
        vreal ends = fma_(all.decay, entering, all.fresh);
        if (!exact) decay *= all.decay;
        vreal left = walk_rows(a, row, shift(ends, entering, 1), exact), h = row[LANES - 1];
        if (__builtin_expect(!agree(h, ends), 0)) {
            vreal begins = entering + debt;
            longer left_at = walk_steps(r, &p, (longer){begins, debt - (begins - entering)});
            entering = left_at.high;
            debt = left_at.low;
            continue;
        }
        if (r->past_cache)
            stream_block(p.out, row, falling);
        else
            store_columns(p.out, row, falling, RILL_F64);
        vreal paid = all.decay * debt, next = ends + paid;
        debt = last_lane(finite_or_0(combine_errors(&all, h - ends + left) + (paid - (next - ends))));
        entering = last_lane(next);
    }
    r->state = entering[0] + debt[0];
    r->low = debt[0] - (r->state - entering[0]);
    r->decay = decay[LANES - 1];
    r->largest = largest_lane(most);
}

void RL_NAME(rl_scan_walk_run)(rl_scan_run *r)
{
    if (r->falling && r->exact)
        walk_run(r, true, true);
    else if (r->falling)
        walk_run(r, true, false);
    else if (r->exact)
        walk_run(r, false, true);
    else
        walk_run(r, false, false);
}

RL_INLINE rl_scan_run_summary summarise_run(const rl_scan_run *r, bool falling)
{
    places p = places_of(r);
    longer decay = {.high = splat(RL_DECAY_SCALE(false))}, fresh = {0};
    vreal least = decay.high, peak = {0};
    vint most = {0};
    for (int64_t t = 0; t < r->steps; t += BLOCK, p = next_block(p, r, falling)) {
        vreal a[LANES], row[LANES];
        load_block(r, &p, falling, a, row);
        if (r->ahead) fetch_block(r, &p, falling);
        most = largest_of(a, most);
        long_pieces block = summarise_block(a, row);
        fresh = plus_longer(times_longer(block.decay, fresh), block.fresh);
        peak = larger(larger(block.peak, block.decay.high * peak), fresh.high);
        decay = times_longer(decay, block.decay);
        least = at_most(least, (vreal)magnitude_bits(decay.high));
    }
    decay = settled(decay);
    fresh = settled(fresh);
    return (rl_scan_run_summary){.decay = decay.high[LANES - 1],
                                 .decay_low = decay.low[LANES - 1],
                                 .fresh = fresh.high[LANES - 1],
                                 .fresh_low = fresh.low[LANES - 1],
                                 .least = least[LANES - 1],
                                 .largest = largest_lane(most),
                                 .peak = peak[LANES - 1]};
}

rl_scan_run_summary RL_NAME(rl_scan_summarise_run)(const rl_scan_run *r)
{
    return r->falling ? summarise_run(r, true) : summarise_run(r, false);
}

#endif
