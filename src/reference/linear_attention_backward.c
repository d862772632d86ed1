/*
 * The gradients of linear_attention by plain loops: one head of one sequence at a time, from its last step to its
 * first.  They need every state again, the last one first: a run forward keeps one of about √T, and each stretch of
 * steps between two that were kept is run again when its turn comes.
 */
#include "linear_attention.h"

rill_status RL_NAME(rl_reference_linear_attention_backward)(rill_context *context,
                                                            const rl_linear_attention_backward_problem *problem);

typedef struct gradients {
    const rl_linear_attention_backward_problem *p;
    walk w;
    bool needs_states;
    int64_t stretch; /* steps between two states that are kept */
    int64_t size;    /* of a state */
    real *kept;      /* [stretches, size] the states before each stretch */
    real *states;    /* [stretch + 1, size] the state before a step of the stretch at hand, and the last one after */
    real *G;         /* [size] of the step at hand; between steps g G, what reaches the state before */
    real *dq, *dk;   /* [length, keys] the sums over the heads of a query head */
} gradients;

static int64_t longest_sequence(const rl_linear_attention_backward_problem *p)
{
    int64_t longest = 0;
    for (int64_t sequence = 0; sequence < p->sequences; sequence++) {
        span s = sequence_span(&p->offsets, sequence, p->length);
        if (s.end - s.begin > longest) longest = s.end - s.begin;
    }
    return longest;
}

static rill_status begin(rill_context *context, const inputs *in, gradients *d)
{
    int64_t longest = longest_sequence(d->p);
    d->needs_states = d->p->dq.data || d->p->dgate.data;
    d->size = in->keys * in->values;
    for (d->stretch = 1; d->stretch * d->stretch < longest;) d->stretch++;
    rill_status status = begin_walk(context, in, &d->w);
    if (status == RILL_OK) status = take(context, d->size, 1, &d->G);
    if (status == RILL_OK) status = take(context, longest, in->keys, &d->dq);
    if (status == RILL_OK) status = take(context, longest, in->keys, &d->dk);
    if (status == RILL_OK && d->needs_states) status = take(context, d->stretch, d->size, &d->kept);
    if (status == RILL_OK && d->needs_states) status = take(context, d->stretch + 1, d->size, &d->states);
    return status;
}

static void copy_numbers(real *to, const real *from, int64_t count)
{
    for (int64_t at = 0; at < count; at++) to[at] = from[at];
}

/* Runs forward, and keeps the state before each stretch. */
static void keep_states(const gradients *d)
{
    const walk *w = &d->w;
    real *S = d->states;
    load_state(w, &d->p->S_init, S);
    for (int64_t i = 0; i < w->s.end - w->s.begin; i++) {
        if (i % d->stretch == 0) copy_numbers(d->kept + i / d->stretch * d->size, S, d->size);
        advance(w, i, S, S);
    }
}

/* All states of the stretch that ends with the i-th step. */
static void recall_states(const gradients *d, int64_t i)
{
    int64_t first = i - i % d->stretch;
    real *S = d->states;
    copy_numbers(S, d->kept + first / d->stretch * d->size, d->size);
    for (int64_t j = first; j <= i; j++, S += d->size) advance(&d->w, j, S + d->size, S);
}

/* G = scale q dyᵀ + what the later steps left there; dq = scale S dy. */
static void take_dy(const gradients *d, int64_t i, int64_t t, const real *S)
{
    const walk *w = &d->w;
    const inputs *in = w->in;
    load_row(w->q, &in->q, w->s.row, t, w->query_head, in->keys);
    load_row(w->dy, &d->p->dy, w->s.row, t, w->head, in->values);
    for (int64_t n = 0; n < in->keys; n++) {
        real sum = 0;
        for (int64_t m = 0; m < in->values; m++) {
            d->G[n * in->values + m] += in->scale * w->q[n] * w->dy[m];
            if (S) sum += S[n * in->values + m] * w->dy[m];
        }
        d->dq[i * in->keys + n] += in->scale * sum;
    }
}

/* dk = β G v, dβ = kᵀ G v, dv = β Gᵀ k. */
static void spread(const gradients *d, int64_t i, int64_t t)
{
    const walk *w = &d->w;
    const inputs *in = w->in;
    real beta = beta_at(w, t), dbeta = 0;
    load_row(w->k, &in->k, w->s.row, t, w->query_head, in->keys);
    load_row(w->v, &in->v, w->s.row, t, w->head, in->values);
    for (int64_t m = 0; m < in->values; m++) w->along_values[m] = 0;
    for (int64_t n = 0; n < in->keys; n++) {
        const real *G = &d->G[n * in->values];
        real sum = 0;
        for (int64_t m = 0; m < in->values; m++) {
            sum += G[m] * w->v[m];
            w->along_values[m] += G[m] * w->k[n];
        }
        d->dk[i * in->keys + n] += beta * sum;
        dbeta += w->k[n] * sum;
    }
    if (d->p->dbeta.data) store(&d->p->dbeta, w->s.row, t, w->head, 0, dbeta);
    for (int64_t m = 0; m < in->values && d->p->dv.data; m++)
        store(&d->p->dv, w->s.row, t, w->head, m, beta * w->along_values[m]);
}

/* <G, S> of the state before; a reset leaves out what it drops where that is not finite. */
static real gate_gradient(const gradients *d, int64_t i, const real *before)
{
    factor g = factor_at(&d->w, i);
    real sum = 0;
    if (i == 0 && !d->p->S_init.data) return 0;
    if (d->p->gate_is_log && g.value == 0) return 0;
    for (int64_t at = 0; at < d->size; at++)
        if (!g.reset || isfinite(before[at])) sum += d->G[at] * before[at];
    return d->p->gate_is_log ? g.value * sum : sum;
}

static void run_head(const gradients *d)
{
    const walk *w = &d->w;
    const rl_linear_attention_backward_problem *p = d->p;
    int64_t steps = w->s.end - w->s.begin;
    load_state(w, &p->dS_final, d->G);
    if (d->needs_states) keep_states(d);
    for (int64_t i = steps - 1; i >= 0; i--) {
        int64_t t = step_at(w->s, i, p->reverse);
        bool stretch_ends = i == steps - 1 || (i + 1) % d->stretch == 0;
        const real *before = d->needs_states ? d->states + i % d->stretch * d->size : NULL;
        if (d->needs_states && stretch_ends) recall_states(d, i);
        if (p->dy.data) take_dy(d, i, t, before ? before + d->size : NULL);
        spread(d, i, t);
        if (p->dgate.data) store(&p->dgate, w->s.row, t, w->head, 0, gate_gradient(d, i, before));
        factor g = factor_at(w, i);
        for (int64_t at = 0; at < d->size; at++) d->G[at] = g.reset ? 0 : g.value * d->G[at];
    }
    if (p->dS_init.data) store_state(w, &p->dS_init, &p->dS_final, d->G);
}

static void store_sums(const gradients *d, const rill_tensor *to, int64_t query_head, const real *sums)
{
    const walk *w = &d->w;
    for (int64_t i = 0; to->data && i < w->s.end - w->s.begin; i++)
        for (int64_t n = 0; n < d->p->keys; n++)
            store(to, w->s.row, step_at(w->s, i, d->p->reverse), query_head, n, sums[i * d->p->keys + n]);
}

static void run_query_head(gradients *d, int64_t sequence, int64_t query_head)
{
    const inputs *in = d->w.in;
    put_at(&d->w, sequence, query_head * in->share);
    int64_t numbers = (d->w.s.end - d->w.s.begin) * in->keys;
    for (int64_t at = 0; at < numbers; at++) d->dq[at] = d->dk[at] = 0;
    for (int64_t member = 0; member < in->share; member++) {
        put_at(&d->w, sequence, query_head * in->share + member);
        run_head(d);
    }
    store_sums(d, &d->p->dq, query_head, d->dq);
    store_sums(d, &d->p->dk, query_head, d->dk);
}

rill_status RL_NAME(rl_reference_linear_attention_backward)(rill_context *context,
                                                            const rl_linear_attention_backward_problem *p)
{
    const inputs in = INPUTS_OF(p);
    gradients d = {.p = p};
    rill_status status = begin(context, &in, &d);
    for (int64_t sequence = 0; sequence < p->sequences && status == RILL_OK; sequence++)
        for (int64_t head = 0; head < p->query_heads; head++) run_query_head(&d, sequence, head);
    return status;
}
