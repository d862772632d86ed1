/*
 * The gradients of selective_layer by plain loops: one sequence at a time, from its last step to its first, all
 * channels of a step together, since the projections mix them.  States are run again as in selective_scan_backward.c,
 * and with them the projections, which are never rounded to storage.
 */
#include "s6_back.h"

rill_status RL_NAME(rl_reference_selective_layer_backward)(rill_context *context,
                                                           const rl_selective_layer_backward_problem *problem);

typedef struct gradients {
    const rl_selective_layer_backward_problem *p;
    bool low_rank;
    span s;
    int64_t sequence;
    int64_t stretch, size;         /* steps between two states that are kept; numbers of the states of all channels */
    real *A;                       /* [channels, states] */
    real *x, *low, *delta, *B, *C; /* of the step at hand: x_t and its projections */
    real *dx, *dlow, *ddelta, *dB, *dC; /* and their gradients */
    real *kept;                         /* [stretches, size] the states before each stretch */
    real *states;                       /* [stretch + 1, size] before each step of a stretch, and the last after */
    real *G;                            /* [size] what the later steps leave to the states after the step at hand */
    /* The sums over all steps of all sequences, each of its tensor's shape. */
    real *dW_delta, *dW_delta_down, *dW_B, *dW_C, *dA, *db_delta, *dD;
} gradients;

static rill_status begin(rill_context *context, gradients *g)
{
    const rl_selective_layer_backward_problem *p = g->p;
    int64_t D = p->channels, N = p->states, R = p->rank;
    g->low_rank = p->W_delta_down.dtype != RILL_ABSENT;
    g->stretch = stretch_of(longest_sequence(&p->offsets, p->sequences, p->length));
    g->size = D * N;
    const struct {
        real **block;
        int64_t rows, numbers;
    } blocks[] = {{&g->A, D, N},
                  {&g->x, 1, D},
                  {&g->low, 1, R},
                  {&g->delta, 1, D},
                  {&g->B, 1, N},
                  {&g->C, 1, N},
                  {&g->dx, 1, D},
                  {&g->dlow, 1, R},
                  {&g->ddelta, 1, D},
                  {&g->dB, 1, N},
                  {&g->dC, 1, N},
                  {&g->G, D, N},
                  {&g->kept, g->stretch, g->size},
                  {&g->states, g->stretch + 1, g->size},
                  {&g->dW_delta, D, R},
                  {&g->dW_delta_down, g->low_rank ? R : 0, D},
                  {&g->dW_B, N, D},
                  {&g->dW_C, N, D},
                  {&g->dA, D, N},
                  {&g->db_delta, D, 1},
                  {&g->dD, D, 1}};
    rill_status status = RILL_OK;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0] && status == RILL_OK; i++) {
        status = take(context, blocks[i].rows, blocks[i].numbers, blocks[i].block);
        if (status == RILL_OK) clear(*blocks[i].block, blocks[i].rows * blocks[i].numbers);
    }
    for (int64_t d = 0; d < D && status == RILL_OK; d++)
        for (int64_t n = 0; n < N; n++) g->A[d * N + n] = finite_range(-exp(load(&p->A_log, d, n, 0, 0)), p->x.dtype);
    return status;
}

/* out = W in, W of shape [rows, columns]. */
static void multiply(const rill_tensor *W, int64_t rows, int64_t columns, const real *in, real *out)
{
    for (int64_t i = 0; i < rows; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < columns; j++) out[i] += load(W, i, j, 0, 0) * in[j];
    }
}

/* The gradients of that: din += Wᵀ dout, dW += dout inᵀ. */
static void multiply_back(const rill_tensor *W, int64_t rows, int64_t columns, const real *in, const real *dout,
                          real *din, real *dW)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            din[j] += load(W, i, j, 0, 0) * dout[i];
            dW[i * columns + j] += dout[i] * in[j];
        }
}

static void project(const gradients *g, int64_t t)
{
    const rl_selective_layer_backward_problem *p = g->p;
    for (int64_t d = 0; d < p->channels; d++) g->x[d] = load(&p->x, g->s.row, t, d, 0);
    if (g->low_rank) multiply(&p->W_delta_down, p->rank, p->channels, g->x, g->low);
    multiply(&p->W_delta, p->channels, p->rank, g->low_rank ? g->low : g->x, g->delta);
    multiply(&p->W_B, p->states, p->channels, g->x, g->B);
    multiply(&p->W_C, p->states, p->channels, g->x, g->C);
    for (int64_t d = 0; d < p->channels && p->b_delta.data; d++) g->delta[d] += load(&p->b_delta, d, 0, 0, 0);
}

/* Adds to dx, which holds the scan's own part, what comes through the projections; and to the weights' sums. */
static void project_back(const gradients *g)
{
    const rl_selective_layer_backward_problem *p = g->p;
    int64_t D = p->channels, N = p->states, R = p->rank;
    multiply_back(&p->W_B, N, D, g->x, g->dB, g->dx, g->dW_B);
    multiply_back(&p->W_C, N, D, g->x, g->dC, g->dx, g->dW_C);
    if (!g->low_rank) {
        multiply_back(&p->W_delta, D, R, g->x, g->ddelta, g->dx, g->dW_delta);
        return;
    }
    clear(g->dlow, R);
    multiply_back(&p->W_delta, D, R, g->low, g->ddelta, g->dlow, g->dW_delta);
    multiply_back(&p->W_delta_down, R, D, g->x, g->dlow, g->dx, g->dW_delta_down);
}

static step_size channel_step_size(const gradients *g, int64_t d)
{
    return step_size_of(g->delta[d], true, g->p->delta_min, g->p->delta_max, g->p->x.dtype);
}

/* The states after the i-th step from those before it, which may be the same. */
static void run_again(const gradients *g, int64_t i, real *after, const real *before)
{
    const rl_selective_layer_backward_problem *p = g->p;
    project(g, step_at(g->s, i, p->reverse));
    for (int64_t d = 0; d < p->channels; d++) {
        real delta = channel_step_size(g, d).value;
        for (int64_t n = 0; n < p->states; n++) {
            int64_t at = d * p->states + n;
            after[at] = advance(before[at], i > 0 || p->h_init.data, delta, g->A[at], g->B[n], g->x[d]);
        }
    }
}

/* Runs forward, and keeps the states before each stretch. */
static void keep_states(const gradients *g)
{
    for (int64_t i = 0; i < g->s.end - g->s.begin; i++) {
        if (i % g->stretch == 0) copy_numbers(g->kept + i / g->stretch * g->size, g->states, g->size);
        run_again(g, i, g->states, g->states);
    }
}

/* All states of the stretch that ends with the i-th step. */
static void recall_states(const gradients *g, int64_t i)
{
    int64_t first = i - i % g->stretch;
    real *h = g->states;
    copy_numbers(h, g->kept + first / g->stretch * g->size, g->size);
    for (int64_t j = first; j <= i; j++, h += g->size) run_again(g, j, h + g->size, h);
}

static void channel_back(const gradients *g, int64_t i, int64_t t, int64_t d)
{
    const rl_selective_layer_backward_problem *p = g->p;
    int64_t row = g->s.row, N = p->states;
    const real *before = g->states + i % g->stretch * g->size + d * N;
    step_size delta = channel_step_size(g, d);
    const channel_step step = {.states = N,
                               .A = g->A + d * N,
                               .B = g->B,
                               .C = g->C,
                               .before = i > 0 || p->h_init.data ? before : NULL,
                               .after = before + g->size,
                               .x = g->x[d],
                               .delta = delta.value,
                               .D = p->D.data ? load(&p->D, d, 0, 0, 0) : 0,
                               .z = p->z.data ? load(&p->z, row, t, d, 0) : 0,
                               .dy = p->dy.data ? load(&p->dy, row, t, d, 0) : 0,
                               .has_D = p->D.data,
                               .has_z = p->z.data,
                               .has_dy = p->dy.data};
    channel_gradients of = {.D = g->dD + d, .A = g->dA + d * N, .B = g->dB, .C = g->dC, .G = g->G + d * N};
    step_back(&step, &of);
    g->dx[d] = of.x;
    g->ddelta[d] = through_step_size(delta, of.delta);
    g->db_delta[d] += g->ddelta[d];
    if (p->dz.data) store(&p->dz, row, t, d, 0, of.z);
}

static void step_of_all_back(const gradients *g, int64_t i)
{
    const rl_selective_layer_backward_problem *p = g->p;
    int64_t t = step_at(g->s, i, p->reverse);
    project(g, t);
    clear(g->dB, p->states);
    clear(g->dC, p->states);
    for (int64_t d = 0; d < p->channels; d++) channel_back(g, i, t, d);
    project_back(g);
    for (int64_t d = 0; d < p->channels && p->dx.data; d++) store(&p->dx, g->s.row, t, d, 0, g->dx[d]);
}

static void run_sequence(gradients *g, int64_t sequence)
{
    const rl_selective_layer_backward_problem *p = g->p;
    g->sequence = sequence;
    g->s = sequence_span(&p->offsets, sequence, p->length);
    int64_t steps = g->s.end - g->s.begin, N = p->states;
    for (int64_t at = 0; at < g->size; at++) {
        g->states[at] = p->h_init.data ? load(&p->h_init, sequence, at / N, at % N, 0) : 0;
        g->G[at] = p->dh_final.data ? load(&p->dh_final, sequence, at / N, at % N, 0) : 0;
    }
    keep_states(g);
    for (int64_t i = steps - 1; i >= 0; i--) {
        if (i == steps - 1 || (i + 1) % g->stretch == 0) recall_states(g, i);
        step_of_all_back(g, i);
    }
    for (int64_t at = 0; at < g->size && p->dh_init.data; at++)
        hand_on(&p->dh_init, &p->dh_final, sequence, at / N, at % N, steps > 0, g->G[at]);
}

static void store_sums(const rill_tensor *to, int64_t rows, int64_t columns, const real *sums)
{
    for (int64_t i = 0; i < rows && to->data; i++)
        for (int64_t j = 0; j < columns; j++) store(to, i, j, 0, 0, sums[i * columns + j]);
}

/* A = -exp(A_log), so dA_log is dA A; none where A lies beyond the finite range. */
static void store_parameters(const gradients *g)
{
    const rl_selective_layer_backward_problem *p = g->p;
    int64_t D = p->channels, N = p->states, R = p->rank;
    for (int64_t at = 0; at < g->size && p->dA_log.data; at++) {
        bool flows = in_finite_range(exp(load(&p->A_log, at / N, at % N, 0, 0)), p->x.dtype);
        store(&p->dA_log, at / N, at % N, 0, 0, flows ? g->dA[at] * g->A[at] : 0);
    }
    store_sums(&p->dW_delta, D, R, g->dW_delta);
    store_sums(&p->dW_delta_down, R, D, g->dW_delta_down);
    store_sums(&p->dW_B, N, D, g->dW_B);
    store_sums(&p->dW_C, N, D, g->dW_C);
    store_sums(&p->db_delta, D, 1, g->db_delta);
    store_sums(&p->dD, D, 1, g->dD);
}

rill_status RL_NAME(rl_reference_selective_layer_backward)(rill_context *context,
                                                           const rl_selective_layer_backward_problem *p)
{
    gradients g = {.p = p};
    rill_status status = begin(context, &g);
    for (int64_t sequence = 0; sequence < p->sequences && status == RILL_OK; sequence++) run_sequence(&g, sequence);
    if (status == RILL_OK) store_parameters(&g);
    return status;
}
