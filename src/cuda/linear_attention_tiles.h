/*
 * Linear attention of bfloat16 data by chunks, of all heads at once, for up to 64 keys and values.
 *
 *     chain     y of each chunk, and the state handed on from chunk to chunk; backward
 *     states    that enter each chunk, in both directions of time, as a chain, and
 *     lone      the gradients of each chunk by itself
 *
 * Where heads are too few for that, as the float32 kernels (linear_attention_floats.h), with a state for each segment
 * of some chunks only:
 *
 *     sums      what each segment adds to a state of zero, and backward to a gradient of zero
 *     states    from segment to segment: the float32 kernels' own
 *     answers   y of each segment, chunk by chunk, or the gradients of each chunk
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_H
#define RL_CUDA_LINEAR_ATTENTION_TILES_H

#include <cuda.h>

#include "linear_attention_floats.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_TILES_STEPS = 64,           /* of a chunk */
    RL_TILES_CHUNKS = 4,           /* of a segment */
    RL_TILES_WIDE = 64,            /* keys, and values */
    RL_TILES_THREADS = 128,        /* of a block; backward for each chunk of it */
    RL_TILES_CHAIN_GROUPS = 4,     /* of RL_TILES_THREADS of a block of the chain */
    RL_TILES_CHAIN_MOST_BLOCKS = 8 /* of a head */
};

typedef struct rl_tiles_args {
    rl_floats_args all;        /* whose `chunks` are segments; as the kernel of states takes it */
    CUtensorMap q, k, v, dy;   /* tiles of RL_TILES_STEPS steps */
    CUtensorMap y, dq, dk, dv; /* likewise, where the copy engine stores them */
    void *gates;               /* their products, by sequence, head and chunk, as sums or states leave them */
} rl_tiles_args;

/*
 * Take an rl_tiles_args, the chain an rl_attention_args too: the same in the loop's order, cut for its block and
 * memory.  A cluster a head, of states two, one for each direction, with RL_TILES_CHAIN_GROUPS times RL_TILES_THREADS
 * for each block, of states one time more; lone: a block for each chunk of all heads, its states in S and G in two
 * bytes a number, its gates in `gates`.  `pieces`: the copy engine stores all results; `both`: a last state is
 * given out.
 */
const void *rl_tiles_chain_kernel(bool pieces, bool both);
const void *rl_tiles_states_kernel(bool both);
const void *rl_tiles_lone_kernel(bool pieces);
size_t rl_tiles_chain_shared(void);
size_t rl_tiles_states_shared(void);
size_t rl_tiles_lone_shared(void);

/*
 * Take an rl_tiles_args; a block a segment, segments first, then heads, then sequences; sums backward by two rows.
 * `pieces`: y is stored 16 bytes at a time, gradients by the copy engine.
 */
const void *rl_tiles_sum_kernel(bool backward);
const void *rl_tiles_answer_kernel(bool pieces);
const void *rl_tiles_back_kernel(bool pieces);
size_t rl_tiles_sum_shared(void);
size_t rl_tiles_answer_shared(void);
size_t rl_tiles_back_shared(void);
size_t rl_tiles_gates_bytes(void); /* of a chunk */

#ifdef __cplusplus
}
#endif

#endif
