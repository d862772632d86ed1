/* The gradients of the layer: the call, and its scan.  See layer_back.h. */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "gemm.h"
#include "layer_back.h"

static rl_selective_layer_problem forward_of(const rl_selective_layer_backward_problem *p)
{
    return (rl_selective_layer_problem){.batch = p->batch,
                                        .length = p->length,
                                        .channels = p->channels,
                                        .states = p->states,
                                        .rank = p->rank,
                                        .sequences = p->sequences,
                                        .x = p->x,
                                        .W_delta = p->W_delta,
                                        .W_delta_down = p->W_delta_down,
                                        .W_B = p->W_B,
                                        .W_C = p->W_C};
}

static rl_s6 scan_of(const rl_kernels *kernels, const rl_selective_layer_backward_problem *p)
{
    return (rl_s6){.kernels = kernels,
                   .channels = p->channels,
                   .states = p->states,
                   .groups = 1,
                   .A = p->A_log,
                   .D = p->D,
                   .delta_bias = p->b_delta,
                   .h_init = p->h_init,
                   .f64 = p->x.dtype == RILL_F64,
                   .A_is_log = true,
                   .softplus = true,
                   .gated = p->z.data != NULL,
                   .low = p->delta_min,
                   .high = p->delta_max};
}

/* Numbers of the accumulation type that lie as rows of a round. */
static rl_series series_of(const rl_layer_back *l, char *data, int64_t row)
{
    return (rl_series){.data = data, .dtype = rl_layer_real(l), .step = row, .lane = 1};
}

/* The states that enter a round, where it does not begin its sequences. */
static char *states_before(const rl_layer_back *l, int64_t round, int64_t index)
{
    return l->states + (size_t)((round - 1) * l->wave.count + index) * l->carry;
}

static char *sums_at(const rl_layer_back *l, int64_t block, int64_t row)
{
    const int64_t numbers = 2 * l->problem->states;
    return l->sums_BC + (size_t)((block * l->most + row) * numbers) * l->projections.real_size;
}

static void get_steps(const rl_layer_back *l, const rl_layer_segment *s, rl_piece *steps)
{
    const rl_projections *p = &l->projections;
    const int64_t B = p->columns - 2 * p->states;
    steps->x = rl_layer_series(l, &l->problem->x, s, 0);
    steps->z = rl_layer_series(l, &l->problem->z, s, 0);
    steps->delta = p->low_rank ? series_of(l, rl_layer_delta(l, s->row), p->channels)
                               : series_of(l, rl_layer_row(l, s->row, 0), p->columns);
    steps->B = series_of(l, rl_layer_row(l, s->row, B), p->columns);
    steps->C = series_of(l, rl_layer_row(l, s->row, B + p->states), p->columns);
}

/* The gradients of delta, B and C take their places; B and C are read by all blocks, and theirs wait elsewhere. */
static void get_segment(const void *owner, int64_t index, int64_t block, rl_back_piece *piece)
{
    const rl_layer_back *l = owner;
    const rl_projections *p = &l->projections;
    const rl_layer_segment *s = &l->segments[index];
    *piece =
        (rl_back_piece){.steps = {.sequence = s->sequence, .length = s->length, .first = s->first, .last = s->last}};
    if (!s->first) piece->steps.carry = states_before(l, l->round, s->index);
    if (!s->first || !s->last) piece->G = l->G + (size_t)s->index * l->carry;
    if (l->keeping) piece->after = states_before(l, l->round + 1, s->index);
    if (s->length == 0) return;
    get_steps(l, s, &piece->steps);
    piece->dy = rl_layer_series(l, &l->problem->dy, s, 0);
    piece->dz = rl_layer_series(l, &l->problem->dz, s, 0);
    piece->ddelta = piece->steps.delta;
    piece->dB = piece->steps.B;
    piece->dC = piece->steps.C;
    if (l->sums_BC) {
        piece->dB = series_of(l, sums_at(l, block, s->row), 2 * p->states);
        piece->dC = series_of(l, sums_at(l, block, s->row) + (size_t)p->states * p->real_size, 2 * p->states);
    }
    if (l->dx)
        piece->dx = series_of(l, l->dx + (size_t)(s->row * p->channels) * p->real_size, p->channels);
    else
        piece->dx = rl_layer_series(l, &l->problem->dx, s, 0);
}

/* dB and dC of a panel's steps: all blocks' into the place of B and C. */
static void add_blocks(const rl_layer_back *l, const rl_layer_rows *panel)
{
    const int64_t numbers = 2 * l->problem->states, column = l->projections.columns - numbers;
    for (int64_t row = panel->row; row < panel->row + panel->steps; row++) {
        char *to = rl_layer_row(l, row, column);
        memcpy(to, sums_at(l, 0, row), (size_t)numbers * l->projections.real_size);
        for (int64_t block = 1; block < l->scan.stripe_blocks; block++) {
            const char *from = sums_at(l, block, row);
            if (l->projections.f64)
                for (int64_t i = 0; i < numbers; i++) ((double *)to)[i] += ((const double *)from)[i];
            else
                for (int64_t i = 0; i < numbers; i++) ((float *)to)[i] += ((const float *)from)[i];
        }
    }
}

static void run_round(rl_layer_back *l, const rl_layer_wave *wave, int64_t round, bool keeping)
{
#pragma omp single
    rl_layer_deal(l, wave, round, keeping);
    const rl_back_pieces pieces = {.count = l->segment_count, .get = get_segment, .owner = l};
    rl_layer_project(l);
    rl_back_run(&l->scan, &pieces);
    if (keeping) return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < (l->sums_BC ? l->panel_count : 0); i++) add_blocks(l, &l->panels[i]);
    rl_layer_project_back(l);
}

/* The whole call, by every thread of the team. */
static void run(rl_layer_back *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    rl_gemm_enter();
    rl_projections_pack(&l->projections, &l->forward);
    rl_back_begin(&l->scan);
    rl_layer_begin_products(l);
    for (int64_t first = 0; first < p->sequences;) {
        const rl_layer_wave wave = rl_layer_wave_from(l, first);
        for (int64_t round = 0; round < wave.rounds - 1; round++) run_round(l, &wave, round, true);
        for (int64_t round = wave.rounds; round-- > 0;) run_round(l, &wave, round, false);
        first += wave.count;
    }
    rl_back_finish(&l->scan, &p->dA_log, &p->dD, &p->db_delta);
    rl_layer_store_weights(l);
}

rill_status rl_layer_back_within(rill_context *context, const rl_selective_layer_backward_problem *p, int64_t bytes)
{
    const rl_kernels *kernels = rl_cpu_kernels(context, p->x.dtype);
    const bool f64 = p->x.dtype == RILL_F64, reproducible = context->options.reproducible;
    const int64_t steps = p->batch * p->length;
    const int threads = rl_s6_threads(context, (steps + p->sequences) * p->channels, p->states + p->channels / 4);
    rl_layer_back l = {.problem = p, .forward = forward_of(p), .fixed = reproducible};
    l.projections = (rl_projections){.kernels = kernels,
                                     .f64 = f64,
                                     .low_rank = p->W_delta_down.dtype != RILL_ABSENT,
                                     .real_size = f64 ? sizeof(double) : sizeof(float),
                                     .channels = p->channels,
                                     .states = p->states,
                                     .rank = p->rank};
    l.scan = (rl_s6_back){.forward = scan_of(kernels, p),
                          .dh_final = p->dh_final,
                          .dh_init = p->dh_init,
                          .has_dy = p->dy.data != NULL,
                          .parts = rl_back_parts(p->sequences, steps, p->states),
                          .threads = threads};
    rill_status status = rl_projections_plan(context, &l.projections, &l.forward, true);
    if (status != RILL_OK) return status;
    rl_back_cut(&l.scan, reproducible);
    rl_layer_cut(&l, bytes);
    l.scan.longest = rl_least(rl_longest_sequence(&p->offsets, p->sequences, p->length), l.most);
    if ((status = rl_back_plan(context, &l.scan)) != RILL_OK) return status;
    if ((status = rl_layer_take(context, &l, threads)) != RILL_OK) return status;
#pragma omp parallel num_threads(threads)
    run(&l);
    return RILL_OK;
}

rill_status rl_cpu_selective_layer_backward(rill_context *context, const rl_selective_layer_backward_problem *p)
{
    return rl_layer_back_within(context, p, RL_LAYER_BACK_BYTES);
}
