/*
 * One strip (a vector of channels, or one channel over time) of a long sequence, in tiles of a fixed grid from its
 * first step on.  A tile is summarised, with its pieces if over time: the product of its decays and the state that a
 * walk from zero leaves.  The states that enter pieces and tiles follow from those, in order, and then every lane
 * walks from its own in the loop's order.  Threads take tiles in turn; the state that enters the next tile is handed
 * on before the walk.  So the numbers are the same however many threads there are.
 *
 * When the summary may stand for the walk.  The state that leaves is e' = P e + S.  Rounding made P and S; in P e its
 * share is at most about 2 n u |P e| over n steps (u: the unit roundoff of double), for prefix and suffix products
 * multiply to P.  S is the loop's own walk from zero, and errs as the loop does.  So e' is as good as the loop's
 * where |P e| is not much larger than |e'|; where it is, the terms cancel, and the loop, which never forms the large
 * numbers, may be better.  That holds if P and S themselves are sound:
 *   - a running product that overflows stays infinite or turns NaN (the scales in kernels/scan.h make states that the
 *     loop could overflow on show here too, given a bounded e);
 *   - one that leaves the normal range may have lost its bits and grown again: then P is not used, but if no decay is
 *     above 1, so that P cannot have grown, and even its bound times e is nothing beside S;
 *   - a reset drops e whatever it is: S is then the loop's walk from the reset on.
 * In all other cases the piece is walked, in the loop's order and precision, to find the state that leaves it.
 */
#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "scan.h"

enum { LINKS = 4, SPINS = 64, PIECE_ROWS = RL_TILE_ROWS / 2, GROUP_TILES = 4 };

/* How often |P e| may be |e'|, and the largest |e|: with the scales, no state on the way overflows unseen. */
#define NARROW_CANCELS 0x1p16
#define WIDE_CANCELS 32.0
#define NARROW_ENTRY 0x1p62
#define WIDE_ENTRY 0x1p400

/* The state that enters a tile: `tile` is its number, 0 before any. */
typedef struct link {
    _Atomic int64_t tile;
    double state[RL_MOST_LANES];
} __attribute__((aligned(128))) link;

/*
 * Tile i waits for its link and then writes the next; as that happens in order, a link is read before it is written
 * again, LINKS tiles on.
 */
struct rl_scan_strip {
    link links[LINKS];
    _Atomic int64_t next; /* the group of tiles to take */
    int64_t sequence, index;
    rl_scan_way way;
};

/* A tile's summary, and the state that enters each lane. */
typedef struct summary {
    double decay[RL_MOST_LANES], fresh[RL_MOST_LANES], least[RL_MOST_LANES], largest[RL_MOST_LANES],
        reset[RL_MOST_LANES];
    double entry[RL_MOST_LANES];
} summary;

size_t rl_scan_strip_size(void)
{
    return sizeof(rl_scan_strip);
}

/* Summaries */

/* Answers how many there are: a vector of float is two of double. */
static int parts_of_summary(const rl_scan_job *job, const rl_scan_tile *tile, summary *s, rl_scan_summary part[2])
{
    const int64_t lanes = job->lanes * job->parts, at_once = job->narrow ? lanes / 2 : lanes;
    for (int64_t lane = 0; lane < lanes; lane += at_once)
        part[lane / at_once] = (rl_scan_summary){.rule = job->rule,
                                                 .narrow = job->narrow,
                                                 .rows = tile->rows,
                                                 .pitch = lanes,
                                                 .a = (const char *)tile->a + (size_t)lane * job->real_size,
                                                 .input = (const char *)tile->input + (size_t)lane * job->real_size,
                                                 .decay = s->decay + lane,
                                                 .fresh = s->fresh + lane,
                                                 .least = s->least + lane,
                                                 .largest = s->largest + lane,
                                                 .reset = s->reset + lane};
    return job->narrow ? 2 : 1;
}

static void summarise(const rl_scan_job *job, const rl_scan_tile *tile, summary *s)
{
    rl_scan_summary part[2];
    const int count = parts_of_summary(job, tile, s, part);
    for (int i = 0; i < count; i++) job->wide->summarise(&part[i]);
}

static double size_of(const double *x, int64_t parts)
{
    return parts == 2 ? fabs(x[0]) + fabs(x[1]) : fabs(x[0]);
}

/* end = P e + S as the lane's summary has it; answers whether that may stand for the walk: see the top. */
static bool fold(const rl_scan_job *job, const summary *s, int64_t lane, const double *e, double *end)
{
    const double cancels = job->narrow ? NARROW_CANCELS : WIDE_CANCELS;
    const double entry_most = job->narrow ? NARROW_ENTRY : WIDE_ENTRY;
    const double decay_unit = 1 / RL_DECAY_SCALE(job->narrow), fresh_unit = 1 / RL_FRESH_SCALE(job->narrow);
    const int64_t parts = job->parts;
    for (int64_t i = 0; i < parts; i++) end[i] = s->fresh[lane + i] * fresh_unit;
    if (s->reset[lane] != 0) return true;
    double fresh = size_of(end, parts), entry = size_of(e, parts), decay = size_of(s->decay + lane, parts);
    if (!(fresh <= DBL_MAX && decay <= DBL_MAX && entry <= entry_most)) return false;
    if (entry == 0) return true;
    if (!(s->least[lane] >= RL_LEAST_DECAY)) {
        double bound = RL_LEAST_DECAY * decay_unit * 2 * entry;
        return s->largest[lane] <= 1 && (job->narrow || bound <= fresh * 0x1p-60);
    }
    double P[2] = {s->decay[lane] * decay_unit, parts == 2 ? s->decay[lane + 1] * decay_unit : 0}, product[2];
    product[0] = parts == 2 ? P[0] * e[0] - P[1] * e[1] : P[0] * e[0];
    product[1] = parts == 2 ? P[0] * e[1] + P[1] * e[0] : 0;
    for (int64_t i = 0; i < parts; i++) end[i] += product[i];
    double size = size_of(end, parts);
    return size <= DBL_MAX && size_of(product, parts) <= cancels * size;
}

/* The common case of a real lane, in few operations: no product came near 0, and the terms do not cancel. */
static bool fold_plainly(const rl_scan_job *job, const summary *s, int64_t lane, double *state)
{
    const double cancels = job->narrow ? NARROW_CANCELS : WIDE_CANCELS;
    const double most = job->narrow ? NARROW_ENTRY : WIDE_ENTRY, e = *state;
    double product = s->decay[lane] * (1 / RL_DECAY_SCALE(job->narrow)) * e;
    double fresh = s->fresh[lane] * (1 / RL_FRESH_SCALE(job->narrow)), end = product + fresh;
    bool sound = s->least[lane] >= RL_LEAST_DECAY && fabs(s->decay[lane]) <= DBL_MAX && fabs(fresh) <= DBL_MAX;
    bool holds = fabs(e) <= most && fabs(product) <= cancels * fabs(end) && fabs(end) <= DBL_MAX;
    if (sound && holds) *state = end;
    return sound && holds;
}

static void pass_lane(const rl_scan_job *job, const rl_scan_tile *tile, const summary *s, int64_t lane, double *state)
{
    double end[2];
    if (job->parts == 1 && fold_plainly(job, s, lane, state)) return;
    if (!fold(job, s, lane, state, end)) {
        memcpy(end, state, sizeof(double) * (size_t)job->parts);
        job->kernels->walk_lane(tile, lane, end);
    }
    memcpy(state, end, sizeof(double) * (size_t)job->parts);
}

/* From the state before the tile to those that enter the lanes, and to the one after the tile. */
static void pass_through(const rl_scan_job *job, rl_scan_way way, const rl_scan_tile *tile, summary *s, double *state)
{
    const int64_t lanes = job->lanes * job->parts;
    for (int64_t lane = 0; lane < lanes; lane += job->parts) {
        double *own = way == RL_SCAN_OVER_TIME ? state : state + lane;
        memcpy(s->entry + lane, own, sizeof(double) * (size_t)job->parts);
        pass_lane(job, tile, s, lane, own);
    }
}

/* States as double and as real */

static void widen(const rl_scan_job *job, double *to, const void *from)
{
    for (int64_t lane = 0; lane < job->lanes * job->parts; lane++)
        to[lane] = job->narrow ? (double)((const float *)from)[lane] : ((const double *)from)[lane];
}

static void narrow(const rl_scan_job *job, void *to, const double *from)
{
    for (int64_t lane = 0; lane < job->lanes * job->parts; lane++)
        if (job->narrow)
            ((float *)to)[lane] = (float)from[lane];
        else
            ((double *)to)[lane] = from[lane];
}

/* Tiles */

typedef struct walk {
    const rl_scan_job *job;
    const rl_scan_scratch *scratch;
    rl_scan_strip *shared; /* NULL: one thread walks the strip alone */
    rl_scan_way way;
    rl_scan_place place; /* of the tile at hand */
    int64_t tile_steps;
    double state[RL_MOST_LANES]; /* before the tile at hand */
} walk;

static walk walk_of(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index,
                    const rl_scan_scratch *scratch, rl_scan_strip *shared)
{
    walk w = {.job = job, .scratch = scratch, .shared = shared, .way = way, .tile_steps = RL_TILE_ROWS};
    w.place.s = rl_sequence_of(&job->offsets, sequence, job->length, job->reverse);
    w.place.sequence = sequence;
    w.place.channel = index, w.place.lanes = 1;
    if (way == RL_SCAN_OVER_TIME) {
        w.tile_steps *= job->lanes;
    } else {
        w.place.channel *= job->lanes;
        w.place.lanes = job->channels - w.place.channel;
        if (w.place.lanes > job->lanes) w.place.lanes = job->lanes;
    }
    return w;
}

static void relax(int spins)
{
    if (spins >= SPINS) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void get_state(walk *w, int64_t tile)
{
    if (tile == 0) {
        rl_scan_load_state(w->job, &w->place, w->scratch->state);
        widen(w->job, w->state, w->scratch->state);
    } else if (w->shared) {
        link *l = &w->shared->links[tile % LINKS];
        for (int spins = 0; atomic_load_explicit(&l->tile, memory_order_acquire) != tile; spins += spins < SPINS)
            relax(spins);
        memcpy(w->state, l->state, sizeof w->state);
    }
}

static void put_state(const walk *w, int64_t tile)
{
    if (!w->shared) return;
    link *l = &w->shared->links[tile % LINKS];
    memcpy(l->state, w->state, sizeof w->state);
    atomic_store_explicit(&l->tile, tile, memory_order_release);
}

/* From the lanes' states in scratch. */
static void finish_tile(const rl_scan_job *job, const rl_scan_scratch *scratch, rl_scan_tile *tile,
                        const rl_scan_place *place)
{
    tile->state = scratch->state;
    job->kernels->walk(tile);
    rl_scan_store_tile(job, scratch, place);
}

/* The sequence's last steps in one lane: fewer than make pieces, but always the very last. */
static void walk_rest(const walk *w, rl_scan_place place)
{
    memset(w->scratch->state, 0, w->job->vector_size);
    double state[RL_MOST_LANES] = {0};
    memcpy(state, w->state, sizeof(double) * (size_t)w->job->parts);
    narrow(w->job, w->scratch->state, state);
    rl_scan_tile tile = rl_scan_load_tile(w->job, w->scratch, &place);
    finish_tile(w->job, w->scratch, &tile, &place);
}

/*
 * A whole tile over time is two vectors of pieces.  Where steps are neighbours it needs no detour: float64 is
 * summarised on its way into scratch memory, and results go straight to where they belong.  Not the tile that begins
 * without a state, where a decay must be replaced.
 */
static bool goes_straight(const walk *w, const rl_scan_place *place)
{
    bool begins = place->t == 0 && !w->job->rule.back && !w->job->h_init.data;
    return place->piece == PIECE_ROWS && !begins && rl_scan_has_columns(w->job);
}

static rl_scan_columns columns_of(const walk *w, const rl_scan_scratch *scratch, const rl_scan_place *place)
{
    const rl_scan_job *job = w->job;
    rl_scan_columns columns = rl_scan_columns_of(job, place);
    columns.tile_a = scratch->a;
    columns.tile_input = scratch->input;
    columns.state = scratch->state;
    columns.ahead = 2 * w->tile_steps * (w->shared ? job->threads : 1) * (int64_t)rill_dtype_size(job->a.dtype);
    if (columns.falling) columns.ahead = -columns.ahead;
    return columns;
}

/* A vector of a tile, in its part of the scratch memory. */
typedef struct vector {
    rl_scan_place place;
    rl_scan_scratch scratch;
    rl_scan_tile tile;
    summary s;
} vector;

static void take_vectors(const walk *w, vector *v, int count, bool straight, rl_scan_columns *columns)
{
    const rl_scan_job *job = w->job;
    rl_scan_summary parts[2];
    for (int i = 0; i < count; i++) {
        if (straight) columns[i] = columns_of(w, &v[i].scratch, &v[i].place);
        if (straight && !job->narrow) {
            v[i].tile = (rl_scan_tile){
                .rule = job->rule, .rows = v[i].place.rows, .a = v[i].scratch.a, .input = v[i].scratch.input};
            parts_of_summary(job, &v[i].tile, &v[i].s, &parts[i]);
        } else {
            v[i].tile = rl_scan_load_tile(job, &v[i].scratch, &v[i].place);
            summarise(job, &v[i].tile, &v[i].s);
        }
    }
    if (straight && !job->narrow) job->wide->take_columns(columns, parts);
}

/* A product that stayed away from 0 met no decay of 0. */
static bool has_no_resets(const rl_scan_job *job, const summary *s)
{
    bool none = true;
    for (int64_t lane = 0; lane < job->lanes * job->parts; lane++) {
        double size = fabs(s->decay[lane]);
        none &= s->least[lane] >= RL_LEAST_DECAY && size <= DBL_MAX;
    }
    return none;
}

/* A tile's whole vectors, from `place` on; `last` has no other after it. */
static void run_vectors(walk *w, const rl_scan_place *place, int count, int64_t index, bool last)
{
    const rl_scan_job *job = w->job;
    const bool straight = goes_straight(w, place);
    vector v[2];
    rl_scan_columns columns[2];
    for (int i = 0; i < count; i++) {
        const size_t offset = (size_t)(i * place->rows) * job->vector_size;
        v[i].place = *place;
        v[i].place.t += i * place->rows * place->lanes;
        v[i].scratch = (rl_scan_scratch){.a = w->scratch->a + offset,
                                         .input = w->scratch->input + offset,
                                         .before = w->scratch->before + offset,
                                         .state = w->scratch->state + (size_t)i * job->vector_size};
    }
    take_vectors(w, v, count, straight, columns);
    get_state(w, index);
    for (int i = 0; i < count; i++) {
        pass_through(job, w->way, &v[i].tile, &v[i].s, w->state);
        columns[i].no_resets = has_no_resets(job, &v[i].s);
    }
    if (!last) put_state(w, index + 1);
    for (int i = 0; i < count; i++) {
        narrow(job, v[i].scratch.state, v[i].s.entry);
        if (!straight) finish_tile(job, &v[i].scratch, &v[i].tile, &v[i].place);
    }
    if (straight) job->kernels->give_columns(columns);
}

static void run_tile(walk *w, int64_t index)
{
    const rl_scan_job *job = w->job;
    rl_scan_place place = w->place;
    place.t = index * w->tile_steps;
    const int64_t left = place.s.length - place.t;
    const bool last = left <= w->tile_steps, over_time = w->way == RL_SCAN_OVER_TIME;
    place.rows = last ? left : RL_TILE_ROWS;
    if (over_time) {
        place.rows = place.piece = last ? (left - 1) / job->lanes : PIECE_ROWS;
        place.lanes = job->lanes;
    }
    if (place.rows > 0)
        run_vectors(w, &place, over_time && !last ? 2 : 1, index, last);
    else
        get_state(w, index);
    if (!last) return;
    if (over_time) {
        place.t += place.rows * place.lanes;
        place.rows = place.s.length - place.t;
        place.lanes = 1, place.piece = 0;
        walk_rest(w, place);
    }
    rl_scan_store_state(job, &place, w->scratch->state);
}

/* Runs: float64 whose steps are neighbours is read, walked and written in the order of memory (kernels/scan_run.c).
 */

static bool has_runs(const walk *w)
{
    const rl_scan_job *job = w->job;
    return w->way == RL_SCAN_OVER_TIME && !job->rule.back && job->real_dtype == RILL_F64 && rl_scan_has_columns(job);
}

static rl_scan_run run_of(const walk *w, int64_t t, int64_t steps)
{
    rl_scan_place place = w->place;
    place.t = t, place.rows = place.piece = steps, place.lanes = 1;
    rl_scan_columns columns = rl_scan_columns_of(w->job, &place);
    return (rl_scan_run){.steps = steps,
                         .a = columns.a,
                         .input = columns.input,
                         .out = columns.out,
                         .falling = columns.falling,
                         .a_is_constant = columns.a_is_constant,
                         .past_cache = columns.past_cache,
                         .state = w->state[0]};
}

/*
 * What a run's summary says of the products within blocks: with decays up to 1 they only fall, and with decays up to
 * 2 they were at most 2^64 below the next block's end, and above the last one.
 */
static bool judge_run(const rl_scan_run_summary *run, summary *s)
{
    *s = (summary){.decay = {run->decay}, .fresh = {run->fresh}, .least = {run->least}, .largest = {run->largest}};
    if (run->largest > 1) s->least[0] *= 0x1p-64;
    return run->largest <= 2;
}

/* Tiles from `index` on by their run, if its summary may stand for it. */
static bool run_in_order(walk *w, int64_t index, int64_t tiles)
{
    const rl_scan_job *job = w->job;
    rl_scan_run run = run_of(w, index * w->tile_steps, tiles * w->tile_steps);
    rl_scan_run_summary run_summary = job->wide->summarise_run(&run);
    summary s;
    double end[2];
    if (!judge_run(&run_summary, &s)) return false;
    get_state(w, index);
    if (!fold(job, &s, 0, w->state, end)) return false;
    run.state = w->state[0];
    w->state[0] = end[0];
    put_state(w, index + tiles);
    job->wide->walk_run(&run);
    return true;
}

/* All of a strip but its first and last steps. */
static void run_alone(walk *w)
{
    const rl_scan_job *job = w->job;
    const int64_t block = RL_BLOCK_STEPS, length = w->place.s.length;
    const int64_t first = job->h_init.data ? 0 : block, steps = (length - 1 - first) / block * block;
    rl_scan_place place = w->place;
    get_state(w, 0);
    if (first > 0) {
        place.rows = first;
        walk_rest(w, place);
        widen(job, w->state, w->scratch->state);
    }
    rl_scan_run run = run_of(w, first, steps);
    job->wide->walk_run(&run);
    w->state[0] = run.state;
    place.t = first + steps;
    place.rows = length - place.t;
    walk_rest(w, place);
    rl_scan_store_state(job, &place, w->scratch->state);
}

static int64_t tiles_of(const walk *w)
{
    return (w->place.s.length + w->tile_steps - 1) / w->tile_steps;
}

/* Runs need neither the first tile, where it begins without a state, nor the last. */
static void run_group_in_order(walk *w, int64_t first, int64_t end)
{
    const bool begins = first == 0 && !w->job->h_init.data, last = end == tiles_of(w);
    const int64_t inner = first + begins, inner_end = end - last;
    if (begins && inner <= inner_end) run_tile(w, 0);
    if (inner >= inner_end || !run_in_order(w, inner, inner_end - inner))
        for (int64_t tile = inner; tile < inner_end; tile++) run_tile(w, tile);
    if (last) run_tile(w, end - 1);
}

/* The index-th group of tiles; answers whether there is one. */
static bool run_group(walk *w, int64_t index)
{
    const bool runs = has_runs(w);
    const int64_t all = tiles_of(w), first = index * (runs ? GROUP_TILES : 1);
    if (first >= all) return false;
    const int64_t end = runs && first + GROUP_TILES < all ? first + GROUP_TILES : runs ? all : first + 1;
    if (runs)
        run_group_in_order(w, first, end);
    else
        run_tile(w, first);
    return true;
}

void rl_scan_run_strip(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index,
                       const rl_scan_scratch *scratch)
{
    walk w = walk_of(job, way, sequence, index, scratch, NULL);
    if (has_runs(&w) && !job->reproducible) {
        run_alone(&w);
        return;
    }
    for (int64_t group = 0; run_group(&w, group); group++) continue;
}

void rl_scan_make_shared_strip(const rl_scan_job *job, int64_t at, rl_scan_way way, int64_t sequence, int64_t index)
{
    rl_scan_strip *strip = &job->strips[at];
    *strip = (rl_scan_strip){.sequence = sequence, .index = index, .way = way};
}

void rl_scan_run_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch)
{
    rl_scan_strip *strip = &job->strips[at];
    walk w = walk_of(job, strip->way, strip->sequence, strip->index, scratch, strip);
    while (run_group(&w, atomic_fetch_add_explicit(&strip->next, 1, memory_order_relaxed))) continue;
}
