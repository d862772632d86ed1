/* selective_layer by plain loops: the projections of one step, then that step of every channel. */
#include "../context.h"
#include "s6.h"

rill_status RL_NAME(rl_reference_selective_layer)(rill_context *context, const rl_selective_layer_problem *problem);

/* What one step needs: the projections of x_t, and the states of every channel. */
typedef struct step {
    real *x, *low, *delta, *B, *C, *h;
} step;

/* out = W in, W of shape [rows, columns]. */
static void multiply(const rill_tensor *W, int64_t rows, int64_t columns, const real *in, real *out)
{
    for (int64_t i = 0; i < rows; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < columns; j++) out[i] += load(W, i, j, 0, 0) * in[j];
    }
}

static void project(const rl_selective_layer_problem *p, int64_t row, int64_t t, step *s)
{
    bool low_rank = p->W_delta_down.dtype != RILL_ABSENT;
    for (int64_t d = 0; d < p->channels; d++) s->x[d] = load(&p->x, row, t, d, 0);
    if (low_rank) multiply(&p->W_delta_down, p->rank, p->channels, s->x, s->low);
    multiply(&p->W_delta, p->channels, p->rank, low_rank ? s->low : s->x, s->delta);
    multiply(&p->W_B, p->states, p->channels, s->x, s->B);
    multiply(&p->W_C, p->states, p->channels, s->x, s->C);
}

static void advance_channel(const rl_selective_layer_problem *p, int64_t row, int64_t t, int64_t d, bool has_state,
                            step *s)
{
    real delta = s->delta[d], y = 0, *h = s->h + d * p->states;
    if (p->b_delta.data) delta += load(&p->b_delta, d, 0, 0, 0);
    delta = clamp(softplus(delta), p->delta_min, p->delta_max);
    for (int64_t n = 0; n < p->states; n++) {
        real A = finite_range(-exp(load(&p->A_log, d, n, 0, 0)), p->x.dtype);
        h[n] = advance(h[n], has_state, delta, A, s->B[n], s->x[d]);
        y += s->C[n] * h[n];
    }
    if (p->D.data) y += load(&p->D, d, 0, 0, 0) * s->x[d];
    if (p->z.data) y *= silu(load(&p->z, row, t, d, 0));
    store(&p->y, row, t, d, 0, y);
}

static void run_sequence(const rl_selective_layer_problem *p, int64_t sequence, step *s)
{
    span where = sequence_span(&p->offsets, sequence, p->length);
    for (int64_t d = 0; d < p->channels; d++)
        for (int64_t n = 0; n < p->states; n++)
            s->h[d * p->states + n] = p->h_init.data ? load(&p->h_init, sequence, d, n, 0) : 0;
    for (int64_t i = 0; i < where.end - where.begin; i++) {
        int64_t t = step_at(where, i, p->reverse);
        project(p, where.row, t, s);
        for (int64_t d = 0; d < p->channels; d++) advance_channel(p, where.row, t, d, i > 0 || p->h_init.data, s);
    }
    if (!p->h_final.data) return;
    for (int64_t d = 0; d < p->channels; d++)
        for (int64_t n = 0; n < p->states; n++)
            hand_on(&p->h_final, &p->h_init, sequence, d, n, where.end > where.begin, s->h[d * p->states + n]);
}

rill_status RL_NAME(rl_reference_selective_layer)(rill_context *context, const rl_selective_layer_problem *problem)
{
    int64_t D = problem->channels, N = problem->states, R = problem->rank;
    void *memory;
    rill_status status = rl_workspace_take(context, (size_t)(2 * D + 2 * N + R + D * N) * sizeof(real), &memory);
    if (status != RILL_OK) return status;
    step s = {.x = memory};
    s.delta = s.x + D;
    s.B = s.delta + D;
    s.C = s.B + N;
    s.low = s.C + N;
    s.h = s.low + R;
    for (int64_t sequence = 0; sequence < problem->sequences; sequence++) run_sequence(problem, sequence, &s);
    return RILL_OK;
}
