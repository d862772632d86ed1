/*
 * The layer in rounds.  Sequences are dealt to slots, each slot giving a fixed number of rows (steps) to a round; in
 * a round
 *   1. panels of rows are projected to delta (or the low rank), B and C        (panels in parallel),
 *   2. with a low rank, that is projected to delta                             (panels in parallel),
 *   3. the pieces of sequences that the rows belong to are scanned             (s6.c),
 * and the state of a sequence that goes on into the next round waits in its slot.  So memory is bounded by slots and
 * rows of a round, and delta, B and C are still in cache when they are scanned.
 */
#include <limits.h>
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "gemm.h"
#include "projections.h"
#include "s6.h"

enum { ROUND_BYTES = 512 << 10 }; /* of projected rows a thread and round: half of a usual second-level cache */

/* Rows of a round that belong to one sequence, from its step t on. */
typedef struct segment {
    int64_t sequence, t, length, row;
    bool first, last;
    void *carry;
} segment;

typedef struct slot {
    rl_sequence steps;
    int64_t sequence, t; /* in progress: the next step; t == steps.length: none is */
    int64_t rows;        /* of the round */
    int64_t begin, end;  /* its segments of the round */
    char *carry[2];      /* a sequence that comes from the last round and one that goes on into the next may meet */
    int turn;
} slot;

typedef struct layer {
    const rl_selective_layer_problem *problem;
    rl_projections projections;
    rl_s6 scan;
    bool fixed;                                        /* panels of fixed rows that begin with each sequence */
    int64_t slot_count, slot_rows, panel_rows, panels; /* panels: of a slot */
    slot *slots;
    segment *segments;
    int64_t next, segment_count; /* the next sequence; segments of the round */
    char *rows, *delta;          /* [slots][slot_rows] of projections.columns, and of delta with a low rank */
    char *panel;                 /* [threads] gathered rows of x */
    int64_t panel_row;
    int64_t parts; /* tasks that share a panel's columns */
} layer;

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Slots and rows of a round: enough rows to keep every thread busy, no more than a cache holds. */
static void plan_rounds(layer *l, int threads)
{
    const rl_selective_layer_problem *p = l->problem;
    const int64_t total = p->batch * p->length, panel = l->fixed ? RL_PANEL_FIXED : RL_PANEL_MOST;
    const int64_t columns = l->projections.columns + (l->projections.low_rank ? p->channels : 0);
    int64_t panels = ROUND_BYTES / rl_most(1, panel * columns * (int64_t)l->projections.real_size);
    panels = rl_most(1, rl_least(panels, 4));
    l->slot_count = total <= panel && !l->fixed ? 1 : rl_most(1, rl_least(p->sequences, threads));
    l->slot_rows = round_up((panels * panel * threads + l->slot_count - 1) / l->slot_count, panel);
    int64_t share = (total + l->slot_count - 1) / l->slot_count;
    if (l->fixed)
        l->slot_rows = rl_least(l->slot_rows, rl_most(1, round_up(p->length, panel) * p->sequences));
    else
        l->slot_rows = rl_least(l->slot_rows, rl_most(1, share));
    l->panel_rows = l->fixed ? panel : rl_least(panel, l->slot_rows);
    l->panels = (l->slot_rows + l->panel_rows - 1) / l->panel_rows;
    l->parts = 1;
    if (!l->fixed && rl_gemm_shared()) l->parts = rl_most(1, threads / (l->slot_count * l->panels));
}

static rill_status take(rill_context *context, int64_t count, size_t size, void *block)
{
    return rl_workspace_take(context, (size_t)count * size, block);
}

static rill_status plan_memory(rill_context *context, layer *l, int threads)
{
    const rl_projections *p = &l->projections;
    const int64_t rows = l->slot_count * l->slot_rows;
    /* Fixed panels begin with each sequence, so that even a few steps may take more rows than a round has. */
    const bool carries = l->slot_count > 1 || l->fixed || l->problem->batch * l->problem->length > l->slot_rows;
    const size_t carry = carries ? (size_t)(l->scan.vectors * l->problem->states) * l->scan.vector_size : 0;
    char *carry_memory;
    rill_status status;
    l->panel_row = round_up(p->channels, p->kernels->lanes);
    if ((status = take(context, l->slot_count, sizeof *l->slots, &l->slots)) != RILL_OK ||
        (status = take(context, l->slot_count * (l->slot_rows + 1), sizeof *l->segments, &l->segments)) != RILL_OK ||
        (status = take(context, rows * p->columns, p->real_size, &l->rows)) != RILL_OK ||
        (status = take(context, p->low_rank ? rows * p->channels : 0, p->real_size, &l->delta)) != RILL_OK ||
        (status = take(context, threads * l->panel_rows * l->panel_row, p->real_size, &l->panel)) != RILL_OK ||
        (status = take(context, 2 * l->slot_count, carry, &carry_memory)) != RILL_OK)
        return status;
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i] = (slot){.carry = {carry ? carry_memory + (size_t)(2 * i) * carry : NULL,
                                       carry ? carry_memory + (size_t)(2 * i + 1) * carry : NULL}};
    return RILL_OK;
}

/* The next segment of a slot, into `out`.  False when no sequence is left. */
static bool deal_segment(layer *l, slot *s, segment *out)
{
    const rl_selective_layer_problem *p = l->problem;
    if (s->t == s->steps.length) {
        if (l->next == p->sequences) return false;
        s->sequence = l->next++;
        s->steps = rl_sequence_of(&p->offsets, s->sequence, p->length, p->reverse);
        s->t = 0;
    }
    int64_t length = rl_least(s->steps.length - s->t, l->slot_rows - s->rows);
    *out = (segment){.sequence = s->sequence,
                     .t = s->t,
                     .length = length,
                     .first = s->t == 0,
                     .row = (s - l->slots) * l->slot_rows + s->rows};
    s->t += length;
    s->rows += l->fixed ? round_up(length, l->panel_rows) : length;
    out->last = s->t == s->steps.length;
    if (out->first && !out->last) s->turn ^= 1;
    out->carry = out->first && out->last ? NULL : s->carry[s->turn];
    return true;
}

/* Deals a round's rows.  A slot also stops at one segment more than its rows: empty sequences take none. */
static void deal_round(layer *l)
{
    l->segment_count = 0;
    for (int64_t i = 0; i < l->slot_count; i++) {
        slot *s = &l->slots[i];
        s->rows = 0;
        s->begin = l->segment_count;
        while (s->rows < l->slot_rows && l->segment_count - s->begin <= l->slot_rows)
            if (!deal_segment(l, s, &l->segments[l->segment_count]))
                break;
            else
                l->segment_count++;
        s->end = l->segment_count;
    }
}

/* x from a segment's step `skip` on. */
static rl_series x_of(const layer *l, const segment *g, int64_t skip)
{
    rl_sequence steps = rl_sequence_of(&l->problem->offsets, g->sequence, l->problem->length, l->problem->reverse);
    return rl_series_of(&l->problem->x, steps, g->t + skip);
}

static void gather_rows(const layer *l, const rl_series *x, int64_t rows, char *to)
{
    const int64_t lanes = l->projections.kernels->lanes;
    for (int64_t channel = 0; channel < l->problem->channels; channel += lanes) {
        rl_matrix from = rl_series_rows(x, 0, channel);
        l->projections.kernels->load(to + (size_t)channel * l->projections.real_size, l->panel_row, &from, rows,
                                     rl_least(lanes, l->problem->channels - channel));
    }
}

/* A panel's rows of x: where they lie if a product can read them there, else gathered, rows of no step as zeros. */
static const void *panel_rows_of_x(const layer *l, const slot *s, int64_t begin, int64_t rows, int64_t *x_row)
{
    const size_t row_size = (size_t)l->panel_row * l->projections.real_size;
    char *to = l->panel + (size_t)(omp_get_thread_num() * l->panel_rows) * row_size;
    const rill_dtype plain = l->projections.f64 ? RILL_F64 : RILL_F32;
    int64_t filled = 0;
    for (int64_t i = s->begin; i < s->end; i++) {
        const segment *g = &l->segments[i];
        int64_t at = rl_most(g->row, begin), end = rl_least(g->row + g->length, begin + rows);
        if (at >= end) continue;
        rl_series x = x_of(l, g, at - g->row);
        if (end - at == rows && x.dtype == plain && x.lane == 1 && x.step >= l->problem->channels && x.step > 0 &&
            x.step <= INT_MAX) {
            *x_row = x.step;
            return x.data;
        }
        gather_rows(l, &x, end - at, to + (size_t)(at - begin) * row_size);
        filled = end - begin;
    }
    memset(to + (size_t)filled * row_size, 0, (size_t)(rows - filled) * row_size);
    *x_row = l->panel_row;
    return to;
}

/* One task of a round's products: the columns of a part, of a panel. */
static void project(const layer *l, int64_t task, bool low)
{
    const rl_projections *p = &l->projections;
    int64_t part = task % l->parts, panel = task / l->parts % l->panels;
    const slot *s = &l->slots[task / l->parts / l->panels];
    int64_t inside = panel * l->panel_rows, row = (s - l->slots) * l->slot_rows + inside, x_row;
    int64_t rows = rl_least(l->panel_rows, s->rows - inside);
    if (rows <= 0) return;
    char *out = l->rows + (size_t)(row * p->columns) * p->real_size;
    if (low) {
        rl_project_low(p, rows, out, l->delta + (size_t)(row * p->channels) * p->real_size, part, l->parts);
        return;
    }
    const void *x = panel_rows_of_x(l, s, row, rows, &x_row);
    rl_project_x(p, rows, x, x_row, out, part, l->parts);
}

static void project_round(const layer *l, bool low)
{
    const int64_t tasks = l->slot_count * l->panels * l->parts;
    if (rl_gemm_shared()) {
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) project(l, task, low);
    } else {
#pragma omp master
        for (int64_t task = 0; task < tasks; task++) project(l, task, low);
#pragma omp barrier
    }
}

static rl_series projected(const layer *l, const char *rows, int64_t row, int64_t columns, int64_t first)
{
    return (rl_series){.data = (char *)rows + (size_t)(row * columns + first) * l->projections.real_size,
                       .dtype = l->projections.f64 ? RILL_F64 : RILL_F32,
                       .step = columns,
                       .lane = 1};
}

static void get_piece(const void *owner, int64_t index, rl_piece *piece)
{
    const layer *l = owner;
    const rl_projections *p = &l->projections;
    const segment *g = &l->segments[index];
    *piece = (rl_piece){
        .sequence = g->sequence, .length = g->length, .first = g->first, .last = g->last, .carry = g->carry};
    if (g->length == 0) return;
    rl_sequence steps = rl_sequence_of(&l->problem->offsets, g->sequence, l->problem->length, l->problem->reverse);
    piece->x = rl_series_of(&l->problem->x, steps, g->t);
    piece->z = rl_series_of(&l->problem->z, steps, g->t);
    piece->y = rl_series_of(&l->problem->y, steps, g->t);
    piece->delta =
        p->low_rank ? projected(l, l->delta, g->row, p->channels, 0) : projected(l, l->rows, g->row, p->columns, 0);
    piece->B = projected(l, l->rows, g->row, p->columns, p->columns - 2 * p->states);
    piece->C = projected(l, l->rows, g->row, p->columns, p->columns - p->states);
}

/* The whole call, by every thread of the team. */
static void run(layer *l)
{
    rl_gemm_enter();
    rl_projections_pack(&l->projections, l->problem);
    for (;;) {
#pragma omp single
        deal_round(l);
        if (l->segment_count == 0) break;
        project_round(l, false);
        if (l->projections.low_rank) project_round(l, true);
        rl_pieces pieces = {.count = l->segment_count, .get = get_piece, .owner = l};
        rl_s6_run(&l->scan, &pieces);
    }
}

static void describe_scan(layer *l, const rl_kernels *kernels)
{
    const rl_selective_layer_problem *p = l->problem;
    l->scan = (rl_s6){.kernels = kernels,
                      .channels = p->channels,
                      .states = p->states,
                      .groups = 1,
                      .A = p->A_log,
                      .D = p->D,
                      .delta_bias = p->b_delta,
                      .h_init = p->h_init,
                      .h_final = p->h_final,
                      .f64 = p->x.dtype == RILL_F64,
                      .A_is_log = true,
                      .softplus = true,
                      .gated = p->z.data != NULL,
                      .low = p->delta_min,
                      .high = p->delta_max};
}

rill_status rl_cpu_selective_layer(rill_context *context, const rl_selective_layer_problem *p)
{
    if (p->sequences == 0 || p->channels == 0) return RILL_OK;
    const rl_kernels *kernels = rl_cpu_kernels(context, p->x.dtype);
    const bool f64 = p->x.dtype == RILL_F64;
    const int64_t steps = p->batch * p->length;
    int threads = rl_s6_threads(context, (steps + p->sequences) * p->channels, p->states + p->channels / 4);
    layer l = {.problem = p, .fixed = context->options.reproducible};
    l.projections = (rl_projections){.kernels = kernels,
                                     .f64 = f64,
                                     .low_rank = p->W_delta_down.dtype != RILL_ABSENT,
                                     .real_size = f64 ? sizeof(double) : sizeof(float),
                                     .channels = p->channels,
                                     .states = p->states,
                                     .rank = p->rank};
    describe_scan(&l, kernels);
    rill_status status = rl_projections_plan(context, &l.projections, p, l.fixed || steps > RL_PANEL_MOST);
    if (status != RILL_OK) return status;
    plan_rounds(&l, threads);
    int64_t longest = rl_least(rl_longest_sequence(&p->offsets, p->sequences, p->length), l.slot_rows);
    if ((status = rl_s6_plan(context, &l.scan, threads, l.slot_count, longest)) != RILL_OK) return status;
    if ((status = plan_memory(context, &l, threads)) != RILL_OK) return status;
#pragma omp parallel num_threads(threads)
    run(&l);
    return RILL_OK;
}
