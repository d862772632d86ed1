/*
 * The gradients of selective_scan by plain loops: one channel of one sequence at a time, from its last step to its
 * first.  They need every state again, the last one first: a run forward keeps one of about √L, and each stretch of
 * steps between two that were kept is run again when its turn comes.
 */
#include "s6_back.h"

rill_status RL_NAME(rl_reference_selective_scan_backward)(rill_context *context,
                                                          const rl_selective_scan_backward_problem *problem);

typedef struct gradients {
    const rl_selective_scan_backward_problem *p;
    span s;
    int64_t sequence, channel, group;
    int64_t stretch;       /* steps between two states that are kept */
    real *A, *B, *C;       /* [states] of the channel, and of the step at hand */
    real *kept;            /* [stretches, states] the states before each stretch */
    real *states;          /* [stretch + 1, states] before each step of the stretch at hand, and the last after */
    real *G;               /* [states] what the later steps leave to the state after the step at hand */
    real *dB, *dC;         /* [longest, states] the sums over the channels of a group */
    real *dA, *dD, *dbias; /* [channels, states], [channels] the sums over all sequences */
} gradients;

static rill_status begin(rill_context *context, gradients *g)
{
    const rl_selective_scan_backward_problem *p = g->p;
    int64_t N = p->states, longest = longest_sequence(&p->offsets, p->sequences, p->length);
    g->stretch = stretch_of(longest);
    const struct {
        real **block;
        int64_t rows, numbers;
    } blocks[] = {{&g->A, 1, N},
                  {&g->B, 1, N},
                  {&g->C, 1, N},
                  {&g->G, 1, N},
                  {&g->kept, g->stretch, N},
                  {&g->states, g->stretch + 1, N},
                  {&g->dB, longest, N},
                  {&g->dC, longest, N},
                  {&g->dA, p->channels, N},
                  {&g->dD, p->channels, 1},
                  {&g->dbias, p->channels, 1}};
    rill_status status = RILL_OK;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0] && status == RILL_OK; i++)
        status = take(context, blocks[i].rows, blocks[i].numbers, blocks[i].block);
    if (status != RILL_OK) return status;
    clear(g->dA, p->channels * N);
    clear(g->dD, p->channels);
    clear(g->dbias, p->channels);
    return RILL_OK;
}

static step_size load_step_size(const gradients *g, int64_t t)
{
    const rl_selective_scan_backward_problem *p = g->p;
    real raw = load(&p->delta, g->s.row, t, g->channel, 0);
    if (p->delta_bias.data) raw += load(&p->delta_bias, g->channel, 0, 0, 0);
    return step_size_of(raw, p->delta_softplus, p->delta_min, p->delta_max, p->x.dtype);
}

static void load_row(const gradients *g, const rill_tensor *from, int64_t t, real *to)
{
    for (int64_t n = 0; n < g->p->states; n++) to[n] = load(from, g->s.row, t, g->group, n);
}

/* The state after the i-th step from the one before it, which may be the same. */
static void run_again(const gradients *g, int64_t i, real *after, const real *before)
{
    const rl_selective_scan_backward_problem *p = g->p;
    int64_t t = step_at(g->s, i, p->reverse);
    real x = load(&p->x, g->s.row, t, g->channel, 0), delta = load_step_size(g, t).value;
    load_row(g, &p->B, t, g->B);
    for (int64_t n = 0; n < p->states; n++)
        after[n] = advance(before[n], i > 0 || p->h_init.data, delta, g->A[n], g->B[n], x);
}

/* Runs forward, and keeps the state before each stretch. */
static void keep_states(const gradients *g)
{
    const rl_selective_scan_backward_problem *p = g->p;
    real *h = g->states;
    for (int64_t n = 0; n < p->states; n++)
        h[n] = p->h_init.data ? load(&p->h_init, g->sequence, g->channel, n, 0) : 0;
    for (int64_t i = 0; i < g->s.end - g->s.begin; i++) {
        if (i % g->stretch == 0) copy_numbers(g->kept + i / g->stretch * p->states, h, p->states);
        run_again(g, i, h, h);
    }
}

/* All states of the stretch that ends with the i-th step. */
static void recall_states(const gradients *g, int64_t i)
{
    int64_t first = i - i % g->stretch, N = g->p->states;
    copy_numbers(g->states, g->kept + first / g->stretch * N, N);
    for (int64_t j = first; j <= i; j++)
        run_again(g, j, g->states + (j - first + 1) * N, g->states + (j - first) * N);
}

static void run_step_back(const gradients *g, int64_t i)
{
    const rl_selective_scan_backward_problem *p = g->p;
    int64_t t = step_at(g->s, i, p->reverse), row = g->s.row, d = g->channel, N = p->states;
    const real *before = g->states + i % g->stretch * N;
    step_size delta = load_step_size(g, t);
    load_row(g, &p->B, t, g->B);
    load_row(g, &p->C, t, g->C);
    const channel_step step = {.states = N,
                               .A = g->A,
                               .B = g->B,
                               .C = g->C,
                               .before = i > 0 || p->h_init.data ? before : NULL,
                               .after = before + N,
                               .x = load(&p->x, row, t, d, 0),
                               .delta = delta.value,
                               .D = p->D.data ? load(&p->D, d, 0, 0, 0) : 0,
                               .z = p->z.data ? load(&p->z, row, t, d, 0) : 0,
                               .dy = p->dy.data ? load(&p->dy, row, t, d, 0) : 0,
                               .has_D = p->D.data,
                               .has_z = p->z.data,
                               .has_dy = p->dy.data};
    channel_gradients of = {.D = g->dD + d, .A = g->dA + d * N, .B = g->dB + i * N, .C = g->dC + i * N, .G = g->G};
    step_back(&step, &of);
    real ddelta = through_step_size(delta, of.delta);
    g->dbias[d] += ddelta;
    if (p->dx.data) store(&p->dx, row, t, d, 0, of.x);
    if (p->ddelta.data) store(&p->ddelta, row, t, d, 0, ddelta);
    if (p->dz.data) store(&p->dz, row, t, d, 0, of.z);
}

static void run_channel(const gradients *g)
{
    const rl_selective_scan_backward_problem *p = g->p;
    int64_t steps = g->s.end - g->s.begin;
    for (int64_t n = 0; n < p->states; n++) {
        g->A[n] = finite_range(load(&p->A, g->channel, n, 0, 0), p->x.dtype);
        g->G[n] = p->dh_final.data ? load(&p->dh_final, g->sequence, g->channel, n, 0) : 0;
    }
    keep_states(g);
    for (int64_t i = steps - 1; i >= 0; i--) {
        if (i == steps - 1 || (i + 1) % g->stretch == 0) recall_states(g, i);
        run_step_back(g, i);
    }
    for (int64_t n = 0; n < p->states && p->dh_init.data; n++)
        hand_on(&p->dh_init, &p->dh_final, g->sequence, g->channel, n, steps > 0, g->G[n]);
}

static void store_group_sums(const gradients *g, const rill_tensor *to, const real *sums)
{
    for (int64_t i = 0; to->data && i < g->s.end - g->s.begin; i++)
        for (int64_t n = 0; n < g->p->states; n++)
            store(to, g->s.row, step_at(g->s, i, g->p->reverse), g->group, n, sums[i * g->p->states + n]);
}

static void run_group(gradients *g, int64_t sequence, int64_t group)
{
    const rl_selective_scan_backward_problem *p = g->p;
    int64_t members = p->channels / p->groups;
    g->s = sequence_span(&p->offsets, sequence, p->length);
    g->sequence = sequence;
    g->group = group;
    clear(g->dB, (g->s.end - g->s.begin) * p->states);
    clear(g->dC, (g->s.end - g->s.begin) * p->states);
    for (int64_t member = 0; member < members; member++) {
        g->channel = group * members + member;
        run_channel(g);
    }
    store_group_sums(g, &p->dB, g->dB);
    store_group_sums(g, &p->dC, g->dC);
}

/* Of A no gradient where it lies beyond the finite range. */
static void store_parameters(const gradients *g)
{
    const rl_selective_scan_backward_problem *p = g->p;
    for (int64_t d = 0; d < p->channels; d++) {
        if (p->dD.data) store(&p->dD, d, 0, 0, 0, g->dD[d]);
        if (p->ddelta_bias.data) store(&p->ddelta_bias, d, 0, 0, 0, g->dbias[d]);
        for (int64_t n = 0; n < p->states && p->dA.data; n++) {
            bool flows = in_finite_range(load(&p->A, d, n, 0, 0), p->x.dtype);
            store(&p->dA, d, n, 0, 0, flows ? g->dA[d * p->states + n] : 0);
        }
    }
}

rill_status RL_NAME(rl_reference_selective_scan_backward)(rill_context *context,
                                                          const rl_selective_scan_backward_problem *p)
{
    gradients g = {.p = p};
    rill_status status = begin(context, &g);
    for (int64_t sequence = 0; sequence < p->sequences && status == RILL_OK; sequence++)
        for (int64_t group = 0; group < p->groups; group++) run_group(&g, sequence, group);
    if (status == RILL_OK) store_parameters(&g);
    return status;
}
