/* The call: its sequences as pieces, and the sums of dB and dC over blocks that s6_back.c leaves. */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "s6_back.h"

typedef struct call {
    const rl_selective_scan_backward_problem *problem;
    rl_s6_back back;
    rill_tensor dB,
        dC;           /* [batch, length, groups, states] or absent; [stripe_blocks, ...] of them if those are many */
    size_t sums_step; /* bytes from one of these to the next */
    char *tiles;      /* [threads] two of RL_BACK_ROWS */
} call;

static rl_s6 scan_of(const rill_context *context, const rl_selective_scan_backward_problem *p)
{
    return (rl_s6){.kernels = rl_cpu_kernels(context, p->x.dtype),
                   .channels = p->channels,
                   .states = p->states,
                   .groups = p->groups,
                   .A = p->A,
                   .D = p->D,
                   .delta_bias = p->delta_bias,
                   .h_init = p->h_init,
                   .f64 = p->x.dtype == RILL_F64,
                   .softplus = p->delta_softplus,
                   .gated = p->z.data != NULL,
                   .low = p->delta_min,
                   .high = p->delta_max};
}

static bool sums_blocks(const rl_s6_back *back)
{
    return !back->forward.spread && back->stripe_blocks != 1;
}

/* Where the blocks of dB or dC go: the tensor itself, where one block makes it, or memory of their own. */
static rill_status take_sums(rill_context *context, call *c, const rill_tensor *wanted, rill_tensor *to)
{
    const rl_selective_scan_backward_problem *p = c->problem;
    void *memory = NULL;
    *to = *wanted;
    if (!wanted->data || !sums_blocks(&c->back)) return RILL_OK;
    c->sums_step = (size_t)(p->batch * p->length * p->groups * p->states) * c->back.forward.real_size;
    rill_status status = rl_workspace_take(context, c->sums_step * (size_t)c->back.stripe_blocks, &memory);
    to->data = memory;
    to->dtype = c->back.forward.f64 ? RILL_F64 : RILL_F32;
    to->stride[3] = 1;
    for (int axis = 3; axis > 0; axis--) to->stride[axis - 1] = to->stride[axis] * to->shape[axis];
    return status;
}

static size_t tiles_size(const call *c)
{
    return 2 * RL_BACK_ROWS * c->back.forward.vector_size;
}

static rill_status plan(rill_context *context, call *c)
{
    const rl_selective_scan_backward_problem *p = c->problem;
    const int64_t steps = p->batch * p->length;
    void *tiles = NULL;
    c->back = (rl_s6_back){.forward = scan_of(context, p),
                           .dh_final = p->dh_final,
                           .dh_init = p->dh_init,
                           .has_dy = p->dy.data != NULL,
                           .parts = rl_back_parts(p->sequences, steps, p->states),
                           .longest = rl_longest_sequence(&p->offsets, p->sequences, p->length),
                           .threads = rl_s6_threads(context, (steps + p->sequences) * p->channels, p->states)};
    rl_back_cut(&c->back, context->options.reproducible);
    rill_status status = rl_back_plan(context, &c->back);
    if (status == RILL_OK) status = take_sums(context, c, &p->dB, &c->dB);
    if (status == RILL_OK) status = take_sums(context, c, &p->dC, &c->dC);
    if (status == RILL_OK && sums_blocks(&c->back))
        status = rl_workspace_take(context, tiles_size(c) * (size_t)c->back.threads, &tiles);
    c->tiles = tiles;
    return status;
}

static rl_series sums_series(const call *c, const rill_tensor *tensor, rl_sequence s, int64_t block)
{
    rl_series series = rl_series_of(tensor, s, 0);
    if (series.data) series.data = (char *)series.data + (size_t)block * c->sums_step;
    return series;
}

static void get_sequence(const void *owner, int64_t sequence, int64_t block, rl_back_piece *piece)
{
    const call *c = owner;
    const rl_selective_scan_backward_problem *p = c->problem;
    rl_sequence s = rl_sequence_of(&p->offsets, sequence, p->length, p->reverse);
    *piece = (rl_back_piece){.steps = {.sequence = sequence, .length = s.length, .first = true, .last = true}};
    if (s.length == 0) return;
    piece->steps.x = rl_series_of(&p->x, s, 0);
    piece->steps.delta = rl_series_of(&p->delta, s, 0);
    piece->steps.B = rl_series_of(&p->B, s, 0);
    piece->steps.C = rl_series_of(&p->C, s, 0);
    piece->steps.z = rl_series_of(&p->z, s, 0);
    piece->dy = rl_series_of(&p->dy, s, 0);
    piece->dx = rl_series_of(&p->dx, s, 0);
    piece->ddelta = rl_series_of(&p->ddelta, s, 0);
    piece->dz = rl_series_of(&p->dz, s, 0);
    piece->dB = sums_series(c, &c->dB, s, block);
    piece->dC = sums_series(c, &c->dC, s, block);
}

/* Some steps of one group: the sum of all blocks; zero where there are none. */
static void add_blocks(const call *c, const rill_tensor *from, const rill_tensor *to, int64_t task)
{
    const rl_selective_scan_backward_problem *p = c->problem;
    const rl_s6 *scan = &c->back.forward;
    const rl_kernels *k = scan->kernels;
    const int64_t tiles = rl_quotient_up(p->length, RL_BACK_ROWS), group = task % p->groups;
    const int64_t t = task / p->groups % tiles * RL_BACK_ROWS, rows = rl_least(RL_BACK_ROWS, p->length - t);
    const rl_sequence row = {.row = task / p->groups / tiles, .length = p->length};
    const rl_series part = rl_series_of(from, row, t), whole = rl_series_of(to, row, t);
    char *sum = c->tiles + (size_t)omp_get_thread_num() * tiles_size(c), *one = sum + tiles_size(c) / 2;
    for (int64_t n = 0; n < p->states && to->data; n += k->lanes) {
        const int64_t states = rl_least(k->lanes, p->states - n);
        memset(sum, 0, (size_t)rows * scan->vector_size);
        for (int64_t block = 0; block < c->back.stripe_blocks; block++) {
            rl_matrix m = rl_series_rows(&part, 0, n);
            m.data = (char *)m.data + (size_t)block * c->sums_step + (size_t)(group * part.group) * scan->real_size;
            k->load(one, k->lanes, &m, rows, states);
            k->add(sum, one, rows);
        }
        rl_matrix m = rl_series_rows(&whole, 0, n);
        m.data = (char *)m.data + group * whole.group * (int64_t)rill_dtype_size(m.dtype);
        k->store(&m, sum, rows, states);
    }
}

static void run(const call *c)
{
    const rl_selective_scan_backward_problem *p = c->problem;
    const int64_t tiles = rl_quotient_up(p->length, RL_BACK_ROWS),
                  sums = sums_blocks(&c->back) ? p->batch * tiles * p->groups : 0;
    const rl_back_pieces sequences = {.count = p->sequences, .get = get_sequence, .owner = c};
    rl_back_begin(&c->back);
    rl_back_run(&c->back, &sequences);
    rl_back_finish(&c->back, &p->dA, &p->dD, &p->ddelta_bias);
#pragma omp for schedule(static)
    for (int64_t task = 0; task < sums; task++) {
        add_blocks(c, &c->dB, &p->dB, task);
        add_blocks(c, &c->dC, &p->dC, task);
    }
}

rill_status rl_cpu_selective_scan_backward(rill_context *context, const rl_selective_scan_backward_problem *p)
{
    call c = {.problem = p};
    rill_status status = plan(context, &c);
    if (status != RILL_OK) return status;
#pragma omp parallel num_threads(c.back.threads)
    run(&c);
    return RILL_OK;
}
