#include "layer_projections.h"

#include "counts.h"
#include "cublas.h"
#include "product.h"
#include "s6_args.h"

enum { ROW_ALIGNMENT = 4 }; /* elements: rows of scratch begin where the scan can load four at once */

static rill_tensor slice(const rill_tensor *tensor, int axis, int64_t start, int64_t count)
{
    rill_tensor part = *tensor;
    if (!tensor->data) return part;
    part.data = (char *)tensor->data + start * tensor->stride[axis] * (int64_t)rill_dtype_size(tensor->dtype);
    part.shape[axis] = count;
    return part;
}

rill_tensor rl_layer_part(const rill_tensor *tensor, const rl_layer_slab *slab)
{
    rill_tensor rows = slice(tensor, 0, slab->batch0, slab->batch);
    return slice(&rows, 1, slab->step0, slab->steps);
}

rill_tensor rl_layer_states(const rill_tensor *tensor, const rl_layer_slab *slab)
{
    return slice(tensor, 0, slab->batch0, slab->batch);
}

rl_layer_slab rl_layer_slab_of(const rl_selective_layer_problem *problem, int64_t most_rows)
{
    rl_layer_slab slab = {.batch = problem->batch, .steps = problem->length};
    const int64_t rows = rl_most(most_rows, RL_S6_STEPS);
    if (problem->offsets.data) return slab;
    if (slab.steps > rows) {
        slab.steps = rows / RL_S6_STEPS * RL_S6_STEPS;
        slab.batch = 1;
    } else if (slab.steps > 0 && rows / slab.steps < slab.batch) {
        slab.batch = rl_quotient_up(slab.batch, rl_quotient_up(slab.batch, rows / slab.steps)); /* of equal size */
    }
    return slab;
}

rl_layer_slab rl_layer_slab_at(const rl_selective_layer_problem *problem, int64_t batch0, int64_t batch,
                               int64_t most_steps, int64_t k)
{
    const int64_t before = k * most_steps, steps = rl_least(most_steps, problem->length - before);
    return (rl_layer_slab){batch0, batch, problem->reverse ? problem->length - before - steps : before, steps};
}

/* Whether the first product is one of 16-bit operands. */
static bool all_16_bit(const rl_selective_layer_problem *p)
{
    rill_dtype down = p->W_delta_down.dtype == RILL_ABSENT ? p->W_delta.dtype : p->W_delta_down.dtype;
    return rill_dtype_size(p->x.dtype) == 2 && down == p->x.dtype && p->W_B.dtype == p->x.dtype &&
           p->W_C.dtype == p->x.dtype;
}

rill_status rl_layer_projections_plan(rill_context *context, const rl_selective_layer_problem *problem,
                                      rl_layer_projections *p)
{
    const int64_t rows = problem->batch * problem->length, channels = problem->channels;
    *p = (rl_layer_projections){.context = context, .problem = problem};
    p->low_rank = problem->W_delta_down.dtype != RILL_ABSENT;
    p->delta_columns = p->low_rank ? problem->rank : channels;
    p->columns = p->delta_columns + 2 * problem->states;
    p->exact = all_16_bit(problem) ? problem->x.dtype : RILL_ABSENT;
    p->up_exact = rill_dtype_size(problem->W_delta.dtype) == 2 ? problem->W_delta.dtype : RILL_ABSENT;
    p->blas = p->exact != RILL_ABSENT && !context->options.reproducible &&
              !rl_cuda_product_is_brief(context, rows, p->columns, channels);
    rill_status status = p->blas ? rl_cublas_open(context) : RILL_OK;
    p->blas = p->blas && rl_cuda_state_of(context)->cublas;
    p->direct = !p->blas && rows > 0 &&
                rl_cuda_product_takes(context, problem->x.dtype, p->exact, rows, p->columns, channels);
    p->accumulated = problem->x.dtype == RILL_F64 ? RILL_F64 : RILL_F32;
    p->multiplied = p->blas ? problem->x.dtype : p->accumulated;
    p->up_direct = rl_cuda_product_takes(context, p->accumulated, p->up_exact, rows, channels, problem->rank);
    p->first_row = rl_quotient_up(p->columns, ROW_ALIGNMENT) * ROW_ALIGNMENT;
    p->delta_row = p->low_rank ? rl_quotient_up(channels, ROW_ALIGNMENT) * ROW_ALIGNMENT : 0;
    return status;
}

/* x as rows of one stride, as cuBLAS wants them; false where it does not lie so. */
static bool uniform_rows(const rill_tensor *x, int64_t *row)
{
    int64_t batch = x->shape[0], length = x->shape[1], inner = x->shape[2];
    *row = batch == 1 && length == 1 ? inner : length > 1 ? x->stride[1] : x->stride[0];
    if (batch > 1 && length > 1 && x->stride[0] != length * x->stride[1]) return false;
    return (inner == 1 || x->stride[2] == 1) && *row >= inner && *row <= INT32_MAX;
}

static bool needs_packing(const rl_layer_projections *p, const rl_layer_slab *slab)
{
    int64_t row;
    rill_tensor x = rl_layer_part(&p->problem->x, slab);
    return p->blas && !uniform_rows(&x, &row);
}

static rill_status take(const rl_layer_projections *p, int64_t elements, rill_dtype dtype, void **block)
{
    return rl_workspace_take(p->context, (size_t)elements * rill_dtype_size(dtype), block);
}

rill_status rl_layer_projections_block(const rl_layer_projections *p, int64_t elements, void **block)
{
    return take(p, elements, p->accumulated, block);
}

rill_status rl_layer_projections_take(rl_layer_projections *p, const rl_layer_slab *slab)
{
    const rl_selective_layer_problem *of = p->problem;
    const int64_t rows = slab->batch * slab->steps;
    rill_status status = RILL_OK;
    if (!p->direct) status = take(p, p->columns * of->channels, p->multiplied, &p->weights);
    if (status == RILL_OK) status = rl_layer_projections_block(p, of->channels * of->states, &p->A);
    if (status == RILL_OK) status = rl_layer_projections_block(p, rows * p->first_row, &p->first);
    if (status == RILL_OK && p->low_rank)
        status = rl_layer_projections_block(p, of->channels * of->rank, &p->up_weights);
    if (status == RILL_OK && p->low_rank) status = rl_layer_projections_block(p, rows * p->delta_row, &p->delta);
    if (status == RILL_OK && needs_packing(p, slab)) status = take(p, rows * of->channels, p->multiplied, &p->x);
    if (status == RILL_OK && p->blas) status = rl_workspace_take(p->context, rl_cublas_scratch_bytes(), &p->scratch);
    return status;
}

/* The weights of the first product in the order of its columns. */
static void list_weights(const rl_layer_projections *p, rill_tensor *weights)
{
    weights[0] = p->low_rank ? p->problem->W_delta_down : p->problem->W_delta;
    weights[1] = p->problem->W_B;
    weights[2] = p->problem->W_C;
}

rill_status rl_layer_projections_prepare(rl_layer_projections *p, const rl_gather_job *more, int count)
{
    const rl_selective_layer_problem *of = p->problem;
    rl_gather_job jobs[RL_GATHER_JOBS];
    rill_tensor weights[3];
    char *at = (char *)p->weights;
    int jobs_count = 0;
    list_weights(p, weights);
    for (int k = 0; k < 3 && !p->direct; k++) {
        const int64_t rows = weights[k].shape[0];
        jobs[jobs_count++] = (rl_gather_job){
            .destination = rill_tensor_2d_on(RILL_CUDA, at, p->multiplied, rows, of->channels), .source = weights[k]};
        at += rows * of->channels * (int64_t)rill_dtype_size(p->multiplied);
    }
    if (!p->direct)
        jobs[jobs_count++] = (rl_gather_job){
            .destination = rill_tensor_2d_on(RILL_CUDA, p->A, p->accumulated, of->channels, of->states),
            .source = of->A_log,
            .decay = true};
    if (p->low_rank && !p->up_direct)
        jobs[jobs_count++] = (rl_gather_job){
            .destination = rill_tensor_2d_on(RILL_CUDA, p->up_weights, p->accumulated, of->channels, of->rank),
            .source = of->W_delta};
    for (int k = 0; k < count; k++) jobs[jobs_count++] = more[k];
    rill_status status = p->blas ? rl_cublas_begin(p->context, p->scratch) : RILL_OK;
    return status == RILL_OK ? rl_cuda_gather(p->context, jobs, jobs_count) : status;
}

rill_tensor rl_layer_projections_rows(const rl_layer_projections *p, const rl_layer_slab *slab, void *data,
                                      int64_t column, int64_t row, int64_t columns)
{
    int64_t shape[] = {slab->batch, slab->steps, columns}, stride[] = {slab->steps * row, row, 1};
    char *at = (char *)data + column * (int64_t)rill_dtype_size(p->accumulated);
    return rill_tensor_view(RILL_CUDA, at, p->accumulated, 3, shape, stride);
}

/* [batch, steps, states] as the scan's [batch, steps, 1 group, states]. */
static rill_tensor with_group(rill_tensor view)
{
    int64_t shape[] = {view.shape[0], view.shape[1], 1, view.shape[2]};
    int64_t stride[] = {view.stride[0], view.stride[1], 0, view.stride[2]};
    return rill_tensor_view(RILL_CUDA, view.data, view.dtype, 4, shape, stride);
}

rl_layer_projected rl_layer_projections_views(const rl_layer_projections *p, const rl_layer_slab *slab, void *first,
                                              void *delta)
{
    const int64_t states = p->problem->states, row = p->first_row;
    rl_layer_projected views = {
        .low = rl_layer_projections_rows(p, slab, first, 0, row, p->delta_columns),
        .B = with_group(rl_layer_projections_rows(p, slab, first, p->delta_columns, row, states)),
        .C = with_group(rl_layer_projections_rows(p, slab, first, p->delta_columns + states, row, states)),
    };
    views.delta =
        p->low_rank ? rl_layer_projections_rows(p, slab, delta, 0, p->delta_row, p->problem->channels) : views.low;
    return views;
}

static rill_status multiply_16_bit(rl_layer_projections *p, const rill_tensor *x)
{
    rill_tensor rows = *x;
    rill_status status = RILL_OK;
    int64_t count = x->shape[0] * x->shape[1], row = 0;
    if (p->x) {
        rows = rill_tensor_3d_on(RILL_CUDA, p->x, p->multiplied, x->shape[0], x->shape[1], x->shape[2]);
        rl_gather_job job = {.destination = rows, .source = *x};
        status = rl_cuda_gather(p->context, &job, 1);
    }
    if (status != RILL_OK || count == 0 || p->columns == 0) return status;
    uniform_rows(&rows, &row); /* they are, now */
    return rl_cublas_product(p->context, p->multiplied, count, p->columns, rows.shape[2], rows.data, row, p->weights,
                             rows.shape[2], p->first, p->first_row);
}

static rill_status multiply_x(const rl_layer_projections *p, const rl_layer_slab *slab)
{
    rl_product product = {.a = rl_layer_part(&p->problem->x, slab),
                          .out = rl_layer_projections_rows(p, slab, p->first, 0, p->first_row, p->columns),
                          .exact = p->exact};
    if (p->direct) {
        list_weights(p, product.w);
        product.A_log = p->problem->A_log;
        product.A = p->A;
    } else {
        product.w[0] = rill_tensor_2d_on(RILL_CUDA, p->weights, p->accumulated, p->columns, p->problem->channels);
    }
    return rl_cuda_product(p->context, &product);
}

static rill_status multiply_low(const rl_layer_projections *p, const rl_layer_slab *slab)
{
    const rl_selective_layer_problem *of = p->problem;
    const rl_layer_projected views = rl_layer_projections_views(p, slab, p->first, p->delta);
    rl_product product = {
        .a = views.low, .out = views.delta, .rough = rill_dtype_size(of->x.dtype) == 2, .exact = p->up_exact};
    product.w[0] = p->up_direct ? of->W_delta
                                : rill_tensor_2d_on(RILL_CUDA, p->up_weights, p->accumulated, of->channels, of->rank);
    return rl_cuda_product(p->context, &product);
}

rill_status rl_layer_projections_run(rl_layer_projections *p, const rl_layer_slab *slab)
{
    const rill_tensor x = rl_layer_part(&p->problem->x, slab);
    rill_status status = p->blas ? multiply_16_bit(p, &x) : multiply_x(p, slab);
    return status == RILL_OK && p->low_rank ? multiply_low(p, slab) : status;
}
