/* The memory of the selective layer's gradients. */
#include "counts.h"
#include "product_little.h"
#include "s6_back_args.h"
#include "selective_layer_back.h"

/* Of what grows with a slab's rows, the scan's own scratch among it. */
static int64_t row_bytes(const rl_layer_gradients *l)
{
    const rl_layer_projections *p = &l->projections;
    const int64_t channels = l->problem->channels, states = l->problem->states;
    const bool f64 = p->accumulated == RILL_F64;
    const int64_t blocks = rl_quotient_up(channels, f64 ? RL_S6_BACK_CHANNELS_F64 : RL_S6_BACK_CHANNELS);
    int64_t numbers = 2 * (p->first_row + p->delta_row) + rl_quotient_up(channels * (states + 1), RL_S6_BACK_STEPS);
    if (l->owns_dx) numbers += channels;
    if (blocks > 1) numbers += blocks * 2 * states;
    return numbers * (int64_t)rill_dtype_size(p->accumulated);
}

static void cut(rl_layer_gradients *l, int64_t bytes)
{
    l->slab = rl_layer_slab_of(&l->forward, bytes / row_bytes(l));
    l->slabs = l->slab.steps > 0 ? rl_quotient_up(l->problem->length, l->slab.steps) : 1;
    l->several = l->slabs > 1 || l->slab.batch < l->problem->batch;
}

rl_step_sum rl_layer_sum_of_x(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    return (rl_step_sum){.a = rl_layer_part(&l->problem->x, slab),
                         .g = l->g,
                         .columns = l->projections.columns,
                         .g_row = l->projections.first_row,
                         .total = l->sums,
                         .parts = l->parts,
                         .adds = l->begun,
                         .rough = l->rough};
}

rl_step_sum rl_layer_sum_of_low(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    const rl_layer_projections *p = &l->projections;
    return (rl_step_sum){.a = rl_layer_projections_rows(p, slab, p->first, 0, p->first_row, l->problem->rank),
                         .g = l->ddelta,
                         .columns = l->problem->channels,
                         .g_row = p->delta_row,
                         .total = l->low_sums,
                         .parts = l->parts,
                         .adds = l->begun,
                         .rough = l->rough};
}

static rill_status take_sums(rl_layer_gradients *l)
{
    const rl_layer_projections *p = &l->projections;
    const int64_t channels = l->problem->channels;
    size_t parts = 0;
    rill_status status = RILL_OK;
    if (l->weighs && !l->little) {
        const rl_step_sum sum = rl_layer_sum_of_x(l, &l->slab);
        parts = rl_cuda_step_sum_bytes(l->context, &sum);
        status = rl_layer_projections_block(p, p->columns * channels, &l->sums);
    }
    if (l->weighs && !l->little && p->low_rank) {
        const rl_step_sum sum = rl_layer_sum_of_low(l, &l->slab);
        const size_t bytes = rl_cuda_step_sum_bytes(l->context, &sum);
        parts = bytes > parts ? bytes : parts;
        if (status == RILL_OK) status = rl_layer_projections_block(p, channels * l->problem->rank, &l->low_sums);
    }
    if (status == RILL_OK) status = rl_workspace_take(l->context, parts, &l->parts);
    if (status == RILL_OK) status = rl_layer_projections_block(p, rl_layer_parameters(l), &l->parameters);
    l->addends = l->parameters;
    if (status == RILL_OK && l->several) status = rl_layer_projections_block(p, rl_layer_parameters(l), &l->addends);
    return status;
}

static rill_status take_scratch(rl_layer_gradients *l)
{
    const rl_layer_projections *p = &l->projections;
    const int64_t channels = l->problem->channels, rows = l->slab.batch * l->slab.steps;
    const int64_t matrix = channels * l->problem->states;
    rill_status status = rl_layer_projections_take(&l->projections, &l->slab);
    const bool turns = l->projects && !l->little;
    if (status == RILL_OK && turns) status = rl_layer_projections_block(p, channels * p->columns, &l->turned);
    if (status == RILL_OK && turns && p->low_rank)
        status = rl_layer_projections_block(p, channels * l->problem->rank, &l->turned_up);
    if (status == RILL_OK && (l->projects || l->slabs > 1))
        status = rl_layer_projections_block(p, rows * p->first_row, &l->g);
    if (status == RILL_OK && (l->projects || l->slabs > 1))
        status = rl_layer_projections_block(p, rows * p->delta_row, &l->ddelta);
    if (status == RILL_OK && l->owns_dx) status = rl_layer_projections_block(p, rows * channels, &l->dx);
    if (status == RILL_OK) status = take_sums(l);
    if (status == RILL_OK) status = rl_layer_projections_block(p, (l->slabs - 1) * matrix, &l->states);
    for (int i = 0; i < 2 && status == RILL_OK && l->slabs > 1; i++)
        status = rl_layer_projections_block(p, matrix, &l->G[i]);
    return status;
}

/* Of products that sum over steps too. */
static bool all_little(const rl_layer_gradients *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const int64_t rows = p->batch * p->length, columns = l->projections.columns, channels = p->channels;
    if (rows == 0 || p->sequences == 0 || l->context->options.reproducible) return false;
    const bool low = rl_is_little(channels, p->rank, rows) && rl_is_little(rows, p->rank, channels);
    return rl_is_little(columns, channels, rows) && rl_is_little(rows, channels, columns) &&
           (low || !l->projections.low_rank);
}

rill_status rl_layer_gradients_plan(rl_layer_gradients *l, int64_t bytes)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    rill_status status = rl_layer_projections_plan(l->context, &l->forward, &l->projections);
    l->weighs = p->dW_delta.data || p->dW_delta_down.data || p->dW_B.data || p->dW_C.data;
    l->projects = l->weighs || p->dx.data;
    l->rough = rill_dtype_size(p->x.dtype) == 2;
    l->owns_dx = p->dx.data && p->dx.dtype != l->projections.accumulated;
    cut(l, bytes);
    l->little = !l->several && all_little(l);
    return status == RILL_OK ? take_scratch(l) : status;
}
