/* One step of linear attention for one head, as SPEC writes it; the forward and the backward call run it. */
#ifndef RL_REFERENCE_LINEAR_ATTENTION_H
#define RL_REFERENCE_LINEAR_ATTENTION_H

#include "room.h"

/* What both directions read of their problems. */
typedef struct inputs {
    int64_t length, keys, values, share; /* share: heads of a query head */
    rill_tensor q, k, v, gate, beta, S_init, offsets;
    bool gate_is_log, reverse;
    real scale;
} inputs;

/* clang-format off */
/* From a problem of either direction. */
#define INPUTS_OF(p) \
    {.length = (p)->length, \
     .keys = (p)->keys, \
     .values = (p)->values, \
     .share = (p)->heads / (p)->query_heads, \
     .q = (p)->q, \
     .k = (p)->k, \
     .v = (p)->v, \
     .gate = (p)->gate, \
     .beta = (p)->beta, \
     .S_init = (p)->S_init, \
     .offsets = (p)->offsets, \
     .gate_is_log = (p)->gate_is_log, \
     .reverse = (p)->reverse, \
     .scale = (real)(p)->scale}
/* clang-format on */

/* One head of one sequence, and room for what a step reads and sums. */
typedef struct walk {
    const inputs *in;
    span s;
    int64_t sequence, head, query_head;
    real *q, *k, *along_keys;    /* [keys] */
    real *v, *dy, *along_values; /* [values] */
} walk;

/* The gate of a step; reset: what was before is dropped, or there is nothing. */
typedef struct factor {
    real value;
    bool reset;
} factor;

static inline rill_status begin_walk(rill_context *context, const inputs *in, walk *w)
{
    real *rows = NULL;
    *w = (walk){.in = in};
    rill_status status = take(context, in->keys + in->values, 3, &rows);
    if (status != RILL_OK || !rows) return status; /* without numbers there is nothing to point at */
    w->q = rows;
    w->k = w->q + in->keys;
    w->along_keys = w->k + in->keys;
    w->v = w->along_keys + in->keys;
    w->dy = w->v + in->values;
    w->along_values = w->dy + in->values;
    return RILL_OK;
}

static inline void put_at(walk *w, int64_t sequence, int64_t head)
{
    w->s = sequence_span(&w->in->offsets, sequence, w->in->length);
    w->sequence = sequence;
    w->head = head;
    w->query_head = w->in->share ? head / w->in->share : 0;
}

static inline void load_row(real *to, const rill_tensor *from, int64_t i0, int64_t i1, int64_t i2, int64_t count)
{
    for (int64_t n = 0; n < count; n++) to[n] = load(from, i0, i1, i2, n);
}

/* Of the i-th step in the order of the recurrence.  Without a state before it, its gate is not read. */
static inline factor factor_at(const walk *w, int64_t i)
{
    const inputs *in = w->in;
    if (i == 0 && !in->S_init.data) return (factor){0, true};
    if (!in->gate.data) return (factor){1, false};
    real gate = load(&in->gate, w->s.row, step_at(w->s, i, in->reverse), w->head, 0);
    if (in->gate_is_log) return (factor){exp(gate), gate == -INFINITY};
    return (factor){gate, gate == 0};
}

static inline real beta_at(const walk *w, int64_t t)
{
    return w->in->beta.data ? load(&w->in->beta, w->s.row, t, w->head, 0) : 1;
}

/* S after the i-th step from the S before it, which may be the same: g S + (β k) vᵀ.  Leaves k and v in the rows. */
static inline void advance(const walk *w, int64_t i, real *after, const real *before)
{
    const inputs *in = w->in;
    int64_t t = step_at(w->s, i, in->reverse);
    factor g = factor_at(w, i);
    real beta = beta_at(w, t);
    load_row(w->k, &in->k, w->s.row, t, w->query_head, in->keys);
    load_row(w->v, &in->v, w->s.row, t, w->head, in->values);
    for (int64_t n = 0; n < in->keys; n++)
        for (int64_t m = 0; m < in->values; m++) {
            int64_t at = n * in->values + m;
            real input = beta * w->k[n] * w->v[m];
            after[at] = g.reset ? input : g.value * before[at] + input;
        }
}

/* A state, or its gradient, that enters: zero where it is absent. */
static inline void load_state(const walk *w, const rill_tensor *from, real *S)
{
    const inputs *in = w->in;
    for (int64_t n = 0; n < in->keys; n++)
        for (int64_t m = 0; m < in->values; m++)
            S[n * in->values + m] = from->data ? load(from, w->sequence, w->head, n, m) : 0;
}

/* One that leaves; from an empty sequence the one that entered, bit for bit where the types are the same. */
static inline void store_state(const walk *w, const rill_tensor *to, const rill_tensor *entered, const real *S)
{
    const inputs *in = w->in;
    bool same = w->s.begin == w->s.end && entered->data && entered->dtype == to->dtype;
    for (int64_t n = 0; n < in->keys; n++)
        for (int64_t m = 0; m < in->values; m++)
            if (same)
                memmove(element(to, w->sequence, w->head, n, m), element(entered, w->sequence, w->head, n, m),
                        rill_dtype_size(to->dtype));
            else
                store(to, w->sequence, w->head, n, m, S[n * in->values + m]);
}

#endif
