/* The forward call: one walk. */
#include "linear_attention.h"

rill_status rl_cpu_linear_attention(rill_context *context, const rl_linear_attention_problem *p)
{
    const int64_t share = p->heads / p->query_heads;
    if (p->heads == 0) return RILL_OK;
    rl_attention_walk walk = {.kernels = rl_cpu_kernels(context, p->q.dtype),
                              .f64 = p->q.dtype == RILL_F64,
                              .length = p->length,
                              .sequences = p->sequences,
                              .heads = p->heads,
                              .keys = p->keys,
                              .values = p->values,
                              .members = 1,
                              .q = p->q,
                              .k = p->k,
                              .v = p->v,
                              .y = p->y,
                              .gate = p->gate,
                              .offsets = p->offsets,
                              .start = p->S_init,
                              .end = p->S_final,
                              .q_share = share,
                              .k_share = share,
                              .v_share = 1,
                              .k_factor = {.tensor = p->beta, .scale = 1},
                              .y_factor = {.scale = p->scale},
                              .gate_is_log = p->gate_is_log,
                              .reverse = p->reverse};
    return rl_attention_run(context, &walk);
}
