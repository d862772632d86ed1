/* How the gradients of selective scans are shared out, and the sums of the parameters' gradients. */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "s6_back.h"

enum {
    BLOCK_CHANNELS = 256,      /* share one packing of B and C and one sum of dB and dC over lanes */
    LEAST_BLOCK_CHANNELS = 64, /* where tasks are few */
    FEW_TASKS = 16,
    PARTS = 32 /* at most */
};

int64_t rl_back_parts(int64_t sequences, int64_t steps, int64_t states)
{
    return rl_most(rl_least(rl_least(sequences, PARTS), steps / rl_most(states, 1)), 1);
}

static void cut_blocks(rl_s6_back *back, int64_t channels)
{
    const rl_s6 *scan = &back->forward;
    back->block_vectors = scan->spread ? 1 : rl_quotient_up(channels, scan->kernels->lanes);
    back->block_vectors = rl_most(1, rl_least(back->block_vectors, back->stripe_vectors));
    back->stripe_blocks = rl_quotient_up(back->stripe_vectors, back->block_vectors);
    back->blocks = scan->spread ? back->stripe_blocks : scan->groups * back->stripe_blocks;
}

/* A block has at least twice as many channels as there are states, so that its share of dB and dC is no larger than
 * that of x.
 */
void rl_back_cut(rl_s6_back *back, bool reproducible)
{
    rl_s6 *scan = &back->forward;
    const int64_t lanes = scan->kernels->lanes, group_channels = scan->channels / scan->groups;
    scan->spread = scan->groups > 1 && group_channels > 0 && group_channels <= lanes / 2;
    back->vector_channels = scan->spread ? lanes / group_channels * group_channels : lanes;
    back->stripe_channels = scan->spread ? scan->channels : group_channels;
    back->stripe_vectors = rl_quotient_up(back->stripe_channels, back->vector_channels);
    back->vectors = scan->spread ? back->stripe_vectors : scan->groups * back->stripe_vectors;
    cut_blocks(back, rl_most(BLOCK_CHANNELS, 2 * scan->states));
    for (int64_t size = BLOCK_CHANNELS / 2; size >= rl_most(LEAST_BLOCK_CHANNELS, 2 * scan->states); size /= 2)
        if (!reproducible && back->parts * back->blocks < FEW_TASKS) cut_blocks(back, size);
}

/* Where tasks are fewer than threads, each has its own scratch. */
static int64_t workers(const rl_s6_back *back)
{
    return rl_least(back->threads, back->parts * back->blocks);
}

rill_status rl_back_plan(rill_context *context, rl_s6_back *back)
{
    rl_s6 *scan = &back->forward;
    rl_back_scratch layout;
    scan->state_blocks = rl_quotient_up(scan->states, RL_STATE_BLOCK);
    scan->slices = rl_least(2, scan->state_blocks);
    scan->real_size = scan->f64 ? sizeof(double) : sizeof(float);
    scan->vector_size = (size_t)scan->kernels->lanes * scan->real_size;
    back->gradient = *scan;
    back->gradient.h_init = back->dh_final;
    back->gradient.h_final = back->dh_init;
    back->scratch_size = (rl_back_lay_out(back, NULL, &layout) + 255) & ~(size_t)255;
    size_t sums = (size_t)(back->parts * back->vectors * (scan->states + 2)) * scan->vector_size;
    rill_status status = rl_workspace_take(context, sums, &back->sums);
    if (status != RILL_OK) return status;
    return rl_workspace_take(context, back->scratch_size * (size_t)workers(back), &back->scratch);
}

void rl_back_begin(const rl_s6_back *back)
{
    const size_t size = (size_t)(back->forward.states + 2) * back->forward.vector_size;
#pragma omp for schedule(static)
    for (int64_t at = 0; at < back->parts * back->vectors; at++) memset((char *)back->sums + at * size, 0, size);
}

void rl_back_run(const rl_s6_back *back, const rl_back_pieces *pieces)
{
    const int64_t tasks = back->parts * back->blocks;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++)
        rl_back_run_task(back, pieces, task, tasks <= back->threads ? task : omp_get_thread_num());
}

static void store_vector(const rl_s6_back *back, const rill_tensor *to, rl_vector_place place, const char *from)
{
    if (!to->data) return;
    const bool is_matrix = to->rank == 2;
    rl_matrix m = {.data = (char *)to->data + place.channel * to->stride[0] * (int64_t)rill_dtype_size(to->dtype),
                   .dtype = to->dtype,
                   .row = is_matrix ? to->stride[1] : 0,
                   .lane = to->stride[0]};
    back->forward.kernels->store(&m, from, is_matrix ? back->forward.states : 1, place.lanes);
}

/* A is loaded again, as it was given; its logarithm has dA · A. */
static void store_dA(const rl_s6_back *back, const rill_tensor *dA, rl_vector_place place, char *sums,
                     const rl_back_scratch *scratch)
{
    const rl_s6 *scan = &back->forward;
    const rl_kernels *k = scan->kernels;
    const rill_tensor *tensor = &scan->A;
    const int64_t first = place.channel * tensor->stride[0] * (int64_t)rill_dtype_size(tensor->dtype);
    rl_matrix A = {.data = (char *)tensor->data + first,
                   .dtype = tensor->dtype,
                   .row = tensor->stride[1],
                   .lane = tensor->stride[0]};
    rl_vector_state v = rl_vector_state_in(scan, scratch->vectors);
    k->load(v.A, k->lanes, &A, scan->states, place.lanes);
    if (scan->A_is_log) {
        k->prepare_A(v.A, v.A_bound, scan->states, true);
        k->back->through_log(sums, v.A, scan->states);
    } else {
        k->back->bar_A(sums, v.A, scan->states);
    }
    store_vector(back, dA, place, sums);
}

void rl_back_finish(const rl_s6_back *back, const rill_tensor *dA, const rill_tensor *dD, const rill_tensor *dbias)
{
    const rl_s6 *scan = &back->forward;
    const int64_t worker = omp_get_thread_num();
    rl_back_scratch scratch;
    if (worker >= workers(back)) return;
    rl_back_lay_out(back, rl_back_scratch_of(back, worker), &scratch);
    for (int64_t vector = worker; vector < back->vectors; vector += workers(back)) {
        rl_vector_place place = rl_back_place(back, vector);
        char *sums = rl_back_sums(back, 0, vector), *D = sums + (size_t)scan->states * scan->vector_size;
        for (int64_t part = 1; part < back->parts; part++)
            scan->kernels->add(sums, rl_back_sums(back, part, vector), scan->states + 2);
        if (dA->data && scan->states > 0) store_dA(back, dA, place, sums, &scratch);
        store_vector(back, dD, place, D);
        store_vector(back, dbias, place, D + scan->vector_size);
    }
}
