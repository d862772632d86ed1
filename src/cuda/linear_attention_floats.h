/*
 * Linear attention by chunks in float32, as its kernels see it: everything that accumulates in float32 and that the
 * bfloat16 kernels leave.  A chunk is 64 steps in the order of running; three kernels go through all of them at once:
 *
 *     sums      what each chunk adds to a state of zero, and backward to a gradient of zero
 *     states    from chunk to chunk: the state that enters each, and the gradient that enters it from behind
 *     answers   y, or the gradients, of each chunk
 *
 * Where a head is a few chunks of few keys and values, one kernel does all three.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_H
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_H

#include <stddef.h>

#include "linear_attention_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_FLOATS_STEPS = 64,          /* of a chunk */
    RL_FLOATS_MOST_WIDE = 64,      /* keys, and values */
    RL_FLOATS_NARROW = 32,         /* those of the smaller kernels */
    RL_FLOATS_THREADS = 128,       /* of a chunk's sums, and of its y */
    RL_FLOATS_WHOLE_THREADS = 256, /* of a chunk where a block has all of a head */
    RL_FLOATS_BACK_THREADS = 256,  /* of a chunk's gradients */
    RL_FLOATS_WHOLE_BACK_THREADS = 256,
    RL_FLOATS_STATE_THREADS = 256,
    RL_FLOATS_MOST_WHOLE = 2, /* chunks of a head in one block */
    RL_FLOATS_MOST_WHOLE_BACK = 2
};

/* What is read or written in pieces of 16 bytes, dq and dk of 8: aligned neighbours of float32. */
enum {
    RL_FLOATS_Q = 1,
    RL_FLOATS_K = 2,
    RL_FLOATS_V = 4,
    RL_FLOATS_DY = 8,
    RL_FLOATS_Y = 16,
    RL_FLOATS_DQ = 32,
    RL_FLOATS_DK = 64,
    RL_FLOATS_DV = 128
};

typedef struct rl_floats_args {
    rl_attention_inputs in;
    rl_attention_view y;                            /* forward */
    rl_attention_state S_final;                     /* likewise */
    rl_attention_view dy, dq, dk, dv, dgate, dbeta; /* backward */
    rl_attention_state dS_final, dS_init;           /* likewise */
    int64_t chunks;
    int32_t wide;  /* the RL_FLOATS bits */
    float *S, *G;  /* by sequence, head and chunk: [wide][wide] of keys and values; a chunk's sum, then what enters */
    float *decays; /* likewise: the product of the gates, in two floats that add up to it */
    /* Many heads backward, by sequence, head and RL_HEADS_LANES keys; then by steps, chunks of them whole, or chunks.
     */
    float *read, *flow, *worth; /* u; what the gates' gradients are the sums of, over keys; and likewise dbeta */
    float *kept;                /* the state that enters a chunk, as threads have it */
    void *records;              /* by sequence, head and chunk: the products of its gates */
    int32_t part;               /* the first of a head's marks that are a kernel's */
    rl_attention_marks marks;   /* of heads that must be run in the loop's order */
} rl_floats_args;

/* The kernels' keys and values. */
static inline int rl_floats_wide(int64_t keys, int64_t values)
{
    return keys <= RL_FLOATS_NARROW && values <= RL_FLOATS_NARROW ? RL_FLOATS_NARROW : RL_FLOATS_MOST_WIDE;
}

/*
 * Take an rl_floats_args.  Sums and answers: a block a chunk, chunks first, then heads, then sequences.  States: as
 * many blocks of RL_FLOATS_STATE_THREADS as states have fours of numbers, by two rows backward.  Whole: a block a
 * head, with the threads of all of its chunks; forward an rl_attention_args too.
 */
const void *rl_floats_sum_kernel(int wide, bool backward);
const void *rl_floats_state_kernel(int wide);
const void *rl_floats_answer_kernel(int wide);
const void *rl_floats_whole_kernel(void);
const void *rl_floats_back_kernel(int wide);
const void *rl_floats_whole_back_kernel(void);
size_t rl_floats_sum_shared(int wide);
size_t rl_floats_answer_shared(int wide);
size_t rl_floats_whole_shared(int64_t chunks);
size_t rl_floats_back_shared(int wide);
size_t rl_floats_whole_back_shared(int64_t chunks);

#ifdef __cplusplus
}
#endif

#endif
