/* Which steps make a round, and how its rows are cut for the products. */
#include <limits.h>

#include "../counts.h"
#include "layer_back.h"

enum {
    LEAST_BYTES = 4 << 20, /* of a round, however small the call */
    SIDE = 8,              /* at most so many long sequences side by side, */
    TASKS = 32,            /* fewer where blocks of channels alone make so many tasks */
    LEAST_PANEL = 128,     /* rows, where there are not PANELS of more: each product packs the weights anew */
    MOST_PANEL = 512,      /* half of that where threads gather them */
    PANELS = 32,
    LONG = 256 /* steps from which a sequence by itself is worth a product */
};

static int64_t round_up(int64_t value, int64_t unit)
{
    return rl_quotient_up(value, unit) * unit;
}

static int64_t length_of(const rl_layer_back *l, int64_t sequence)
{
    return rl_sequence_of(&l->problem->offsets, sequence, l->problem->length, false).length;
}

static int64_t rows_of(const rl_layer_back *l, int64_t length)
{
    return l->fixed ? round_up(length, l->panel_rows) : length;
}

/* Whether the rows of a tensor over time follow each other at one distance, also from sequence to sequence. */
static bool flows(const rill_tensor *t)
{
    return t->shape[0] == 1 || t->stride[0] == t->shape[1] * t->stride[1];
}

/* Whether products can use a tensor over time where it lies. */
static bool lies_well(const rl_layer_back *l, const rill_tensor *t)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const bool plain = t->dtype == rl_layer_real(l) && t->stride[2] == 1 && t->stride[1] >= p->channels &&
                       t->stride[1] > 0 && t->stride[1] <= INT_MAX && !p->reverse;
    return t->data && plain && ((!l->fixed && flows(t)) || p->batch * p->length >= LONG * p->sequences);
}

/* Of all that a row of a round needs, the states kept among it. */
static int64_t row_bytes(const rl_layer_back *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const int64_t blocks = l->scan.stripe_blocks;
    int64_t numbers = l->projections.columns + rl_quotient_up(p->channels * p->states, RL_BACK_ROWS);
    if (l->projections.low_rank) numbers += p->channels;
    if (p->dx.data && !l->dx_lies) numbers += p->channels;
    if (blocks > 1) numbers += blocks * 2 * p->states;
    return rl_most(1, numbers) * (int64_t)l->projections.real_size;
}

void rl_layer_cut(rl_layer_back *l, int64_t bytes)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const int64_t steps = p->batch * p->length, x_bytes = steps * p->channels * (int64_t)l->projections.real_size;
    l->panel_rows = RL_PANEL_FIXED;
    l->x_lies = lies_well(l, &p->x);
    l->dx_lies = lies_well(l, &p->dx);
    l->side = rl_most(1, rl_least(p->sequences, rl_least(SIDE, TASKS / l->scan.blocks)));
    l->most = rl_least(bytes, rl_most(LEAST_BYTES, 2 * x_bytes)) / row_bytes(l) / RL_PANEL_FIXED * RL_PANEL_FIXED;
    l->most = rl_most(l->most, l->side * RL_PANEL_FIXED);
    const int64_t panels = steps / RL_PANEL_FIXED + (l->fixed ? p->sequences : 1);
    l->most = rl_least(l->most, panels * RL_PANEL_FIXED);
    if (!l->fixed)
        l->panel_rows = rl_least(MOST_PANEL, rl_most(LEAST_PANEL, round_up(l->most / PANELS, LEAST_PANEL)));
}

rl_layer_wave rl_layer_wave_from(const rl_layer_back *l, int64_t first)
{
    const int64_t left = l->problem->sequences - first;
    rl_layer_wave w = {.first = first, .slab = l->most, .rounds = 1};
    int64_t rows = 0, longest = 0;
    for (; w.count < rl_least(left, RL_LAYER_SEGMENTS); w.count++) {
        rows += rows_of(l, length_of(l, first + w.count));
        if (rows > l->most) break;
    }
    if (w.count > 0) return w;
    for (; w.count < rl_least(left, l->side); w.count++) {
        const int64_t length = length_of(l, first + w.count);
        if (rows_of(l, length) <= l->most) break;
        longest = rl_most(longest, length);
    }
    w.slab = l->most / w.count / RL_PANEL_FIXED * RL_PANEL_FIXED;
    w.rounds = rl_quotient_up(longest, w.slab);
    return w;
}

static void deal_segments(rl_layer_back *l)
{
    const rl_layer_wave *w = &l->wave;
    l->segment_count = l->row_count = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const int64_t whole = length_of(l, w->first + i), t = l->round * w->slab;
        rl_layer_segment s = {.sequence = w->first + i, .t = t, .first = t == 0, .row = l->row_count, .index = i};
        s.length = rl_least(w->slab, whole - t);
        s.last = t + s.length == whole;
        if ((t > 0 && s.length <= 0) || (l->keeping && s.last)) continue;
        l->segments[l->segment_count++] = s;
        l->row_count += rows_of(l, s.length);
    }
}

/* Whether the rows of segment b continue those of a wherever a product meets them. */
static bool continues(const rl_layer_back *l, const rl_layer_segment *a, const rl_layer_segment *b)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    if (l->fixed) return false;
    if (!l->x_lies && !l->dx_lies) return true;
    return a->last && b->first && (!l->x_lies || flows(&p->x)) && (!l->dx_lies || flows(&p->dx));
}

static void cut_panels(rl_layer_back *l, rl_layer_rows run)
{
    for (int64_t row = 0; row < run.steps; row += l->panel_rows) {
        const int64_t left = run.steps - row;
        l->panels[l->panel_count++] =
            (rl_layer_rows){.row = run.row + row,
                            .rows = l->fixed ? l->panel_rows : rl_least(left, l->panel_rows),
                            .segment = run.segment,
                            .steps = rl_least(left, l->panel_rows)};
    }
}

void rl_layer_deal(rl_layer_back *l, const rl_layer_wave *wave, int64_t round, bool keeping)
{
    l->wave = *wave;
    l->round = round;
    l->keeping = keeping;
    l->panel_count = l->run_count = 0;
    deal_segments(l);
    for (int64_t i = 0, end; i < l->segment_count; i = end) {
        const rl_layer_segment *first = &l->segments[i], *last = first;
        for (end = i + 1; end < l->segment_count && continues(l, last, &l->segments[end]); end++)
            last = &l->segments[end];
        const int64_t steps = last->row + last->length - first->row;
        const rl_layer_rows run = {.row = first->row, .rows = steps, .segment = i, .steps = steps};
        if (steps == 0) continue;
        l->runs[l->run_count++] = run;
        cut_panels(l, run);
    }
}

rl_series rl_layer_series(const rl_layer_back *l, const rill_tensor *tensor, const rl_layer_segment *segment,
                          int64_t skip)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    rl_sequence steps = rl_sequence_of(&p->offsets, segment->sequence, p->length, p->reverse);
    return rl_series_of(tensor, steps, segment->t + skip);
}
