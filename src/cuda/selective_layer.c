/*
 * The selective layer: projections into float32 (float64) scratch, then the selective scan on it.  Scratch is
 * bounded: the rows go in slabs of whole sequences, or where one alone is too long, in slabs of its steps with the
 * states handed from slab to slab.
 */
#include "counts.h"
#include "device.h"
#include "layer_projections.h"

static const int64_t SLAB_BYTES = (int64_t)2 << 30;

typedef struct layer {
    rill_context *context;
    const rl_selective_layer_problem *problem;
    rl_layer_projections projections;
    rl_layer_slab slab; /* the first and largest */
    void *carry;
} layer;

static rill_status plan(layer *l)
{
    rl_layer_projections *p = &l->projections;
    rill_status status = rl_layer_projections_plan(l->context, l->problem, p);
    const int64_t row_bytes =
        (p->first_row + p->delta_row + l->problem->channels) * (int64_t)rill_dtype_size(p->accumulated);
    l->slab = rl_layer_slab_of(l->problem, SLAB_BYTES / row_bytes);
    if (status == RILL_OK) status = rl_layer_projections_take(p, &l->slab);
    if (status == RILL_OK && l->slab.steps < l->problem->length)
        status = rl_layer_projections_block(p, l->problem->channels * l->problem->states, &l->carry);
    return status;
}

/* Where a slab's states come from and go to: the caller's at a sequence's ends, else the carry. */
static void hand_states(const layer *l, rl_selective_scan_problem *scan, const rl_layer_slab *slab)
{
    const rl_selective_layer_problem *p = l->problem;
    const bool first = slab->step0 == 0, last = slab->step0 + slab->steps == p->length, packed = p->offsets.data;
    const bool begins = p->reverse ? last : first, ends = p->reverse ? first : last;
    rill_tensor carry = rill_tensor_3d_on(RILL_CUDA, l->carry, l->projections.accumulated, 1, p->channels, p->states);
    scan->h_init = !begins ? carry : packed ? p->h_init : rl_layer_states(&p->h_init, slab);
    scan->h_final = !ends ? carry : packed ? p->h_final : rl_layer_states(&p->h_final, slab);
}

static rill_status run_slab(layer *l, const rl_layer_slab *slab)
{
    const rl_selective_layer_problem *p = l->problem;
    const rl_layer_projected views =
        rl_layer_projections_views(&l->projections, slab, l->projections.first, l->projections.delta);
    rl_selective_scan_problem scan = {
        .batch = slab->batch,
        .length = slab->steps,
        .channels = p->channels,
        .states = p->states,
        .groups = 1,
        .sequences = p->offsets.data ? p->sequences : slab->batch,
        .x = rl_layer_part(&p->x, slab),
        .delta = views.delta,
        .A = rill_tensor_2d_on(RILL_CUDA, l->projections.A, l->projections.accumulated, p->channels, p->states),
        .B = views.B,
        .C = views.C,
        .D = p->D,
        .z = rl_layer_part(&p->z, slab),
        .delta_bias = p->b_delta,
        .offsets = p->offsets,
        .y = rl_layer_part(&p->y, slab),
        .delta_softplus = true,
        .reverse = p->reverse,
        .delta_min = p->delta_min,
        .delta_max = p->delta_max,
    };
    rill_status status = rl_layer_projections_run(&l->projections, slab);
    hand_states(l, &scan, slab);
    return status == RILL_OK ? rl_cuda_selective_scan(l->context, &scan) : status;
}

/* The slabs of some sequences, in the order in which they are run. */
static rill_status run_sequences(layer *l, int64_t batch0, int64_t batch)
{
    int64_t length = l->problem->length, each = l->slab.steps;
    int64_t slabs = each > 0 ? rl_quotient_up(length, each) : 1;
    const rl_workspace_place here = rl_workspace_here(l->context); /* the scans' scratch is every slab's */
    rill_status status = RILL_OK;
    for (int64_t k = 0; k < slabs && status == RILL_OK; k++) {
        const rl_layer_slab slab = rl_layer_slab_at(l->problem, batch0, batch, each, k);
        status = run_slab(l, &slab);
        rl_workspace_back_to(l->context, here);
    }
    return status;
}

static rill_status run(layer *l)
{
    const int64_t batch = l->problem->batch;
    rill_status status = plan(l);
    if (status == RILL_OK) status = rl_layer_projections_prepare(&l->projections, NULL, 0);
    for (int64_t at = 0; at < batch && status == RILL_OK; at += l->slab.batch)
        status = run_sequences(l, at, rl_least(l->slab.batch, batch - at));
    return status;
}

rill_status rl_cuda_selective_layer(rill_context *context, const rl_selective_layer_problem *problem)
{
    if (problem->channels == 0 || problem->sequences == 0) return RILL_OK;
    layer l = {.context = context, .problem = problem};
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = run(&l);
    rl_cuda_leave(context, &scope);
    return status;
}
