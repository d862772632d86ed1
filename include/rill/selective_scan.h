/* selective_scan: the Mamba (S6) recurrence. */
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

#ifdef __cplusplus
}
#endif

#endif
