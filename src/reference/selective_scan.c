/* selective_scan by plain loops: one channel of one sequence at a time, one step after the other. */
#include "../context.h"
#include "s6.h"

rill_status RL_NAME(rl_reference_selective_scan)(rill_context *context, const rl_selective_scan_problem *problem);

static void scan_channel(const rl_selective_scan_problem *p, int64_t sequence, int64_t d, real *h)
{
    span s = sequence_span(&p->offsets, sequence, p->length);
    int64_t group = d / (p->channels / p->groups);
    for (int64_t n = 0; n < p->states; n++) h[n] = p->h_init.data ? load(&p->h_init, sequence, d, n, 0) : 0;
    for (int64_t i = 0; i < s.end - s.begin; i++) {
        int64_t t = step_at(s, i, p->reverse);
        real x = load(&p->x, s.row, t, d, 0), delta = load(&p->delta, s.row, t, d, 0), y = 0;
        if (p->delta_bias.data) delta += load(&p->delta_bias, d, 0, 0, 0);
        if (p->delta_softplus) delta = softplus(delta);
        delta = clamp(delta, p->delta_min, p->delta_max);
        for (int64_t n = 0; n < p->states; n++) {
            real A = finite_range(load(&p->A, d, n, 0, 0), p->x.dtype), B = load(&p->B, s.row, t, group, n);
            h[n] = advance(h[n], i > 0 || p->h_init.data, delta, A, B, x);
            y += load(&p->C, s.row, t, group, n) * h[n];
        }
        if (p->D.data) y += load(&p->D, d, 0, 0, 0) * x;
        if (p->z.data) y *= silu(load(&p->z, s.row, t, d, 0));
        store(&p->y, s.row, t, d, 0, y);
    }
    if (!p->h_final.data) return;
    for (int64_t n = 0; n < p->states; n++) hand_on(&p->h_final, &p->h_init, sequence, d, n, s.end > s.begin, h[n]);
}

rill_status RL_NAME(rl_reference_selective_scan)(rill_context *context, const rl_selective_scan_problem *problem)
{
    void *h;
    rill_status status = rl_workspace_take(context, (size_t)problem->states * sizeof(real), &h);
    if (status != RILL_OK) return status;
    for (int64_t sequence = 0; sequence < problem->sequences; sequence++)
        for (int64_t d = 0; d < problem->channels; d++) scan_channel(problem, sequence, d, h);
    return RILL_OK;
}
