/* selective_layer: the projections of a Mamba block and its selective scan in one call. */
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

#ifdef __cplusplus
}
#endif

#endif
