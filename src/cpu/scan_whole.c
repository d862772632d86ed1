/*
 * A sequence walked whole, a block of its channels at a time: straight from tensor to tensor where channels or steps
 * lie side by side, else through tiles in scratch memory.  Which way is taken never shows in the result.
 */
#include <string.h>

#include "../counts.h"
#include "scan.h"

enum {
    AHEAD = 256,     /* bytes along a channel that are asked for early */
    FIRST_STEPS = 64 /* whole cache lines of any type */
};

static rl_scan_place place_of(const rl_scan_job *job, const rl_scan_block *b, int64_t t, int64_t rows, int64_t vector)
{
    int64_t channel = b->first + vector * job->lanes;
    return (rl_scan_place){.s = b->s,
                           .sequence = b->sequence,
                           .t = t,
                           .rows = rows,
                           .channel = channel,
                           .lanes = rl_least(job->lanes, b->end - channel)};
}

static int64_t vectors_of(const rl_scan_job *job, const rl_scan_block *b)
{
    return (b->end - b->first + job->lanes - 1) / job->lanes;
}

static void walk_tiles(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_block *b, int64_t t,
                       int64_t end)
{
    for (; t < end; t += RL_TILE_ROWS)
        for (int64_t v = 0; v < vectors_of(job, b); v++) {
            rl_scan_place place = place_of(job, b, t, rl_least(RL_TILE_ROWS, end - t), v);
            rl_scan_tile tile = rl_scan_load_tile(job, scratch, &place);
            tile.state = scratch->state + (size_t)v * job->vector_size;
            job->kernels->walk(&tile);
            rl_scan_store_tile(job, scratch, &place);
        }
}

static bool has_rows(const rl_scan_job *job, const rill_tensor *tensor)
{
    return tensor->data && tensor->stride[2] == 1 && tensor->dtype == job->a.dtype;
}

static bool walks_rows(const rl_scan_job *job, const rl_scan_block *b)
{
    bool a_fits = job->a.stride[2] == 0 || job->a.stride[2] == 1, da_fits = !job->da.data;
    if (!da_fits) da_fits = has_rows(job, &job->da) && has_rows(job, &job->h);
    return (b->end - b->first) >= job->lanes && a_fits && has_rows(job, &job->input) &&
           (has_rows(job, &job->out) || !job->out.data) && da_fits;
}

static void walk_rows(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_block *b, int64_t t,
                      int64_t end)
{
    if (t >= end) return;
    const bool with_da = job->da.data != NULL;
    rl_series a = rl_series_of(&job->a, b->s, t), input = rl_series_of(&job->input, b->s, t);
    rl_series out = rl_series_of(&job->out, b->s, t), da = rl_series_of(&job->da, b->s, t);
    rl_series before = with_da ? rl_series_of(&job->h, b->s, t + 1) : (rl_series){0};
    rl_matrix am = rl_series_rows(&a, 0, b->first), im = rl_series_rows(&input, 0, b->first), none = {0};
    rl_matrix om = out.data ? rl_series_rows(&out, 0, b->first) : none;
    rl_matrix dm = with_da ? rl_series_rows(&da, 0, b->first) : none;
    rl_matrix bm = with_da ? rl_series_rows(&before, 0, b->first) : none;
    rl_scan_rows rows = {.rule = job->rule,
                         .dtype = job->real_dtype,
                         .rows = end - t,
                         .lanes = (b->end - b->first) * job->parts,
                         .a = am.data,
                         .input = im.data,
                         .before = bm.data,
                         .out = om.data,
                         .da = dm.data,
                         .a_step = am.row * job->parts,
                         .input_step = im.row * job->parts,
                         .before_step = bm.row * job->parts,
                         .out_step = om.row * job->parts,
                         .da_step = dm.row * job->parts,
                         .a_is_shared = am.lane == 0,
                         .past_cache = job->past_cache && rl_scan_is_aligned(job, &om, om.row) &&
                                       rl_scan_is_aligned(job, &dm, dm.row),
                         .state = scratch->state};
    job->kernels->walk_rows(&rows);
}

/* Answers the step that it came to: those left are fewer than make a vector. */
static int64_t walk_columns(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_block *b, int64_t t,
                            int64_t end)
{
    const int64_t lanes = job->lanes, count = t < end ? (end - t) / lanes * lanes : 0;
    if (count == 0) return t;
    rl_scan_place place = place_of(job, b, t, count, 0);
    rl_scan_columns columns = rl_scan_columns_of(job, &place);
    columns.ahead = columns.falling ? -AHEAD : AHEAD;
    columns.state = scratch->state;
    job->kernels->walk_columns(&columns);
    return t + count;
}

/* What enters an empty sequence leaves it: bit for bit where the types are the same. */
static void hand_on(const rl_scan_job *job, const rl_scan_block *b)
{
    const size_t size = rill_dtype_size(job->end.dtype);
    const bool same = job->start.data && job->start.dtype == job->end.dtype;
    char state[RL_MOST_LANES * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t v = 0; !same && v < vectors_of(job, b); v++) {
        rl_scan_place place = place_of(job, b, 0, 0, v);
        if (job->start.data)
            rl_scan_load_state(job, &place, state);
        else
            memset(state, 0, sizeof state);
        rl_scan_store_state(job, &place, state);
    }
    for (int64_t d = b->first; same && d < b->end; d++)
        memmove((char *)job->end.data + (b->sequence * job->end.stride[0] + d * job->end.stride[1]) * (int64_t)size,
                (const char *)job->start.data +
                    (b->sequence * job->start.stride[0] + d * job->start.stride[1]) * (int64_t)size,
                size);
}

void rl_scan_run_block(const rl_scan_job *job, const rl_scan_block *b, const rl_scan_scratch *scratch)
{
    const int64_t length = b->s.length;
    if (length == 0) {
        if (job->end.data) hand_on(job, b);
        return;
    }
    for (int64_t v = 0; v < vectors_of(job, b); v++) {
        rl_scan_place place = place_of(job, b, 0, 0, v);
        rl_scan_load_state(job, &place, scratch->state + (size_t)v * job->vector_size);
    }
    /* Straight, but for the step that has no other before it. */
    int64_t first = !job->rule.back && !job->h_init.data, end = length - job->rule.back;
    if (walks_rows(job, b)) {
        walk_tiles(job, scratch, b, 0, first);
        walk_rows(job, scratch, b, first, end);
        walk_tiles(job, scratch, b, end, length);
    } else if (b->end - b->first == job->lanes && rl_scan_has_columns(job)) {
        first = rl_least(first * FIRST_STEPS, length); /* so that whole lines stay aligned */
        walk_tiles(job, scratch, b, 0, first);
        end = walk_columns(job, scratch, b, first, end);
        walk_tiles(job, scratch, b, end, length);
    } else {
        walk_tiles(job, scratch, b, 0, length);
    }
    for (int64_t v = 0; v < vectors_of(job, b); v++) {
        rl_scan_place place = place_of(job, b, 0, 0, v);
        rl_scan_store_state(job, &place, scratch->state + (size_t)v * job->vector_size);
    }
}
