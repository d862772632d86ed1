/*
 * The gradients of the selective layer.  Rows go in slabs, as in the forward call; in a slab
 *
 *     1. the projections are computed again,
 *     2. the selective scan's backward call gives the gradients of what they are, rows as the projections' own:
 *        g = [ddelta | dB | dC], and the part of dx that does not come through them,
 *     3. with a low rank   dW_delta += Σ ddeltaᵀ low,   and   g = [ddelta W_delta | dB | dC],
 *     4. [dW_delta(_down); dW_B; dW_C] += Σ gᵀ x        and   dx += g W, the weights one below the other.
 *
 * A sequence that is too long for a slab is cut along time: first a run forward keeps the states between its slabs,
 * then they are taken from the last to the first, and the states' gradients handed on.  Sums over steps are taken in
 * the order of slabs, in the accumulated type, and rounded once in the end.
 */
#include "counts.h"
#include "device.h"
#include "layer_slabs.h"
#include "selective_layer_back.h"

static const int64_t SLAB_BYTES = (int64_t)1 << 30; /* of a slab's rows; less where x is small, but not below */
static const int64_t FREE_BYTES = (int64_t)64 << 20;

static rl_selective_layer_problem forward_of(const rl_selective_layer_backward_problem *p)
{
    return (rl_selective_layer_problem){
        .batch = p->batch,
        .length = p->length,
        .channels = p->channels,
        .states = p->states,
        .rank = p->rank,
        .sequences = p->sequences,
        .x = p->x,
        .W_delta = p->W_delta,
        .W_delta_down = p->W_delta_down,
        .W_B = p->W_B,
        .W_C = p->W_C,
        .A_log = p->A_log,
        .offsets = p->offsets,
        .reverse = p->reverse,
    };
}

/* The weights, and again turned, in the accumulated type. */
static rill_status prepare_weights(rl_layer_gradients *l)
{
    rl_layer_projections *of = &l->projections;
    const rl_selective_layer_backward_problem *p = l->problem;
    const rill_tensor *weights[] = {of->low_rank ? &p->W_delta_down : &p->W_delta, &p->W_B, &p->W_C};
    const int64_t rows[] = {of->delta_columns, p->states, p->states};
    const int64_t stride[] = {1, of->columns}, up_shape[] = {p->channels, p->rank}, up_stride[] = {1, p->channels};
    rl_gather_job jobs[RL_LAYER_JOBS];
    char *at = l->turned;
    for (int k = 0; k < 3; k++) {
        const int64_t shape[] = {rows[k], p->channels};
        jobs[k] = (rl_gather_job){.destination = rill_tensor_view(RILL_CUDA, at, of->accumulated, 2, shape, stride),
                                  .source = *weights[k]};
        at += rows[k] * (int64_t)rill_dtype_size(of->accumulated);
    }
    jobs[3] = (rl_gather_job){.destination =
                                  rill_tensor_view(RILL_CUDA, l->turned_up, of->accumulated, 2, up_shape, up_stride),
                              .source = p->W_delta};
    return rl_layer_projections_prepare(of, jobs, !l->projects || l->little ? 0 : of->low_rank ? 4 : 3);
}

/* Slabs */

static rill_tensor between(const rl_layer_gradients *l, void *states)
{
    return rill_tensor_3d_on(RILL_CUDA, states, l->projections.accumulated, 1, l->problem->channels,
                             l->problem->states);
}

/* The states after the k-th slab of its sequence. */
static rill_tensor states_after(const rl_layer_gradients *l, int64_t k)
{
    const int64_t bytes =
        l->problem->channels * l->problem->states * (int64_t)rill_dtype_size(l->projections.accumulated);
    return between(l, (char *)l->states + k * bytes);
}

rill_tensor rl_layer_parameter(const rl_layer_gradients *l, const rill_tensor *wanted, void *numbers, int64_t first)
{
    const int64_t channels = l->problem->channels;
    const rill_dtype dtype = l->projections.accumulated;
    char *at = (char *)numbers + first * (int64_t)rill_dtype_size(dtype);
    if (!wanted->data) return (rill_tensor){0};
    return wanted->rank == 2 ? rill_tensor_2d_on(RILL_CUDA, at, dtype, channels, l->problem->states)
                             : rill_tensor_1d_on(RILL_CUDA, at, dtype, channels);
}

static rill_tensor states_of(const rl_layer_gradients *l, const rill_tensor *states, const rl_layer_slab *slab)
{
    return l->problem->offsets.data ? *states : rl_layer_states(states, slab);
}

/* Runs a slab forward for the states after it.  The outputs go where gradients will be. */
static rill_status keep_states(rl_layer_gradients *l, const rl_layer_slab *slab, int64_t k)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_layer_projections *of = &l->projections;
    const rl_layer_projected views = rl_layer_projections_views(of, slab, of->first, of->delta);
    rl_selective_scan_problem scan = {
        .batch = slab->batch,
        .length = slab->steps,
        .channels = p->channels,
        .states = p->states,
        .groups = 1,
        .sequences = slab->batch,
        .x = rl_layer_part(&p->x, slab),
        .delta = views.delta,
        .A = rill_tensor_2d_on(RILL_CUDA, of->A, of->accumulated, p->channels, p->states),
        .B = views.B,
        .C = views.C,
        .delta_bias = p->b_delta,
        .h_init = k == 0 ? states_of(l, &p->h_init, slab) : states_after(l, k - 1),
        .y = rill_tensor_3d_on(RILL_CUDA, of->low_rank ? l->ddelta : l->g, p->x.dtype, slab->batch, slab->steps,
                               p->channels),
        .h_final = states_after(l, k),
        .delta_softplus = true,
        .reverse = p->reverse,
        .delta_min = p->delta_min,
        .delta_max = p->delta_max,
    };
    rill_status status = rl_layer_projections_run(&l->projections, slab);
    return status == RILL_OK ? rl_cuda_selective_scan(l->context, &scan) : status;
}

rill_tensor rl_layer_own_dx(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    if (!l->owns_dx) return rl_layer_part(&l->problem->dx, slab);
    return rl_layer_projections_rows(&l->projections, slab, l->dx, 0, l->problem->channels, l->problem->channels);
}

static rill_status scan_back(rl_layer_gradients *l, const rl_layer_slab *slab, int64_t k)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_layer_projections *of = &l->projections;
    const int64_t matrix = p->channels * p->states;
    const rl_layer_projected views = rl_layer_projections_views(of, slab, of->first, of->delta);
    const rl_layer_projected gradients = rl_layer_projections_views(of, slab, l->g, l->ddelta);
    const rill_tensor none = {0};
    const bool first = k == 0, last = k == l->slabs - 1;
    rl_selective_scan_backward_problem scan = {
        .batch = slab->batch,
        .length = slab->steps,
        .channels = p->channels,
        .states = p->states,
        .groups = 1,
        .sequences = p->offsets.data ? p->sequences : slab->batch,
        .x = rl_layer_part(&p->x, slab),
        .delta = views.delta,
        .A = rill_tensor_2d_on(RILL_CUDA, of->A, of->accumulated, p->channels, p->states),
        .B = views.B,
        .C = views.C,
        .D = p->D,
        .z = rl_layer_part(&p->z, slab),
        .delta_bias = p->b_delta,
        .h_init = first ? states_of(l, &p->h_init, slab) : states_after(l, k - 1),
        .offsets = p->offsets,
        .dy = rl_layer_part(&p->dy, slab),
        .dh_final = last ? states_of(l, &p->dh_final, slab) : between(l, l->G[(k + 1) % 2]),
        .dx = p->dx.data ? rl_layer_own_dx(l, slab) : none,
        .ddelta = l->projects ? gradients.delta : none,
        .dA = rl_layer_parameter(l, &p->dA_log, l->addends, 0),
        .dD = rl_layer_parameter(l, &p->dD, l->addends, matrix),
        .ddelta_bias = rl_layer_parameter(l, &p->db_delta, l->addends, matrix + p->channels),
        .dB = l->projects ? gradients.B : none,
        .dC = l->projects ? gradients.C : none,
        .dz = rl_layer_part(&p->dz, slab),
        .dh_init = first ? states_of(l, &p->dh_init, slab) : between(l, l->G[k % 2]),
        .delta_softplus = true,
        .reverse = p->reverse,
        .delta_min = p->delta_min,
        .delta_max = p->delta_max,
    };
    return rl_cuda_selective_scan_backward_but_sums(l->context, &scan, l->little ? &l->left : NULL);
}

static rill_status add_parameters(const rl_layer_gradients *l)
{
    return l->several ? rl_cuda_add_part(l->context, l->projections.accumulated, l->parameters, l->addends,
                                         rl_layer_parameters(l), l->begun)
                      : RILL_OK;
}

/* Through the low rank: its weight's gradient, and its own. */
static rill_status low_back(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    const rl_layer_projections *p = &l->projections;
    const rl_layer_projected gradients = rl_layer_projections_views(p, slab, l->g, l->ddelta);
    const rl_step_sum sum = rl_layer_sum_of_low(l, slab);
    const rl_product low = {
        .a = gradients.delta,
        .w = {rill_tensor_2d_on(RILL_CUDA, l->turned_up, p->accumulated, l->problem->rank, l->problem->channels)},
        .out = gradients.low,
        .rough = l->rough,
        .exact = p->up_exact};
    rill_status status = l->problem->dW_delta.data ? rl_cuda_sum_steps(l->context, &sum) : RILL_OK;
    if (status == RILL_OK && (l->problem->dx.data || l->weighs)) /* sums over x take it with the others */
        status = rl_cuda_product(l->context, &low);
    return status;
}

static rill_status project_back(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    const rl_layer_projections *p = &l->projections;
    const rl_step_sum sum = rl_layer_sum_of_x(l, slab);
    const rl_product dx = {
        .a = rl_layer_projections_rows(p, slab, l->g, 0, p->first_row, p->columns),
        .w = {rill_tensor_2d_on(RILL_CUDA, l->turned, p->accumulated, l->problem->channels, p->columns)},
        .out = rl_layer_part(&l->problem->dx, slab),
        .add = rl_layer_own_dx(l, slab),
        .rough = l->rough,
        .exact = p->exact};
    rill_status status = p->low_rank ? low_back(l, slab) : RILL_OK;
    if (status == RILL_OK && l->weighs) status = rl_cuda_sum_steps(l->context, &sum);
    return status == RILL_OK && l->problem->dx.data ? rl_cuda_product(l->context, &dx) : status;
}

static rill_status run_back(rl_layer_gradients *l, const rl_layer_slab *slab, int64_t k)
{
    rill_status status = rl_layer_projections_run(&l->projections, slab);
    if (status == RILL_OK) status = scan_back(l, slab, k);
    if (status == RILL_OK && l->little) return rl_layer_little_back(l, slab);
    if (status == RILL_OK) status = add_parameters(l);
    if (status == RILL_OK && l->projects) status = project_back(l, slab);
    l->begun = true;
    return status;
}

static rill_status run_sequences(rl_layer_gradients *l, int64_t batch0, int64_t batch)
{
    const rl_workspace_place here = rl_workspace_here(l->context); /* the scans' scratch is every slab's */
    rill_status status = RILL_OK;
    for (int64_t k = 0; k < l->slabs - 1 && status == RILL_OK; k++) {
        const rl_layer_slab slab = rl_layer_slab_at(&l->forward, batch0, batch, l->slab.steps, k);
        status = keep_states(l, &slab, k);
        rl_workspace_back_to(l->context, here);
    }
    for (int64_t k = l->slabs; k-- > 0 && status == RILL_OK;) {
        const rl_layer_slab slab = rl_layer_slab_at(&l->forward, batch0, batch, l->slab.steps, k);
        status = run_back(l, &slab, k);
        rl_workspace_back_to(l->context, here);
    }
    return status;
}

/* Results */

static rill_tensor sums_view(const rl_layer_gradients *l, void *sums, int64_t row, int64_t rows, int64_t columns)
{
    const rill_dtype dtype = l->projections.accumulated;
    char *at = (char *)sums + row * columns * (int64_t)rill_dtype_size(dtype);
    return rill_tensor_2d_on(RILL_CUDA, at, dtype, rows, columns);
}

static rill_status store_sums(const rl_layer_gradients *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_layer_projections *of = &l->projections;
    const int64_t matrix = p->channels * p->states, delta = of->delta_columns;
    const rl_gather_job all[] = {
        {.destination = p->dA_log, .source = rl_layer_parameter(l, &p->dA_log, l->parameters, 0), .factor = of->A},
        {.destination = p->dD, .source = rl_layer_parameter(l, &p->dD, l->parameters, matrix)},
        {.destination = p->db_delta,
         .source = rl_layer_parameter(l, &p->db_delta, l->parameters, matrix + p->channels)},
        {.destination = of->low_rank ? p->dW_delta_down : p->dW_delta,
         .source = sums_view(l, l->sums, 0, delta, p->channels)},
        {.destination = p->dW_B, .source = sums_view(l, l->sums, delta, p->states, p->channels)},
        {.destination = p->dW_C, .source = sums_view(l, l->sums, delta + p->states, p->states, p->channels)},
        {.destination = of->low_rank ? p->dW_delta : (rill_tensor){0},
         .source = sums_view(l, l->low_sums, 0, p->channels, p->rank)},
    };
    rl_gather_job wanted[RL_GATHER_JOBS];
    int count = 0;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (all[k].destination.data) wanted[count++] = all[k];
    return rl_cuda_gather(l->context, wanted, count);
}

/* No slab has been run: there is no sequence. */
static rill_status clear_sums(const rl_layer_gradients *l)
{
    const rl_layer_projections *p = &l->projections;
    const size_t element = rill_dtype_size(p->accumulated), channels = (size_t)l->problem->channels;
    cudaStream_t stream = rl_cuda_state_of(l->context)->stream;
    cudaError_t error = cudaMemsetAsync(l->parameters, 0, (size_t)rl_layer_parameters(l) * element, stream);
    if (error == cudaSuccess && l->sums)
        error = cudaMemsetAsync(l->sums, 0, (size_t)p->columns * channels * element, stream);
    if (error == cudaSuccess && l->low_sums)
        error = cudaMemsetAsync(l->low_sums, 0, channels * (size_t)l->problem->rank * element, stream);
    return rl_cuda_check(l->context, error, "selective_layer_backward: clearing sums");
}

static rill_status run(rl_layer_gradients *l, int64_t bytes)
{
    const int64_t batch = l->problem->sequences == 0 ? 0 : l->problem->batch;
    rill_status status = rl_layer_gradients_plan(l, bytes);
    if (status == RILL_OK) status = prepare_weights(l);
    for (int64_t at = 0; at < batch && status == RILL_OK; at += l->slab.batch)
        status = run_sequences(l, at, rl_least(l->slab.batch, batch - at));
    if (status == RILL_OK && !l->begun && !l->little) status = clear_sums(l);
    return status == RILL_OK && !l->little ? store_sums(l) : status;
}

rill_status rl_cuda_layer_back_within(rill_context *context, const rl_selective_layer_backward_problem *problem,
                                      int64_t bytes)
{
    if (problem->channels == 0) return RILL_OK;
    rl_layer_gradients l = {.context = context, .problem = problem, .forward = forward_of(problem)};
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = run(&l, bytes);
    rl_cuda_leave(context, &scope);
    return status;
}

/* Slabs so large that all scratch is less than three times as large as x in the accumulated type. */
rill_status rl_cuda_selective_layer_backward(rill_context *context, const rl_selective_layer_backward_problem *p)
{
    const int64_t x = p->batch * p->length * p->channels * (p->x.dtype == RILL_F64 ? 8 : 4);
    return rl_cuda_layer_back_within(context, p, rl_least(SLAB_BYTES, rl_most(FREE_BYTES, x / 2 * 5)));
}
