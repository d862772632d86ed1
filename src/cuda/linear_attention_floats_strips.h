/*
 * Linear attention in float32 of heads of up to 128 steps and 32 keys and values, which enter with no state and leave
 * none, as its kernels see it.  What such a head takes is the time of one chain of operations, so the chain is short:
 *
 *     block = 16 steps of a head, which need nothing of other blocks; warp = 16 earlier steps, or the same
 *
 * All products of steps are made at once, as if a head were one chunk (linear_attention_floats.h).
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_H
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_H

#include <stddef.h>

#include "linear_attention_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_STRIPS_STEPS = 16, RL_STRIPS_MOST_STEPS = 128, RL_STRIPS_THREADS = 256 };

/* What a block has backward; those with most to do come first. */
enum { RL_STRIPS_DGATE, RL_STRIPS_DK, RL_STRIPS_DV, RL_STRIPS_DQ, RL_STRIPS_ROLES };

/*
 * Takes an rl_attention_args, cut for the loop's order too, and the RL_FLOATS bits of q, k and v; a block for each
 * strip of each of [sequences, heads], strips first, and the shared memory told here.
 */
const void *rl_strips_kernel(void);
size_t rl_strips_shared(void);
size_t rl_strips_tiles(void); /* of it, what the loop's order has */

/*
 * Takes an rl_attention_backward_args, whose marks.parts it fills, and the RL_FLOATS bits; RL_STRIPS_ROLES rows of
 * blocks.
 */
const void *rl_strips_back_kernel(void);
size_t rl_strips_back_shared(void);

#ifdef __cplusplus
}
#endif

#endif
