/*
 * One strip (a vector of channels, or one channel over time) of a long sequence, in tiles of a fixed grid from its
 * first step on.  A tile is summarised, with its pieces if over time: the product of its decays and the state that a
 * walk from zero leaves.  The states that enter pieces and tiles follow from those, in order, and then every lane
 * walks from its own in the loop's order.  Threads take tiles in turn; the state that enters the next tile is handed
 * on before the walk.  So the numbers are the same however many threads there are.
 *
 * Which summaries may stand for the walk, and which channels are left to the loop, is told in scan_fold.c.
 */
#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "scan_fold.h"

enum { LINKS = 4, SPINS = 64, PIECE_ROWS = RL_TILE_ROWS / 2, GROUP_TILES = 4 };

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
    _Atomic bool grows;   /* decays above 1 were met, where they may not be: the loop must walk it all again */
    int64_t sequence, index;
    rl_scan_way way;
};

size_t rl_scan_strip_size(void)
{
    return sizeof(rl_scan_strip);
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
    bool grows;                  /* as in the strip */
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

/* Told before the state is, so that whoever has the state of a later tile knows. */
static void put_state(const walk *w, int64_t tile)
{
    if (!w->shared) return;
    if (w->grows) atomic_store_explicit(&w->shared->grows, true, memory_order_relaxed);
    link *l = &w->shared->links[tile % LINKS];
    memcpy(l->state, w->state, sizeof w->state);
    atomic_store_explicit(&l->tile, tile, memory_order_release);
}

static bool is_for_the_loop(const walk *w)
{
    return w->grows || (w->shared && atomic_load_explicit(&w->shared->grows, memory_order_relaxed));
}

static void leave(const walk *w, const rl_scan_place *place)
{
    if (!is_for_the_loop(w)) rl_scan_store_state(w->job, place, w->scratch->state);
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
static void walk_rest(walk *w, rl_scan_place place)
{
    memset(w->scratch->state, 0, w->job->vector_size);
    double state[RL_MOST_LANES] = {0};
    memcpy(state, w->state, sizeof(double) * (size_t)w->job->parts);
    narrow(w->job, w->scratch->state, state);
    rl_scan_tile tile = rl_scan_load_tile(w->job, w->scratch, &place);
    if (!w->job->narrow) w->grows |= rl_scan_grows(w->job, rl_scan_largest_decay(w->job, &tile));
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
    rl_scan_folding s;
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
            rl_scan_parts_of_summary(job, &v[i].tile, &v[i].s, &parts[i]);
        } else {
            v[i].tile = rl_scan_load_tile(job, &v[i].scratch, &v[i].place);
            rl_scan_summarise_tile(job, &v[i].tile, &v[i].s);
        }
    }
    if (straight && !job->narrow) job->wide->take_columns(columns, parts);
}

/* A product that stayed away from 0 met no decay of 0. */
static bool has_no_resets(const rl_scan_job *job, const rl_scan_folding *s)
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
    const bool straight = count == 2 && goes_straight(w, place); /* the kernels take two vectors */
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
        w->grows |= rl_scan_tile_grows(job, &v[i].s);
        rl_scan_pass_through(job, w->way, &v[i].tile, &v[i].s, w->state);
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
    leave(w, &place);
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
static bool judge_run(const rl_scan_run_summary *run, rl_scan_folding *s)
{
    *s = (rl_scan_folding){.decay = {run->decay},
                           .decay_low = {run->decay_low},
                           .fresh = {run->fresh},
                           .least = {run->least},
                           .largest = {run->largest}};
    if (run->largest > 1) s->least[0] *= 0x1p-64;
    return run->largest <= 2;
}

/* Tiles from `index` on by their run, if its summary may stand for it. */
static bool run_in_order(walk *w, int64_t index, int64_t tiles)
{
    const rl_scan_job *job = w->job;
    rl_scan_run run = run_of(w, index * w->tile_steps, tiles * w->tile_steps);
    rl_scan_run_summary run_summary = job->wide->summarise_run(&run);
    rl_scan_folding s;
    double end[2];
    w->grows |= rl_scan_grows(job, run_summary.largest);
    if (!judge_run(&run_summary, &s)) return false;
    get_state(w, index);
    if (!rl_scan_fold(job, &s, 0, w->state, end)) return false;
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
    w->grows |= rl_scan_grows(job, run.largest);
    place.t = first + steps;
    place.rows = length - place.t;
    walk_rest(w, place);
    leave(w, &place);
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

/* A part of the strip, a tile's rows at a time; over time with all lanes, as long as they have whole pieces. */
static bool grows_within(const walk *w, int64_t t, int64_t end)
{
    const rl_scan_job *job = w->job;
    const int64_t lanes = w->way == RL_SCAN_OVER_TIME ? job->lanes : 1;
    for (rl_scan_place place = w->place; t<end; t += place.piece> 0 ? place.rows * lanes : place.rows) {
        int64_t rows = (end - t) / lanes;
        place.t = t, place.piece = 0, place.lanes = w->place.lanes;
        if (rows > RL_TILE_ROWS) rows = RL_TILE_ROWS;
        if (w->way == RL_SCAN_OVER_TIME && rows > 0)
            place.piece = rows, place.lanes = lanes;
        else if (w->way == RL_SCAN_OVER_TIME)
            rows = end - t;
        place.rows = rows;
        rl_scan_tile tile = rl_scan_load_decays(job, w->scratch, &place);
        if (rl_scan_grows(job, rl_scan_largest_decay(job, &tile))) return true;
    }
    return false;
}

/*
 * In place the results take the place of what a second walk would need, so that the decays are looked at first: those
 * of one thread's share, but for the one that is not read.
 */
static bool grows_in_place(const walk *w, int thread, int threads)
{
    const rl_scan_job *job = w->job;
    const bool unread = !job->h_init.data; /* in place is never backward */
    if (job->narrow || job->input.data != job->out.data) return false;
    const int64_t length = job->a.stride[1] == 0 ? 1 + unread : w->place.s.length, share = length / threads + 1;
    const int64_t first = share * thread, end = first + share < length ? first + share : length;
    return grows_within(w, first + (thread == 0 && unread), end);
}

bool rl_scan_run_strip(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index,
                       const rl_scan_scratch *scratch)
{
    walk w = walk_of(job, way, sequence, index, scratch, NULL);
    if (grows_in_place(&w, 0, 1)) return false;
    if (has_runs(&w) && !job->reproducible)
        run_alone(&w);
    else
        for (int64_t group = 0; !w.grows && run_group(&w, group); group++) continue;
    return !w.grows;
}

void rl_scan_make_shared_strip(const rl_scan_job *job, int64_t at, rl_scan_way way, int64_t sequence, int64_t index)
{
    rl_scan_strip *strip = &job->strips[at];
    *strip = (rl_scan_strip){.sequence = sequence, .index = index, .way = way};
}

void rl_scan_look_at_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch, int thread)
{
    rl_scan_strip *strip = &job->strips[at];
    walk w = walk_of(job, strip->way, strip->sequence, strip->index, scratch, strip);
    if (grows_in_place(&w, thread, job->threads)) atomic_store_explicit(&strip->grows, true, memory_order_relaxed);
}

void rl_scan_run_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch)
{
    rl_scan_strip *strip = &job->strips[at];
    walk w = walk_of(job, strip->way, strip->sequence, strip->index, scratch, strip);
    while (!is_for_the_loop(&w) && run_group(&w, atomic_fetch_add_explicit(&strip->next, 1, memory_order_relaxed)))
        continue;
    if (w.grows) atomic_store_explicit(&strip->grows, true, memory_order_relaxed);
}

bool rl_scan_must_repeat(const rl_scan_job *job, int64_t at, rl_scan_block *block)
{
    const rl_scan_strip *strip = &job->strips[at];
    if (!atomic_load_explicit(&strip->grows, memory_order_relaxed)) return false;
    *block = rl_scan_block_of(job, strip->way, strip->sequence, strip->index);
    return true;
}

rl_scan_block rl_scan_block_of(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index)
{
    walk w = walk_of(job, way, sequence, index, NULL, NULL);
    return (rl_scan_block){
        .s = w.place.s, .sequence = sequence, .first = w.place.channel, .end = w.place.channel + w.place.lanes};
}
