/* Calls of linear attention made of whole tensors of drawn values, to be bent by hand, and their judge. */
#ifndef CONFORMANCE_ATTENTION_CALLS_H
#define CONFORMANCE_ATTENTION_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "operators.h"

typedef struct attention_sizes {
    int64_t batch, length, query_heads, heads, keys, values;
    int64_t sequences; /* with offsets; 0: the batch */
} attention_sizes;

/*
 * Every tensor of both directions, contiguous and of one type, states of the accumulation type: inputs and upstream
 * gradients of drawn values (gates within .8 and 1), outputs full of NaN.  The args structs hold all of them but
 * offsets.  Gradients of the inputs are by name d's: backward.dq and so on.
 */
typedef struct attention {
    rill_linear_attention_args forward;
    rill_linear_attention_backward_args backward;
    void *memory[32];
    int count;
} attention;

attention attention_make(rill_dtype dtype, attention_sizes sizes);
void attention_free(attention *made);

/* The options, gates and states of the forward args for the backward ones too. */
void attention_share(attention *made);

/*
 * Runs the call, and holds every output against the reference and the plain loop on `judged`, the same call in other
 * views (NULL: the call itself).  False, with a line on stdout, where it is refused or misses the bound.
 */
bool call_agrees(rill_context *context, const op *row, const void *args, const void *judged);

/* The same of outputs that are already there. */
bool call_is_right(const op *row, const void *args, const void *judged);

/* Both directions of it; the first that misses is named. */
bool attention_agrees(rill_context *context, const attention *made, const char *what);

/* ‖a - b‖ <= tolerance ‖b‖; what is not finite never is. */
bool views_near(const rill_tensor *a, const rill_tensor *b, double tolerance);

#endif
