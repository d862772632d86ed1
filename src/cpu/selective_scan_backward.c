/* The call: its plan, and the sums over blocks and parts that s6_back.c leaves. */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "s6_back.h"

enum {
    BLOCK_CHANNELS = 256,      /* share one packing of B and C and one sum of dB and dC over lanes */
    LEAST_BLOCK_CHANNELS = 64, /* where tasks are few */
    FEW_TASKS = 4,
    PARTS = 32 /* of the sequences at most */
};

static rl_s6 scan_of(const rl_s6_back *back)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    const int64_t group_channels = p->channels / p->groups, lanes = back->kernels->lanes;
    const bool f64 = p->x.dtype == RILL_F64;
    return (rl_s6){.kernels = back->kernels,
                   .channels = p->channels,
                   .states = p->states,
                   .groups = p->groups,
                   .A = p->A,
                   .D = p->D,
                   .delta_bias = p->delta_bias,
                   .h_init = p->h_init,
                   .f64 = f64,
                   .spread = p->groups > 1 && group_channels > 0 && group_channels <= lanes / 2,
                   .state_blocks = rl_quotient_up(p->states, RL_STATE_BLOCK),
                   .slices = rl_least(2, rl_quotient_up(p->states, RL_STATE_BLOCK)),
                   .real_size = f64 ? sizeof(double) : sizeof(float),
                   .vector_size = back->vector_size};
}

static void cut_blocks(rl_s6_back *back, int64_t channels)
{
    const bool spread = back->forward.spread;
    back->block_vectors = spread ? 1 : rl_quotient_up(channels, back->kernels->lanes);
    back->block_vectors = rl_most(1, rl_least(back->block_vectors, back->stripe_vectors));
    back->stripe_blocks = rl_quotient_up(back->stripe_vectors, back->block_vectors);
    back->blocks = spread ? back->stripe_blocks : back->problem->groups * back->stripe_blocks;
}

/*
 * The blocks follow from the sizes alone, as their sums' bits do; with `reproducible` not from the batch, so that
 * they are not made smaller where tasks are few.  A block has at least twice as many channels as there are states, so
 * that its share of dB and dC is no larger than that of x.
 */
static void plan_blocks(rl_s6_back *back, bool reproducible)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    const int64_t lanes = back->kernels->lanes, group_channels = p->channels / p->groups;
    const bool spread = back->forward.spread;
    back->vector_channels = spread ? lanes / group_channels * group_channels : lanes;
    back->stripe_channels = spread ? p->channels : group_channels;
    back->stripe_vectors = rl_quotient_up(back->stripe_channels, back->vector_channels);
    back->vectors = spread ? back->stripe_vectors : p->groups * back->stripe_vectors;
    back->parts = rl_least(rl_least(p->sequences, PARTS), p->batch * p->length / rl_most(p->states, 1));
    back->parts = rl_most(back->parts, 1);
    cut_blocks(back, rl_most(BLOCK_CHANNELS, 2 * p->states));
    for (int64_t size = BLOCK_CHANNELS / 2; size >= rl_most(LEAST_BLOCK_CHANNELS, 2 * p->states); size /= 2)
        if (!reproducible && back->parts * back->blocks < FEW_TASKS) cut_blocks(back, size);
}

static bool sums_blocks(const rl_s6_back *back)
{
    return !back->forward.spread && back->stripe_blocks != 1;
}

/* Where the blocks of dB or dC go: the tensor itself, where one block makes it, or memory of their own. */
static rill_status take_sums(rill_context *context, rl_s6_back *back, const rill_tensor *wanted, rill_tensor *to)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    void *memory = NULL;
    *to = *wanted;
    if (!wanted->data || !sums_blocks(back)) return RILL_OK;
    back->sums_step = (size_t)(p->batch * p->length * p->groups * p->states) * back->forward.real_size;
    rill_status status = rl_workspace_take(context, back->sums_step * (size_t)back->stripe_blocks, &memory);
    to->data = memory;
    to->dtype = back->forward.f64 ? RILL_F64 : RILL_F32;
    to->stride[3] = 1;
    for (int axis = 3; axis > 0; axis--) to->stride[axis - 1] = to->stride[axis] * to->shape[axis];
    return status;
}

static rill_status plan(rill_context *context, rl_s6_back *back)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    rl_back_scratch layout;
    back->vector_size = (size_t)back->kernels->lanes * (p->x.dtype == RILL_F64 ? sizeof(double) : sizeof(float));
    back->forward = back->gradient = scan_of(back);
    back->gradient.h_init = p->dh_final;
    back->gradient.h_final = p->dh_init;
    back->longest = rl_longest_sequence(&p->offsets, p->sequences, p->length);
    back->threads = rl_s6_threads(context, (p->batch * p->length + p->sequences) * p->channels, p->states);
    plan_blocks(back, context->options.reproducible);
    back->scratch_size = (rl_back_lay_out(back, NULL, &layout) + 255) & ~(size_t)255;
    size_t sums = (size_t)(back->parts * back->vectors * (p->states + 2)) * back->vector_size;
    rill_status status = rl_workspace_take(context, back->scratch_size * (size_t)back->threads, &back->scratch);
    if (status == RILL_OK) status = rl_workspace_take(context, sums, &back->sums);
    if (status == RILL_OK) status = take_sums(context, back, &p->dB, &back->dB);
    if (status == RILL_OK) status = take_sums(context, back, &p->dC, &back->dC);
    return status;
}

static void store_vector(const rl_s6_back *back, const rill_tensor *to, rl_vector_place place, const char *from)
{
    if (!to->data) return;
    const bool is_matrix = to->rank == 2;
    rl_matrix m = {.data = (char *)to->data + place.channel * to->stride[0] * (int64_t)rill_dtype_size(to->dtype),
                   .dtype = to->dtype,
                   .row = is_matrix ? to->stride[1] : 0,
                   .lane = to->stride[0]};
    back->kernels->store(&m, from, is_matrix ? back->problem->states : 1, place.lanes);
}

/* The parameters' gradients of a vector; A is loaded again, as it was given. */
static void add_parts(const rl_s6_back *back, int64_t vector, rl_back_scratch *scratch)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    const rl_kernels *k = back->kernels;
    rl_vector_place place = rl_back_place(back, vector);
    char *sums = rl_back_sums(back, 0, vector), *dD = sums + (size_t)p->states * back->vector_size;
    for (int64_t part = 1; part < back->parts; part++) k->add(sums, rl_back_sums(back, part, vector), p->states + 2);
    if (p->dA.data && p->states > 0) {
        rl_matrix A = {.data =
                           (char *)p->A.data + place.channel * p->A.stride[0] * (int64_t)rill_dtype_size(p->A.dtype),
                       .dtype = p->A.dtype,
                       .row = p->A.stride[1],
                       .lane = p->A.stride[0]};
        k->load(scratch->vectors, k->lanes, &A, p->states, place.lanes);
        k->back->bar_A(sums, scratch->vectors, p->states);
        store_vector(back, &p->dA, place, sums);
    }
    store_vector(back, &p->dD, place, dD);
    store_vector(back, &p->ddelta_bias, place, dD + back->vector_size);
}

/* Some steps of one group: the sum of all blocks; zero where there are none. */
static void add_blocks(const rl_s6_back *back, const rill_tensor *from, const rill_tensor *to, int64_t task,
                       rl_back_scratch *scratch)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    const rl_kernels *k = back->kernels;
    const int64_t tiles = rl_quotient_up(p->length, RL_BACK_ROWS), group = task % p->groups;
    const int64_t t = task / p->groups % tiles * RL_BACK_ROWS, rows = rl_least(RL_BACK_ROWS, p->length - t);
    const rl_sequence row = {.row = task / p->groups / tiles, .length = p->length};
    const rl_series part = rl_series_of(from, row, t), whole = rl_series_of(to, row, t);
    for (int64_t n = 0; n < p->states && to->data; n += k->lanes) {
        const int64_t states = rl_least(k->lanes, p->states - n);
        memset(scratch->lanes, 0, (size_t)rows * back->vector_size);
        for (int64_t block = 0; block < back->stripe_blocks; block++) {
            rl_matrix m = rl_series_rows(&part, 0, n);
            m.data = (char *)m.data + (size_t)block * back->sums_step +
                     (size_t)(group * part.group) * back->forward.real_size;
            k->load(scratch->tile.x, k->lanes, &m, rows, states);
            k->add(scratch->lanes, scratch->tile.x, rows);
        }
        rl_matrix m = rl_series_rows(&whole, 0, n);
        m.data = (char *)m.data + group * whole.group * (int64_t)rill_dtype_size(m.dtype);
        k->store(&m, scratch->lanes, rows, states);
    }
}

static void run(const rl_s6_back *back)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    const int64_t tiles = rl_quotient_up(p->length, RL_BACK_ROWS),
                  sums = sums_blocks(back) ? p->batch * tiles * p->groups : 0;
    rl_back_scratch scratch;
    rl_back_lay_out(back, rl_back_scratch_of(back, omp_get_thread_num()), &scratch);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < back->parts * back->blocks; task++) rl_back_run_task(back, task);
#pragma omp for schedule(static) nowait
    for (int64_t vector = 0; vector < back->vectors; vector++) add_parts(back, vector, &scratch);
#pragma omp for schedule(static)
    for (int64_t task = 0; task < sums; task++) {
        add_blocks(back, &back->dB, &p->dB, task, &scratch);
        add_blocks(back, &back->dC, &p->dC, task, &scratch);
    }
}

rill_status rl_cpu_selective_scan_backward(rill_context *context, const rl_selective_scan_backward_problem *p)
{
    rl_s6_back back = {.problem = p, .kernels = rl_cpu_kernels(context, p->x.dtype)};
    rill_status status = plan(context, &back);
    if (status != RILL_OK) return status;
#pragma omp parallel num_threads(back.threads)
    run(&back);
    return RILL_OK;
}
