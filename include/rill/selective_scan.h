/* selective_scan: the Mamba (S6) recurrence, forward and backward. */
#ifndef RILL_SELECTIVE_SCAN_H
#define RILL_SELECTIVE_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/context.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Formula, for every sequence, channel d of group g = d / (channels / groups), and state n:
 *
 *     δ_t   = delta_t + delta_bias;  with delta_softplus  δ = δ > 20 ? δ : log1p(exp(δ));  then clamped
 *     h_t,n = exp(δ_t A[d,n]) h_{t-1},n + (δ_t x_t) B_t[g,n]
 *     y_t   = (Σ_n C_t[g,n] h_t,n + D[d] x_t) · z_t σ(z_t)          D and z where given
 *
 * A is first brought into the finite range of the accumulation type, so a step size of 0 leaves the state alone.
 *
 * Types: x, delta, B, C, z, y share one of f64, f32, bf16, f16.  A, D, delta_bias: f64 with f64, else f32.  Each
 * state: the accumulation type (f64 with f64, else f32) or the type of x.  A reference context also takes y and the
 * states in f64 with any of these.  All sizes may be 0, groups at least 1.
 *
 * Aliasing: y may be the same view as x, and h_final as h_init; nothing else may overlap an output.
 */
typedef struct rill_selective_scan_args {
    rill_tensor x;          /* [batch, length, channels] */
    rill_tensor delta;      /* [batch, length, channels] step size, before bias and softplus */
    rill_tensor A;          /* [channels, states] */
    rill_tensor B;          /* [batch, length, groups, states]; groups divides channels */
    rill_tensor C;          /* [batch, length, groups, states] */
    rill_tensor D;          /* [channels], optional: the skip's factor */
    rill_tensor z;          /* [batch, length, channels], optional: the gate */
    rill_tensor delta_bias; /* [channels], optional */
    rill_tensor h_init;     /* [sequences, channels, states], optional: absent means zero */
    rill_tensor offsets;    /* i64 [sequences + 1], optional: packed sequences, batch is 1 */
    rill_tensor y;          /* output [batch, length, channels] */
    rill_tensor h_final;    /* output [sequences, channels, states], optional */

    bool delta_softplus;
    bool reverse;         /* run each sequence from its last step to its first */
    double delta_min;     /* the clamp acts when either limit is non-zero; */
    double delta_max;     /* 0 then means no upper limit */
    uint64_t reserved[8]; /* zero */
} rill_selective_scan_args;

/*
 * Computes y and, if given, h_final.
 *
 * Sequences are the rows of the batch, or with offsets (non-decreasing, first 0, last length) the steps offsets[s] to
 * offsets[s+1]-1; an empty one gives h_final = h_init bit for bit.  Host offsets are checked; device offsets are
 * clamped into [0, length] and bad ones give unspecified values, never an access out of range.
 *
 * Decoding is this call at length 1 with h_final the same view as h_init.
 *
 * Stream: on a cuda context with device tensors the call is asynchronous on the context's stream; with host tensors
 * it returns when the outputs are written.  Tensors of one call lie all on the host or all on the device.
 *
 * Errors: a status of 100 and up, with the message in rill_last_error; no output is then promised.
 *
 * Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, section 3.
 */
RILL_API rill_status rill_selective_scan(rill_context *context, const rill_selective_scan_args *args);

/*
 * Formula, with a_t,n = exp(δ_t A[d,n]) and G_t the whole gradient of h_t, for the steps of each sequence from the
 * last one run to the first, for every channel d of group g:
 *
 *     u_t     = Σ_n C_t[g,n] h_t,n + D[d] x_t                     so that y = u · z σ(z)
 *     dz_t    = dy_t u_t σ(z_t) (1 + z_t (1 - σ(z_t)))
 *     du_t    = dy_t z_t σ(z_t)                                    without z  du = dy
 *     G_t,n   = du_t C_t[g,n] + a_{t+1},n G_{t+1},n                at the last step  G = du C + dh_final
 *     dx_t    = du_t D[d] + δ_t Σ_n G_t,n B_t[g,n]
 *     dδ_t    = Σ_n G_t,n (A[d,n] a_t,n h_{t-1},n + B_t[g,n] x_t)
 *     ddelta  = dδ, with delta_softplus times σ(delta + delta_bias), which beyond 20 is 1;  0 where clamped
 *     dB_t,n  = Σ_d G_t,n δ_t x_t,    dC_t,n = Σ_d du_t h_t,n      over the channels of the group
 *     dA[d,n] = Σ_t G_t,n δ_t a_t,n h_{t-1},n,    dD = Σ_t du_t x_t,    ddelta_bias = Σ_t ddelta_t
 *     dh_init = a_1 G_1
 *
 * with h_{t-1} of the first step h_init; without one what it multiplies is left out.  Sums over t are over all
 * sequences.  A step size is clamped where, in the accumulation type, it lies outside the limits; on a limit it is
 * not.  dA is 0 where A was brought into the finite range.
 *
 * Types: dy, dx, ddelta, dB, dC, dz: the type of x, or f32.  dA, dD, ddelta_bias: that of A, or f32.  dh_final,
 * dh_init: those of a state, or f32.  A reference context also takes gradients in f64.
 *
 * Upstream gradients that are absent are zero; gradients that are absent are not computed.  The gradient of an input
 * with strides of 0 is that of each element: summing it is the caller's.
 *
 * Aliasing: no output may overlap anything.
 */
typedef struct rill_selective_scan_backward_args {
    rill_tensor x;           /* [batch, length, channels] these as in the forward call */
    rill_tensor delta;       /* [batch, length, channels] */
    rill_tensor A;           /* [channels, states] */
    rill_tensor B;           /* [batch, length, groups, states] */
    rill_tensor C;           /* [batch, length, groups, states] */
    rill_tensor D;           /* [channels] */
    rill_tensor z;           /* [batch, length, channels] */
    rill_tensor delta_bias;  /* [channels] */
    rill_tensor h_init;      /* [sequences, channels, states] */
    rill_tensor offsets;     /* i64 [sequences + 1] */
    rill_tensor dy;          /* [batch, length, channels], optional: the gradient of y */
    rill_tensor dh_final;    /* [sequences, channels, states], optional: the gradient of h_final */
    rill_tensor dx;          /* output [batch, length, channels], optional */
    rill_tensor ddelta;      /* output [batch, length, channels], optional */
    rill_tensor dA;          /* output [channels, states], optional */
    rill_tensor dB;          /* output [batch, length, groups, states], optional */
    rill_tensor dC;          /* output [batch, length, groups, states], optional */
    rill_tensor dD;          /* output [channels], optional; only with D */
    rill_tensor dz;          /* output [batch, length, channels], optional; only with z */
    rill_tensor ddelta_bias; /* output [channels], optional; only with delta_bias */
    rill_tensor dh_init;     /* output [sequences, channels, states], optional; only with h_init */

    bool delta_softplus; /* these as in the forward call */
    bool reverse;
    double delta_min;
    double delta_max;
    uint64_t reserved[8]; /* zero */
} rill_selective_scan_backward_args;

/*
 * Computes those gradients that are given.  No output of the forward call is needed.  Sequences, stream and errors
 * are as in rill_selective_scan; RILL_UNSUPPORTED where the context's backend does not have this operator.  A long
 * sequence may be cut: run the later part first, with the state that enters it as h_init, and hand its dh_init to the
 * earlier one as dh_final; the gradients of A, D and delta_bias are then the sums of the parts'.
 */
RILL_API rill_status rill_selective_scan_backward(rill_context *context,
                                                  const rill_selective_scan_backward_args *args);

#ifdef __cplusplus
}
#endif

#endif
