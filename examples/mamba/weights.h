/* The weights of a checkpoint, where a backend computes. */
#ifndef MAMBA_WEIGHTS_H
#define MAMBA_WEIGHTS_H

#include "checkpoint.h"
#include "compute.h"

/* A block: out = hidden + W_out y, with y the gated selective layer of silu(conv(x)), and [x, z] = W_in norm(hidden).
 */
typedef struct layer {
    float *norm;               /* [width] */
    float *in, *in_bias;       /* [2 channels, width], [2 channels] or NULL */
    float *conv, *conv_bias;   /* [taps, channels], [channels] or NULL */
    float *down, *B, *C;       /* [rank, channels], [states, channels] twice: one tensor, x_proj */
    float *delta, *delta_bias; /* [channels, rank], [channels] */
    float *A_log, *D;          /* [channels, states], [channels] */
    float *out, *out_bias;     /* [width, channels], [width] or NULL */
} layer;

typedef struct weights {
    config sizes;
    layer *layers;
    float *embedding, *norm, *head; /* [vocab, width], [width], [vocab, width]: where tied the embedding */
} weights;

weights weights_load(compute *on, checkpoint *from);
void weights_free(compute *on, weights *loaded);

#endif
