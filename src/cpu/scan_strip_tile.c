/* A tile of a strip: through scratch memory, or, over time, straight from and to the tensors. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "scan_strip.h"

void rl_scan_widen(const rl_scan_job *job, rl_scan_long *to, const void *from)
{
    const int64_t parts = job->parts;
    memset(to, 0, sizeof *to * (size_t)job->lanes);
    for (int64_t i = 0; i < job->lanes * parts; i++)
        to[i / parts].high[i % parts] = job->narrow ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

static void narrow(const rl_scan_job *job, void *to, const double *from)
{
    for (int64_t lane = 0; lane < job->lanes * job->parts; lane++)
        if (job->narrow)
            ((float *)to)[lane] = (float)from[lane];
        else
            ((double *)to)[lane] = from[lane];
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
void rl_scan_walk_rest(rl_scan_walk *w, rl_scan_place place)
{
    memset(w->scratch->state, 0, w->job->vector_size);
    double state[RL_MOST_LANES] = {0};
    memcpy(state, w->state[0].high, sizeof(double) * (size_t)w->job->parts);
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
static bool goes_straight(const rl_scan_walk *w, const rl_scan_place *place)
{
    bool begins = place->t == 0 && !w->job->rule.back && !w->job->h_init.data;
    return place->piece == RL_PIECE_ROWS && !begins && rl_scan_has_columns(w->job);
}

static rl_scan_columns columns_of(const rl_scan_walk *w, const rl_scan_scratch *scratch, const rl_scan_place *place)
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

static void take_vectors(const rl_scan_walk *w, vector *v, int count, bool straight, rl_scan_columns *columns)
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
static void run_vectors(rl_scan_walk *w, const rl_scan_place *place, int count, int64_t index, bool last)
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
    rl_scan_await_state(w, index);
    for (int i = 0; i < count; i++) {
        w->grows |= rl_scan_tile_grows(job, &v[i].s);
        rl_scan_pass_through(job, w->way, &v[i].tile, &v[i].s, w->state);
        columns[i].no_resets = has_no_resets(job, &v[i].s);
    }
    if (!last) rl_scan_pass_state(w, index + 1);
    for (int i = 0; i < count; i++) {
        narrow(job, v[i].scratch.state, v[i].s.entry);
        if (!straight) finish_tile(job, &v[i].scratch, &v[i].tile, &v[i].place);
    }
    if (straight) job->kernels->give_columns(columns);
}

void rl_scan_run_tile(rl_scan_walk *w, int64_t index)
{
    const rl_scan_job *job = w->job;
    rl_scan_place place = w->place;
    place.t = index * w->tile_steps;
    const int64_t left = place.s.length - place.t;
    const bool last = left <= w->tile_steps, over_time = w->way == RL_SCAN_OVER_TIME;
    place.rows = last ? left : RL_TILE_ROWS;
    if (over_time) {
        place.rows = place.piece = last ? (left - 1) / job->lanes : RL_PIECE_ROWS;
        place.lanes = job->lanes;
    }
    if (place.rows > 0)
        run_vectors(w, &place, over_time && !last ? 2 : 1, index, last);
    else
        rl_scan_await_state(w, index);
    if (!last) return;
    if (over_time) {
        place.t += place.rows * place.lanes;
        place.rows = place.s.length - place.t;
        place.lanes = 1, place.piece = 0;
        rl_scan_walk_rest(w, place);
    }
    rl_scan_leave(w, &place);
}
