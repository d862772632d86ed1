/* linear_attention: a matrix-valued state with a scalar gate, forward and backward. */
#ifndef RILL_LINEAR_ATTENTION_H
#define RILL_LINEAR_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/context.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Formula, for every sequence and head h, which uses query head h / (heads / query_heads) of q and k:
 *
 *     S_t = g_t S_{t-1} + β_t k_t v_tᵀ
 *     y_t = scale · S_tᵀ q_t                    the state after the update
 *
 * from S_init, or from zero where that is absent: then the first step's gate is not read.  g is gate, or with
 * gate_is_log exp(gate); gate and beta that are absent are 1.  A gate of exactly 0 (with gate_is_log, -inf) is a
 * reset: it drops the state before it even where that is infinite or NaN.  Other gates follow the formula, also
 * negative ones and ones above 1.
 *
 * Types: q, k, v share one of f64, f32, bf16, f16.  gate, beta, y: the type of q, or f32 with 16-bit q.  Each state:
 * f64 with f64, else f32; or the type of q.  A reference context also takes y and the states in f64.
 *
 * All sizes but query_heads may be 0; query_heads divides heads.
 *
 * Aliasing: S_final may be the same view as S_init; nothing else may overlap an output.  An input may have strides of
 * 0: one gate for all heads is gate with 0 along heads.
 */
typedef struct rill_linear_attention_args {
    rill_tensor q;       /* [batch, length, query_heads, keys] */
    rill_tensor k;       /* [batch, length, query_heads, keys] */
    rill_tensor v;       /* [batch, length, heads, values] */
    rill_tensor gate;    /* [batch, length, heads], optional: absent means 1 */
    rill_tensor beta;    /* [batch, length, heads], optional: absent means 1 */
    rill_tensor S_init;  /* [sequences, heads, keys, values], optional: absent means zero */
    rill_tensor offsets; /* i64 [sequences + 1], optional: packed sequences, batch is 1 */
    rill_tensor y;       /* output [batch, length, heads, values] */
    rill_tensor S_final; /* output [sequences, heads, keys, values], optional */

    bool gate_is_log;     /* gate holds the natural logarithm of the factor */
    bool reverse;         /* run each sequence from its last step to its first */
    double scale;         /* any number but NaN; 0 means 1 */
    uint64_t reserved[8]; /* zero */
} rill_linear_attention_args;

/*
 * Computes y and, if given, S_final.
 *
 * Sequences are the rows of the batch, or with offsets (non-decreasing, first 0, last length) the steps offsets[s] to
 * offsets[s+1]-1; an empty one gives S_final = S_init bit for bit.  Host offsets are checked; device offsets are
 * clamped into [0, length] and bad ones give unspecified values, never an access out of range.
 *
 * One step at a time is this call at length 1 with S_final the same view as S_init.
 *
 * Stream: on a cuda context with device tensors the call is asynchronous on the context's stream; with host tensors
 * it returns when the outputs are written.  Tensors of one call lie all on the host or all on the device.
 *
 * Errors: a status of 100 and up, with the message in rill_last_error; no output is then promised.
 * RILL_UNSUPPORTED where the context's backend does not have this operator.
 *
 * Source: Katharopoulos et al., "Transformers are RNNs", 2020, section 3.3; Yang et al., "Gated Linear Attention
 * Transformers with Hardware-Efficient Training", 2024, for gates.
 */
RILL_API rill_status rill_linear_attention(rill_context *context, const rill_linear_attention_args *args);

/*
 * Formula, with G_t the whole gradient of S_t, for the steps of each sequence from the last one run to the first:
 *
 *     G_t  = scale q_t dy_tᵀ + g_{t+1} G_{t+1}       at the last step  G = scale q dyᵀ + dS_final
 *     dq_t = scale S_t dy_t,   dk_t = β_t G_t v_t,   dv_t = β_t G_tᵀ k_t,   dβ_t = k_tᵀ G_t v_t
 *     dg_t = <G_t, S_{t-1}>,   dS_init = g_1 G_1
 *
 * dgate is dg, or with gate_is_log g dg.  dq and dk of a query head are summed over the heads that use it.  S_{t-1}
 * of the first step is S_init; without one dgate_1 is 0.  No gradient flows past a reset; its dg leaves out what it
 * drops where that is not finite, and with gate_is_log dgate is 0 where g is.
 *
 * Types: dy, dq, dk, dv, dgate, dbeta: the type of q, or f32.  dS_final, dS_init: those of a state, or f32.  A
 * reference context also takes gradients in f64.
 *
 * Upstream gradients that are absent are zero; gradients that are absent are not computed.  The gradient of an input
 * with strides of 0 is that of each element: summing it is the caller's.
 *
 * Aliasing: no output may overlap anything.
 */
typedef struct rill_linear_attention_backward_args {
    rill_tensor q;        /* [batch, length, query_heads, keys] as in the forward call */
    rill_tensor k;        /* [batch, length, query_heads, keys] as in the forward call */
    rill_tensor v;        /* [batch, length, heads, values] as in the forward call */
    rill_tensor gate;     /* [batch, length, heads] as in the forward call */
    rill_tensor beta;     /* [batch, length, heads] as in the forward call */
    rill_tensor S_init;   /* [sequences, heads, keys, values] as in the forward call */
    rill_tensor offsets;  /* i64 [sequences + 1] as in the forward call */
    rill_tensor dy;       /* [batch, length, heads, values], optional: the gradient of y */
    rill_tensor dS_final; /* [sequences, heads, keys, values], optional: the gradient of S_final */
    rill_tensor dq;       /* output [batch, length, query_heads, keys], optional */
    rill_tensor dk;       /* output [batch, length, query_heads, keys], optional */
    rill_tensor dv;       /* output [batch, length, heads, values], optional */
    rill_tensor dgate;    /* output [batch, length, heads], optional; only with gate */
    rill_tensor dbeta;    /* output [batch, length, heads], optional; only with beta */
    rill_tensor dS_init;  /* output [sequences, heads, keys, values], optional; only with S_init */

    bool gate_is_log; /* these as in the forward call */
    bool reverse;
    double scale;
    uint64_t reserved[8]; /* zero */
} rill_linear_attention_backward_args;

/*
 * Computes those gradients that are given.  No output of the forward call is needed.  Sequences, stream and errors
 * are as in rill_linear_attention.  A long sequence may be cut: run the later part first, with the state that enters
 * it as S_init, and hand its dS_init to the earlier one as dS_final.
 */
RILL_API rill_status rill_linear_attention_backward(rill_context *context,
                                                    const rill_linear_attention_backward_args *args);

#ifdef __cplusplus
}
#endif

#endif
