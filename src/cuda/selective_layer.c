/*
 * The selective layer: products into float32 (float64) scratch, then the selective scan on it.
 *
 *     first[rows, :] = x [W_delta; W_B; W_C]ᵀ              delta, B, C are column ranges of first
 *     first[rows, :] = x [W_delta_down; W_B; W_C]ᵀ         and with a low rank  delta = first[:, :rank] W_deltaᵀ
 *
 * The stacked weights make it one product, so x is read once.  Scratch is bounded: the rows go in slabs of whole
 * sequences, or where one alone is too long, in slabs of its steps with the states handed from slab to slab.
 *
 * The products are rill's own (product.h), but for the first one of 16-bit x and weights, which is cuBLAS's for its
 * use of the tensor cores.  Not in reproducible mode: there a row's bits may depend on how many rows there are.
 */
#include "cublas.h"
#include "device.h"
#include "gather.h"
#include "product.h"
#include "s6_args.h"

enum { ROW_ALIGNMENT = 4 }; /* elements: rows of scratch begin where the scan can load four at once */

static const int64_t SLAB_BYTES = (int64_t)2 << 30;

typedef struct layer {
    rill_context *context;
    const rl_selective_layer_problem *problem;
    bool blas, low_rank;
    rill_dtype accumulated;       /* of the scratch: f64 or f32 */
    rill_dtype multiplied;        /* of the first product's operands */
    int64_t delta_columns;        /* of the first product: channels or rank */
    int64_t columns;              /* of the first product: those, B and C */
    int64_t first_row, delta_row; /* leading dimensions of the scratch */
    int64_t slab_batch, slab_length;
    void *weights, *up_weights, *A, *x, *first, *delta, *carry, *scratch;
} layer;

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static rill_tensor slice(const rill_tensor *tensor, int axis, int64_t start, int64_t count)
{
    rill_tensor part = *tensor;
    if (!tensor->data) return part;
    part.data = (char *)tensor->data + start * tensor->stride[axis] * (int64_t)rill_dtype_size(tensor->dtype);
    part.shape[axis] = count;
    return part;
}

static rill_tensor part_of(const rill_tensor *tensor, int64_t batch0, int64_t batch, int64_t step0, int64_t steps)
{
    rill_tensor rows = slice(tensor, 0, batch0, batch);
    return slice(&rows, 1, step0, steps);
}

/* Whether the first product is one of 16-bit operands. */
static bool all_16_bit(const rl_selective_layer_problem *p)
{
    rill_dtype down = p->W_delta_down.dtype == RILL_ABSENT ? p->W_delta.dtype : p->W_delta_down.dtype;
    return rill_dtype_size(p->x.dtype) == 2 && down == p->x.dtype && p->W_B.dtype == p->x.dtype &&
           p->W_C.dtype == p->x.dtype;
}

static layer plan(rill_context *context, const rl_selective_layer_problem *p, bool blas)
{
    layer l = {.context = context, .problem = p, .blas = blas};
    l.low_rank = p->W_delta_down.dtype != RILL_ABSENT;
    l.accumulated = p->x.dtype == RILL_F64 ? RILL_F64 : RILL_F32;
    l.multiplied = blas ? p->x.dtype : l.accumulated;
    l.delta_columns = l.low_rank ? p->rank : p->channels;
    l.columns = l.delta_columns + 2 * p->states;
    l.first_row = round_up(l.columns, ROW_ALIGNMENT);
    l.delta_row = l.low_rank ? round_up(p->channels, ROW_ALIGNMENT) : 0;
    int64_t row_bytes = (l.first_row + l.delta_row + p->channels) * (int64_t)rill_dtype_size(l.accumulated);
    int64_t rows = SLAB_BYTES / row_bytes;
    if (rows < RL_S6_STEPS) rows = RL_S6_STEPS;
    l.slab_length = p->length;
    l.slab_batch = p->batch;
    if (p->offsets.data) return l; /* packed: one slab, whose sequences may begin anywhere */
    if (p->length > rows) {
        l.slab_length = rows / RL_S6_STEPS * RL_S6_STEPS;
        l.slab_batch = 1;
    } else if (p->length > 0 && rows / p->length < p->batch) {
        l.slab_batch = rows / p->length;
    }
    return l;
}

/* x as rows of one stride, as cuBLAS wants them; false where it does not lie so. */
static bool uniform_rows(const rill_tensor *x, int64_t *row)
{
    int64_t batch = x->shape[0], length = x->shape[1], inner = x->shape[2];
    *row = batch == 1 && length == 1 ? inner : length > 1 ? x->stride[1] : x->stride[0];
    if (batch > 1 && length > 1 && x->stride[0] != length * x->stride[1]) return false;
    return (inner == 1 || x->stride[2] == 1) && *row >= inner && *row <= INT32_MAX;
}

static bool needs_packing(const layer *l)
{
    int64_t row;
    rill_tensor slab = part_of(&l->problem->x, 0, l->slab_batch, 0, l->slab_length);
    return l->blas && !uniform_rows(&slab, &row);
}

static rill_status take(layer *l, int64_t elements, rill_dtype dtype, void **block)
{
    return rl_workspace_take(l->context, (size_t)elements * rill_dtype_size(dtype), block);
}

static rill_status take_scratch(layer *l)
{
    const rl_selective_layer_problem *p = l->problem;
    int64_t rows = l->slab_batch * l->slab_length;
    rill_status status = take(l, l->columns * p->channels, l->multiplied, &l->weights);
    if (status == RILL_OK) status = take(l, p->channels * p->states, l->accumulated, &l->A);
    if (status == RILL_OK) status = take(l, rows * l->first_row, l->accumulated, &l->first);
    if (status == RILL_OK && l->low_rank) {
        status = take(l, p->channels * p->rank, l->accumulated, &l->up_weights);
        if (status == RILL_OK) status = take(l, rows * l->delta_row, l->accumulated, &l->delta);
    }
    if (status == RILL_OK && needs_packing(l)) status = take(l, rows * p->channels, l->multiplied, &l->x);
    if (status == RILL_OK && l->slab_length < p->length)
        status = take(l, p->channels * p->states, l->accumulated, &l->carry);
    if (status == RILL_OK && l->blas) status = rl_workspace_take(l->context, rl_cublas_scratch_bytes(), &l->scratch);
    return status;
}

/* Stacks the weights in the products' types, and makes A = -exp(A_log). */
static rill_status prepare_weights(layer *l)
{
    const rl_selective_layer_problem *p = l->problem;
    const rill_tensor *top = l->low_rank ? &p->W_delta_down : &p->W_delta;
    char *at = (char *)l->weights;
    int64_t row_bytes = p->channels * (int64_t)rill_dtype_size(l->multiplied);
    int64_t delta_bytes = l->delta_columns * row_bytes, state_bytes = p->states * row_bytes;
    rl_gather_job jobs[RL_GATHER_JOBS] = {
        {.destination = rill_tensor_2d_on(RILL_CUDA, at, l->multiplied, l->delta_columns, p->channels),
         .source = *top},
        {.destination = rill_tensor_2d_on(RILL_CUDA, at + delta_bytes, l->multiplied, p->states, p->channels),
         .source = p->W_B},
        {.destination =
             rill_tensor_2d_on(RILL_CUDA, at + delta_bytes + state_bytes, l->multiplied, p->states, p->channels),
         .source = p->W_C},
        {.destination = rill_tensor_2d_on(RILL_CUDA, l->A, l->accumulated, p->channels, p->states),
         .source = p->A_log,
         .decay = true},
        {.destination = rill_tensor_2d_on(RILL_CUDA, l->up_weights, l->accumulated, p->channels, p->rank),
         .source = p->W_delta},
    };
    return rl_cuda_gather(l->context, jobs, l->low_rank ? 5 : 4);
}

static rill_tensor scratch_view(const layer *l, void *data, int64_t column, int64_t row, const rill_tensor *x,
                                int64_t columns)
{
    int64_t shape[] = {x->shape[0], x->shape[1], columns}, stride[] = {x->shape[1] * row, row, 1};
    char *at = (char *)data + column * (int64_t)rill_dtype_size(l->accumulated);
    return rill_tensor_view(RILL_CUDA, at, l->accumulated, 3, shape, stride);
}

/* [batch, length, states] as the scan's [batch, length, 1 group, states]. */
static rill_tensor with_group(rill_tensor view)
{
    int64_t shape[] = {view.shape[0], view.shape[1], 1, view.shape[2]};
    int64_t stride[] = {view.stride[0], view.stride[1], 0, view.stride[2]};
    return rill_tensor_view(RILL_CUDA, view.data, view.dtype, 4, shape, stride);
}

static rill_status multiply_16_bit(layer *l, const rill_tensor *x)
{
    rill_tensor rows = *x;
    rill_status status = RILL_OK;
    int64_t count = x->shape[0] * x->shape[1], row = 0;
    if (l->x) {
        rows = rill_tensor_3d_on(RILL_CUDA, l->x, l->multiplied, x->shape[0], x->shape[1], x->shape[2]);
        rl_gather_job job = {.destination = rows, .source = *x};
        status = rl_cuda_gather(l->context, &job, 1);
    }
    if (status != RILL_OK || count == 0 || l->columns == 0) return status;
    uniform_rows(&rows, &row); /* they are, now */
    return rl_cublas_product(l->context, l->multiplied, count, l->columns, rows.shape[2], rows.data, row, l->weights,
                             rows.shape[2], l->first, l->first_row);
}

static rill_status project(layer *l, const rill_tensor *x, rill_tensor *delta)
{
    rl_product product = {
        .a = *x, .w = l->weights, .out = scratch_view(l, l->first, 0, l->first_row, x, l->columns)};
    rill_status status = l->blas ? multiply_16_bit(l, x) : rl_cuda_product(l->context, &product);
    *delta = scratch_view(l, l->first, 0, l->first_row, x, l->delta_columns);
    if (status != RILL_OK || !l->low_rank) return status;
    product = (rl_product){.a = *delta,
                           .w = l->up_weights,
                           .out = scratch_view(l, l->delta, 0, l->delta_row, x, l->problem->channels)};
    *delta = product.out;
    return rl_cuda_product(l->context, &product);
}

/* Where a slab's states come from and go to: the caller's at a sequence's ends, else the carry. */
static void hand_states(const layer *l, rl_selective_scan_problem *scan, int64_t batch0, bool begins, bool ends)
{
    const rl_selective_layer_problem *p = l->problem;
    rill_tensor carry = rill_tensor_3d_on(RILL_CUDA, l->carry, l->accumulated, 1, p->channels, p->states);
    bool packed = p->offsets.data != NULL;
    scan->h_init = !begins ? carry : packed ? p->h_init : slice(&p->h_init, 0, batch0, scan->sequences);
    scan->h_final = !ends ? carry : packed ? p->h_final : slice(&p->h_final, 0, batch0, scan->sequences);
}

static rill_status run_slab(layer *l, int64_t batch0, int64_t batch, int64_t step0, int64_t steps)
{
    const rl_selective_layer_problem *p = l->problem;
    rill_tensor x = part_of(&p->x, batch0, batch, step0, steps), delta;
    rill_status status = project(l, &x, &delta);
    if (status != RILL_OK) return status;
    rl_selective_scan_problem scan = {
        .batch = batch,
        .length = steps,
        .channels = p->channels,
        .states = p->states,
        .groups = 1,
        .sequences = p->offsets.data ? p->sequences : batch,
        .x = x,
        .delta = delta,
        .A = rill_tensor_2d_on(RILL_CUDA, l->A, l->accumulated, p->channels, p->states),
        .B = with_group(scratch_view(l, l->first, l->delta_columns, l->first_row, &x, p->states)),
        .C = with_group(scratch_view(l, l->first, l->delta_columns + p->states, l->first_row, &x, p->states)),
        .D = p->D,
        .z = part_of(&p->z, batch0, batch, step0, steps),
        .delta_bias = p->b_delta,
        .offsets = p->offsets,
        .y = part_of(&p->y, batch0, batch, step0, steps),
        .delta_softplus = true,
        .reverse = p->reverse,
        .delta_min = p->delta_min,
        .delta_max = p->delta_max,
    };
    bool first = step0 == 0, last = step0 + steps == p->length;
    hand_states(l, &scan, batch0, p->reverse ? last : first, p->reverse ? first : last);
    return rl_cuda_selective_scan(l->context, &scan);
}

/* The slabs of some sequences, in the order in which they are run. */
static rill_status run_sequences(layer *l, int64_t batch0, int64_t batch)
{
    int64_t length = l->problem->length, each = l->slab_length;
    int64_t slabs = each > 0 ? (length + each - 1) / each : 1;
    rill_status status = RILL_OK;
    for (int64_t k = 0; k < slabs && status == RILL_OK; k++) {
        int64_t step0 = (l->problem->reverse ? slabs - 1 - k : k) * each;
        int64_t steps = length - step0 < each ? length - step0 : each;
        status = run_slab(l, batch0, batch, step0, steps);
    }
    return status;
}

static rill_status run(rill_context *context, const rl_selective_layer_problem *problem)
{
    rill_status status = RILL_OK;
    bool blas = all_16_bit(problem) && !context->options.reproducible;
    if (blas) status = rl_cublas_open(context);
    if (status != RILL_OK) return status;
    layer l = plan(context, problem, blas && rl_cuda_state_of(context)->cublas);
    status = take_scratch(&l);
    if (status == RILL_OK && l.blas) status = rl_cublas_begin(context, l.scratch);
    if (status == RILL_OK) status = prepare_weights(&l);
    for (int64_t at = 0; at < problem->batch && status == RILL_OK; at += l.slab_batch) {
        int64_t batch = problem->batch - at < l.slab_batch ? problem->batch - at : l.slab_batch;
        status = run_sequences(&l, at, batch);
    }
    return status;
}

rill_status rl_cuda_selective_layer(rill_context *context, const rl_selective_layer_problem *problem)
{
    if (problem->channels == 0 || problem->sequences == 0) return RILL_OK;
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = run(context, problem);
    rl_cuda_leave(context, &scope);
    return status;
}
