/*
 * The gradients of linear attention of bfloat16 data by spans of two chunks, all at once, for 65 to 128 keys and
 * values.
 *
 * The walks of dq and of dk by chunks (linear_attention_chunks.h) go ahead with no answers, and leave the state that
 * enters each span, and the gradient that enters it from behind, rounded to bfloat16.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPANS_H
#define RL_CUDA_LINEAR_ATTENTION_SPANS_H

#include "linear_attention_chunks.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_SPANS_CHUNKS = 2,
    RL_SPANS_LANES = 128,
    RL_SPANS_STATE = RL_SPANS_LANES * RL_SPANS_LANES * 2 /* bytes that are kept of a state */
};

typedef struct rl_spans_args {
    rl_chunks_args walk; /* of dq, in which q is dy, k is v, v is k, and the partner is q; beta lies apart */
    rl_attention_view dq, dk, dv, dgate, dbeta;
    const char *S, *G; /* by head, sequence, span */
    int64_t spans;     /* of a sequence */
    float scale;
    bool has_state; /* S_init is given */
} rl_spans_args;

/* Takes an rl_spans_args, and any number of blocks: each goes from span to span.  `betas`: dbeta is wanted. */
const void *rl_spans_kernel(bool betas);
size_t rl_spans_shared(void);
int rl_spans_threads(void);

#ifdef __cplusplus
}
#endif

#endif
