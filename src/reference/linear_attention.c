/* linear_attention by plain loops: one head of one sequence at a time, one step after the other. */
#include "linear_attention.h"

rill_status RL_NAME(rl_reference_linear_attention)(rill_context *context, const rl_linear_attention_problem *problem);

/* y = scale Sᵀ q */
static void read_state(const walk *w, const rill_tensor *y, int64_t t, const real *S)
{
    const inputs *in = w->in;
    real *sums = w->along_values;
    load_row(w->q, &in->q, w->s.row, t, w->query_head, in->keys);
    for (int64_t m = 0; m < in->values; m++) sums[m] = 0;
    for (int64_t n = 0; n < in->keys; n++)
        for (int64_t m = 0; m < in->values; m++) sums[m] += S[n * in->values + m] * w->q[n];
    for (int64_t m = 0; m < in->values; m++) store(y, w->s.row, t, w->head, m, in->scale * sums[m]);
}

static void run_head(const walk *w, const rl_linear_attention_problem *p, real *S)
{
    load_state(w, &p->S_init, S);
    for (int64_t i = 0; i < w->s.end - w->s.begin; i++) {
        advance(w, i, S, S);
        read_state(w, &p->y, step_at(w->s, i, p->reverse), S);
    }
    if (p->S_final.data) store_state(w, &p->S_final, &p->S_init, S);
}

rill_status RL_NAME(rl_reference_linear_attention)(rill_context *context, const rl_linear_attention_problem *p)
{
    const inputs in = INPUTS_OF(p);
    walk w;
    real *S = NULL;
    rill_status status = begin_walk(context, &in, &w);
    if (status == RILL_OK) status = take(context, p->keys, p->values, &S);
    for (int64_t sequence = 0; sequence < p->sequences && status == RILL_OK; sequence++)
        for (int64_t head = 0; head < p->heads; head++) {
            put_at(&w, sequence, head);
            run_head(&w, p, S);
        }
    return status;
}
