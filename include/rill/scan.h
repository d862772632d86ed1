/* scan: the first-order linear recurrence, forward and backward. */
#ifndef RILL_SCAN_H
#define RILL_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/context.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Formula, for every sequence and channel:
 *
 *     h_t = a_t h_{t-1} + b_t
 *
 * from h_init, or from zero where that is absent: then the first step is h = b, and its decay is not read.  A decay
 * of exactly 0 is a reset: it selects b_t, and drops the state before it even where that is infinite or NaN.
 *
 * Types: a, b, h share one of f64, f32, bf16, f16, c64, c128.  Each state: the accumulation type (f64 with f64, f32
 * with f32, bf16 and f16, else that of a) or the type of a.  A reference context also takes h and the states in f64,
 * or c128, with any of these.  All sizes may be 0.
 *
 * Aliasing: h may be the same view as b, and h_final as h_init; nothing else may overlap an output.  An input may
 * have strides of 0: a constant decay is a with all of them 0, one decay a channel is a with 0 along batch and
 * length.
 */
typedef struct rill_scan_args {
    rill_tensor a;       /* [batch, length, channels] the decays */
    rill_tensor b;       /* [batch, length, channels] the inputs */
    rill_tensor h_init;  /* [sequences, channels], optional: absent means zero */
    rill_tensor offsets; /* i64 [sequences + 1], optional: packed sequences, batch is 1 */
    rill_tensor h;       /* output [batch, length, channels] */
    rill_tensor h_final; /* output [sequences, channels], optional */

    bool reverse;         /* run each sequence from its last step to its first */
    uint64_t reserved[8]; /* zero */
} rill_scan_args;

/*
 * Computes h and, if given, h_final.
 *
 * Sequences are the rows of the batch, or with offsets (non-decreasing, first 0, last length) the steps offsets[s] to
 * offsets[s+1]-1; an empty one gives h_final = h_init bit for bit.  Host offsets are checked; device offsets are
 * clamped into [0, length] and bad ones give unspecified values, never an access out of range.
 *
 * One step at a time is this call at length 1 with h_final the same view as h_init.
 *
 * Stream: on a cuda context with device tensors the call is asynchronous on the context's stream; with host tensors
 * it returns when the outputs are written.  Tensors of one call lie all on the host or all on the device.
 *
 * Errors: a status of 100 and up, with the message in rill_last_error; no output is then promised.
 *
 * Source: Blelloch, "Prefix Sums and Their Applications", 1990, section 1.4, for the recurrence as a scan.
 */
RILL_API rill_status rill_scan(rill_context *context, const rill_scan_args *args);

/*
 * Formula, with g_t the whole gradient of h_t, for the steps of each sequence from the last one run to the first:
 *
 *     g_t  = dh_t + conj(a_{t+1}) g_{t+1}       at the last step  g = dh + dh_final
 *     db_t = g_t,   da_t = g_t conj(h_{t-1}),   dh_init = conj(a_1) g_1
 *
 * h_{t-1} of the first step is h_init; without one da_1 is 0.  No gradient flows past a decay of exactly 0; that
 * decay's own gradient is as above, and 0 where the dropped h_{t-1} is not finite.
 *
 * Types: h as in rill_scan_args.  dh, da, db: the type of a, or f32 where that is real.  dh_final, dh_init: those of
 * a state, or f32 where a is real.  A reference context also takes h and gradients in f64, or c128.
 *
 * Upstream gradients that are absent are zero; gradients that are absent are not computed.  h is read only for da.
 * The gradient of an input with strides of 0 is that of each element: summing it is the caller's.
 *
 * Aliasing: no output may overlap anything.
 */
typedef struct rill_scan_backward_args {
    rill_tensor a;        /* [batch, length, channels] as in the forward call */
    rill_tensor h;        /* [batch, length, channels] its output; optional without da */
    rill_tensor h_init;   /* [sequences, channels] as in the forward call */
    rill_tensor offsets;  /* i64 [sequences + 1] as in the forward call */
    rill_tensor dh;       /* [batch, length, channels], optional: the gradient of h */
    rill_tensor dh_final; /* [sequences, channels], optional: the gradient of h_final */
    rill_tensor da;       /* output [batch, length, channels], optional */
    rill_tensor db;       /* output [batch, length, channels], optional */
    rill_tensor dh_init;  /* output [sequences, channels], optional; only with h_init */

    bool reverse;         /* as in the forward call */
    uint64_t reserved[8]; /* zero */
} rill_scan_backward_args;

/*
 * Computes those of da, db and dh_init that are given.  Sequences, stream and errors are as in rill_scan.  A long
 * sequence may be cut: run the later part first, and hand its dh_init to the earlier one as dh_final.
 */
RILL_API rill_status rill_scan_backward(rill_context *context, const rill_scan_backward_args *args);

#ifdef __cplusplus
}
#endif

#endif
