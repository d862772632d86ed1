/* The backward call: the walks that it wants, and sums over their panels. */
#include <math.h>
#include <string.h>

#include "linear_attention_gates.h"

/* What all walks of a call have in common. */
static rl_attention_walk walk_of(const rill_context *context, const rl_linear_attention_backward_problem *p)
{
    return (rl_attention_walk){.kernels = rl_cpu_kernels(context, p->q.dtype),
                               .f64 = p->q.dtype == RILL_F64,
                               .length = p->length,
                               .sequences = p->sequences,
                               .heads = p->heads,
                               .members = 1,
                               .gate = p->gate,
                               .offsets = p->offsets,
                               .gate_is_log = p->gate_is_log,
                               .no_input = !p->dy.data,
                               .q_share = 1,
                               .k_share = 1,
                               .v_share = 1};
}

static rl_attention_walk dv_walk(const rill_context *context, const rl_linear_attention_backward_problem *p)
{
    rl_attention_walk w = walk_of(context, p);
    w.keys = p->keys, w.values = p->values;
    w.q = p->k, w.k = p->q, w.v = p->dy, w.y = p->dv;
    w.q_share = w.k_share = p->heads / p->query_heads;
    w.k_factor.scale = p->scale;
    w.y_factor.tensor = p->beta;
    w.start = p->dS_final, w.end = p->dS_init;
    w.backward = true;
    w.reverse = !p->reverse;
    return w;
}

static rl_attention_walk dq_walk(const rill_context *context, const rl_linear_attention_backward_problem *p)
{
    rl_attention_walk w = walk_of(context, p);
    w.keys = p->values, w.values = p->keys;
    w.q = p->dy, w.k = p->v, w.v = p->k, w.y = p->dq;
    w.members = w.v_share = p->heads / p->query_heads;
    w.v_factor.tensor = p->beta;
    w.y_factor.scale = p->scale;
    w.start = p->S_init;
    w.no_input = false;
    w.transposed = true;
    w.reverse = p->reverse;
    return w;
}

static rl_attention_walk dk_walk(const rill_context *context, const rl_linear_attention_backward_problem *p)
{
    rl_attention_walk w = walk_of(context, p);
    w.keys = p->values, w.values = p->keys;
    w.q = p->v, w.k = p->dy, w.v = p->q, w.y = p->dk;
    w.members = w.v_share = p->heads / p->query_heads;
    w.v_factor.scale = p->scale;
    w.y_factor.tensor = p->beta;
    w.start = p->dS_final;
    w.backward = true;
    w.transposed = true;
    w.reverse = !p->reverse;
    return w;
}

/* Zeros for a tensor [batch, length, heads, numbers]. */
static void clear(const rill_tensor *tensor)
{
    const int64_t size = (int64_t)rill_dtype_size(tensor->dtype), *n = tensor->shape, *stride = tensor->stride;
    if (!tensor->data) return;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[1]; t++)
            for (int64_t h = 0; h < n[2]; h++)
                for (int64_t i = 0; i < n[3]; i++)
                    memset((char *)tensor->data +
                               (b * stride[0] + t * stride[1] + h * stride[2] + i * stride[3]) * size,
                           0, (size_t)size);
}

/* Sums over panels, and for gates the rest of the chain. */
typedef struct sums {
    const rl_attention_walk *walk;
    const void *parts;
    const rill_tensor *to;
    bool is_gate;
} sums;

static double gate_gradient(const sums *s, rl_sequence sequence, int64_t head, int64_t t, double sum)
{
    double gate;
    bool reset;
    if (!s->is_gate) return sum;
    if (t == 0 && !s->walk->start.data) return 0;
    if (!s->walk->gate_is_log) return sum;
    rl_attention_load_gates(s->walk, sequence, head, t, 1, &gate, &reset);
    return (s->walk->f64 ? gate : (double)(float)gate) == 0 ? 0 : gate * sum;
}

static void add_panels(const sums *s, rl_sequence sequence, int64_t head)
{
    const rl_attention_walk *w = s->walk;
    const int64_t lanes = w->kernels->lanes;
    char row[64] __attribute__((aligned(64)));
    for (int64_t t = 0; t < sequence.length; t += lanes) {
        int64_t count = sequence.length - t < lanes ? sequence.length - t : lanes;
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = rl_attention_sums_at(w, sequence, t + i, head);
            double sum = 0;
            for (int64_t panel = 0; panel < w->panels; panel++) sum += rl_attention_get(w, s->parts, at + panel);
            rl_attention_put(w, row, i, gate_gradient(s, sequence, head, t + i, sum));
        }
        rl_matrix to = rl_attention_rows(s->to, sequence, t, head, 0);
        to.lane = to.row;
        w->kernels->store(&to, row, 1, count);
    }
}

static void add_up(rill_context *context, const sums *s)
{
    const rl_attention_walk *w = s->walk;
    const int64_t lines = s->to->data ? w->sequences * w->heads : 0;
    const int threads = lines > 1 ? context->options.threads : 1;
#pragma omp parallel for num_threads(threads)
    for (int64_t line = 0; line < lines; line++)
        add_panels(s, rl_sequence_of(&w->offsets, line / w->heads, w->length, w->reverse), line % w->heads);
}

static rill_status take_sums(rill_context *context, const rl_attention_walk *w, const rill_tensor *wanted, void **to)
{
    const int64_t rows = w->offsets.data ? 1 : w->sequences, lanes = w->kernels->lanes;
    const int64_t vectors = (w->values + lanes - 1) / lanes;
    const size_t panels = (size_t)((vectors + RL_PANEL_VECTORS - 1) / RL_PANEL_VECTORS);
    *to = NULL;
    if (!wanted->data) return RILL_OK;
    return rl_workspace_take(context, (size_t)(rows * w->length * w->heads) * panels * (w->f64 ? 8 : 4), to);
}

/* dq, dk, dgate and dbeta, whose walks have one form. */
static rill_status run_keys(rill_context *context, const rl_linear_attention_backward_problem *p)
{
    rl_attention_walk dq = dq_walk(context, p), dk = dk_walk(context, p);
    rill_status status = take_sums(context, &dq, &p->dgate, &dq.inner);
    if (status == RILL_OK) status = take_sums(context, &dk, &p->dbeta, &dk.whole);
    if (status != RILL_OK) return status;
    if (p->dgate.data) dq.partner = p->q;
    if (p->dgate.data || p->dbeta.data) dk.partner = p->k;
    dk.wants_plain = p->dgate.data != NULL;
    if (p->dgate.data && p->keys > 0)
        status = rl_attention_run_gates(context, &dq, &dk);
    else if (p->dq.data && p->dy.data)
        status = rl_attention_run(context, &dq);
    else
        clear(&p->dq);
    if (!p->dgate.data && status == RILL_OK && (p->dk.data || p->dbeta.data)) status = rl_attention_run(context, &dk);
    if (status != RILL_OK) return status;
    rl_attention_plan(&dq);
    rl_attention_plan(&dk);
    add_up(context, &(sums){&dq, dq.inner, &p->dgate, true});
    add_up(context, &(sums){&dk, dk.whole, &p->dbeta, false});
    return RILL_OK;
}

rill_status rl_cpu_linear_attention_backward(rill_context *context, const rl_linear_attention_backward_problem *p)
{
    if (p->sequences == 0) return RILL_OK;
    if (p->heads == 0) {
        clear(&p->dq);
        clear(&p->dk);
        return RILL_OK;
    }
    rill_status status = RILL_OK;
    if (p->dq.data || p->dk.data || p->dgate.data || p->dbeta.data) status = run_keys(context, p);
    if (status != RILL_OK || (!p->dv.data && !p->dS_init.data)) return status;
    rl_attention_walk dv = dv_walk(context, p);
    return rl_attention_run(context, &dv);
}
