/* selective_layer: the projections of a Mamba block and its selective scan in one call, forward and backward. */
#ifndef RILL_SELECTIVE_LAYER_H
#define RILL_SELECTIVE_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/context.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Formula: delta = x W_deltaᵀ, or with W_delta_down  delta = (x W_delta_downᵀ) W_deltaᵀ;  B = x W_Bᵀ;  C = x W_Cᵀ;
 * A = -exp(A_log);  then selective_scan with one group, delta_bias = b_delta and delta_softplus.
 *
 * Types: x, z, y share one of f64, f32, bf16, f16.  Each W_*: the type of x, or f32 with 16-bit x.
 * A_log, b_delta, D: f64 with f64, else f32.  States as in selective_scan.  delta, B, C and the low rank are never
 * rounded to a 16-bit type.  All sizes may be 0.
 *
 * Aliasing: h_final may be the same view as h_init; nothing else may overlap an output (y not even x).
 */
typedef struct rill_selective_layer_args {
    rill_tensor x;            /* [batch, length, channels] */
    rill_tensor W_delta;      /* [channels, channels], or [channels, rank] with W_delta_down */
    rill_tensor W_delta_down; /* [rank, channels], optional: the low-rank step size of Mamba's own blocks */
    rill_tensor W_B;          /* [states, channels] */
    rill_tensor W_C;          /* [states, channels] */
    rill_tensor A_log;        /* [channels, states] */
    rill_tensor b_delta;      /* [channels], optional */
    rill_tensor D;            /* [channels], optional: the skip's factor */
    rill_tensor z;            /* [batch, length, channels], optional: the gate */
    rill_tensor h_init;       /* [sequences, channels, states], optional: absent means zero */
    rill_tensor offsets;      /* i64 [sequences + 1], optional: packed sequences, batch is 1 */
    rill_tensor y;            /* output [batch, length, channels] */
    rill_tensor h_final;      /* output [sequences, channels, states], optional */

    bool reverse;         /* run each sequence from its last step to its first */
    double delta_min;     /* the clamp acts when either limit is non-zero; */
    double delta_max;     /* 0 then means no upper limit */
    uint64_t reserved[8]; /* zero */
} rill_selective_layer_args;

/*
 * Computes y and, if given, h_final.  Sequences, decoding, stream, threads and errors are as in rill_selective_scan.
 *
 * Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, sections 3.2 to 3.4.
 */
RILL_API rill_status rill_selective_layer(rill_context *context, const rill_selective_layer_args *args);

/*
 * Formula: with dx', ddelta, dA, dB and dC as rill_selective_scan_backward has them of x, delta, A, B and C, and p
 * for (x W_delta_downᵀ) or, without W_delta_down, x, for every step t:
 *
 *     dW_delta = Σ_t ddelta_tᵀ p_t,    dW_B = Σ_t dB_tᵀ x_t,    dW_C = Σ_t dC_tᵀ x_t
 *     dp_t = ddelta_t W_delta,    dW_delta_down = Σ_t dp_tᵀ x_t
 *     dx_t = dx'_t + dB_t W_B + dC_t W_C + dp_t W_delta_down      without W_delta_down the last term is dp_t
 *     dA_log = dA · A,    db_delta = Σ_t ddelta_t
 *
 * and dD, dz and dh_init as there.  Sums over t are over all sequences.
 *
 * Types: dy, dx, dz and each dW_*: the type of x, or f32.  dA_log, db_delta, dD: that of A_log, or f32.  dh_final,
 * dh_init: those of a state, or f32.  A reference context also takes gradients in f64.  What lies between (delta, B,
 * C, the low rank, and their gradients) is never rounded to a 16-bit type.
 *
 * Upstream gradients that are absent are zero; gradients that are absent are not computed.  The gradient of an input
 * with strides of 0 is that of each element: summing it is the caller's.
 *
 * Aliasing: no output may overlap anything.
 */
typedef struct rill_selective_layer_backward_args {
    rill_tensor x;             /* [batch, length, channels] these as in the forward call */
    rill_tensor W_delta;       /* [channels, channels], or [channels, rank] with W_delta_down */
    rill_tensor W_delta_down;  /* [rank, channels] */
    rill_tensor W_B;           /* [states, channels] */
    rill_tensor W_C;           /* [states, channels] */
    rill_tensor A_log;         /* [channels, states] */
    rill_tensor b_delta;       /* [channels] */
    rill_tensor D;             /* [channels] */
    rill_tensor z;             /* [batch, length, channels] */
    rill_tensor h_init;        /* [sequences, channels, states] */
    rill_tensor offsets;       /* i64 [sequences + 1] */
    rill_tensor dy;            /* [batch, length, channels], optional: the gradient of y */
    rill_tensor dh_final;      /* [sequences, channels, states], optional: the gradient of h_final */
    rill_tensor dx;            /* output [batch, length, channels], optional */
    rill_tensor dW_delta;      /* output, of the shape of W_delta, optional */
    rill_tensor dW_delta_down; /* output [rank, channels], optional; only with W_delta_down */
    rill_tensor dW_B;          /* output [states, channels], optional */
    rill_tensor dW_C;          /* output [states, channels], optional */
    rill_tensor dA_log;        /* output [channels, states], optional */
    rill_tensor db_delta;      /* output [channels], optional; only with b_delta */
    rill_tensor dD;            /* output [channels], optional; only with D */
    rill_tensor dz;            /* output [batch, length, channels], optional; only with z */
    rill_tensor dh_init;       /* output [sequences, channels, states], optional; only with h_init */

    bool reverse; /* these as in the forward call */
    double delta_min;
    double delta_max;
    uint64_t reserved[8]; /* zero */
} rill_selective_layer_backward_args;

/*
 * Computes those gradients that are given.  Sequences, cutting a long one, stream and errors are as in
 * rill_selective_scan_backward; the gradients of weights and parameters of the parts add up.
 */
RILL_API rill_status rill_selective_layer_backward(rill_context *context,
                                                   const rill_selective_layer_backward_args *args);

#ifdef __cplusplus
}
#endif

#endif
