/*
 * One strip (a vector of channels, or one channel over time) of a long sequence, in tiles of a fixed grid from its
 * first step on.  A tile is summarised, with its pieces if over time: the product of its decays and the state that a
 * walk from zero leaves.  The states that enter pieces and tiles follow from those, in order, and then every lane
 * walks from its own in the loop's order.  Threads take tiles in turn; the state that enters the next tile is handed
 * on before the walk, but for runs of tiles that need not wait for theirs (scan_strip_run.c).  So the numbers are the
 * same however many threads there are.
 *
 * Which summaries may stand for the walk, and which channels are left to the loop, is told in scan_fold.c.
 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "scan_strip.h"

enum { LINKS = 4, SPINS = 64, GROUP_TILES = 8 };

/* The state that enters a tile: `tile` is its number, 0 before any. */
typedef struct link {
    _Atomic int64_t tile;
    rl_scan_long state[RL_MOST_LANES];
} __attribute__((aligned(128))) link;

/*
 * Tile i waits for its link and then writes the next; as that happens in order, a link is read before it is written
 * again, LINKS tiles on.
 */
struct rl_scan_strip {
    link links[LINKS];
    _Atomic int64_t next; /* the group of tiles to take */
    _Atomic bool grows;   /* as in a walk */
    int64_t sequence, index;
    rl_scan_way way;
};

size_t rl_scan_strip_size(void)
{
    return sizeof(rl_scan_strip);
}

static rl_scan_walk walk_of(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index,
                            const rl_scan_scratch *scratch, rl_scan_strip *shared)
{
    rl_scan_walk w = {.job = job, .scratch = scratch, .shared = shared, .way = way, .tile_steps = RL_TILE_ROWS};
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

void rl_scan_await_state(rl_scan_walk *w, int64_t tile)
{
    if (tile == 0) {
        rl_scan_load_state(w->job, &w->place, w->scratch->state);
        rl_scan_widen(w->job, w->state, w->scratch->state);
    } else if (w->shared) {
        link *l = &w->shared->links[tile % LINKS];
        for (int spins = 0; atomic_load_explicit(&l->tile, memory_order_acquire) != tile; spins += spins < SPINS)
            relax(spins);
        memcpy(w->state, l->state, sizeof w->state);
    }
}

void rl_scan_pass_state(const rl_scan_walk *w, int64_t tile)
{
    if (!w->shared) return;
    if (w->grows) atomic_store_explicit(&w->shared->grows, true, memory_order_relaxed);
    link *l = &w->shared->links[tile % LINKS];
    memcpy(l->state, w->state, sizeof w->state);
    atomic_store_explicit(&l->tile, tile, memory_order_release);
}

static bool is_for_the_loop(const rl_scan_walk *w)
{
    return w->grows || (w->shared && atomic_load_explicit(&w->shared->grows, memory_order_relaxed));
}

void rl_scan_leave(const rl_scan_walk *w, const rl_scan_place *place)
{
    if (!is_for_the_loop(w)) rl_scan_store_state(w->job, place, w->scratch->state);
}

static int64_t tiles_of(const rl_scan_walk *w)
{
    return (w->place.s.length + w->tile_steps - 1) / w->tile_steps;
}

/* Runs need neither the first tile, where it begins without a state, nor the last. */
static void run_group_in_order(rl_scan_walk *w, int64_t first, int64_t end)
{
    const bool begins = first == 0 && !w->job->h_init.data, last = end == tiles_of(w);
    const int64_t inner = first + begins, inner_end = end - last;
    if (begins && inner <= inner_end) rl_scan_run_tile(w, 0);
    const bool has_run = inner < inner_end && (rl_scan_run_ahead(w, inner, inner_end - inner) ||
                                               rl_scan_run_in_order(w, inner, inner_end - inner));
    if (!has_run)
        for (int64_t tile = inner; tile < inner_end; tile++) rl_scan_run_tile(w, tile);
    if (last) rl_scan_run_tile(w, end - 1);
}

/* The index-th group of tiles; answers whether there is one. */
static bool run_group(rl_scan_walk *w, int64_t index)
{
    const bool runs = rl_scan_has_runs(w);
    const int64_t all = tiles_of(w), first = index * (runs ? GROUP_TILES : 1);
    if (first >= all) return false;
    const int64_t end = runs && first + GROUP_TILES < all ? first + GROUP_TILES : runs ? all : first + 1;
    if (runs)
        run_group_in_order(w, first, end);
    else
        rl_scan_run_tile(w, first);
    return true;
}

/* A part of the strip, a tile's rows at a time; over time with all lanes, as long as they have whole pieces. */
static bool grows_within(const rl_scan_walk *w, int64_t t, int64_t end)
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
static bool grows_in_place(const rl_scan_walk *w, int thread, int threads)
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
    rl_scan_walk w = walk_of(job, way, sequence, index, scratch, NULL);
    if (grows_in_place(&w, 0, 1)) return false;
    if (rl_scan_has_runs(&w) && !job->reproducible)
        rl_scan_run_alone(&w);
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
    rl_scan_walk w = walk_of(job, strip->way, strip->sequence, strip->index, scratch, strip);
    if (grows_in_place(&w, thread, job->threads)) atomic_store_explicit(&strip->grows, true, memory_order_relaxed);
}

void rl_scan_run_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch)
{
    rl_scan_strip *strip = &job->strips[at];
    rl_scan_walk w = walk_of(job, strip->way, strip->sequence, strip->index, scratch, strip);
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
    rl_scan_walk w = walk_of(job, way, sequence, index, NULL, NULL);
    return (rl_scan_block){
        .s = w.place.s, .sequence = sequence, .first = w.place.channel, .end = w.place.channel + w.place.lanes};
}
