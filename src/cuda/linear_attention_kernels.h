/* The kernels of linear attention that walk time step by step, for the launcher in linear_attention.c. */
#ifndef RL_CUDA_LINEAR_ATTENTION_KERNELS_H
#define RL_CUDA_LINEAR_ATTENTION_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_ATTENTION_ROWS = 8,        /* keys of a thread */
    RL_ATTENTION_NARROW_ROWS = 4, /* of a narrow one, which has one value */
    RL_ATTENTION_THREADS = 256,
    RL_ATTENTION_BACKWARD_THREADS = 512
};

/* Values of a thread: 16 bytes of the accumulation type. */
static inline int rl_attention_columns(bool is_double, bool narrow)
{
    return narrow ? 1 : is_double ? 2 : 4;
}

/*
 * Take an rl_attention_args; any grid of blocks of up to RL_ATTENTION_THREADS threads, at least one for each thread
 * of a tile, and the shared memory told by rl_attention_shared.
 */
const void *rl_attention_kernel(bool is_double, bool narrow);

/*
 * The same for one step of each sequence, a single panel of keys, wide states if any, and values that are a multiple
 * of a thread's; with shared memory of its own.  `packed`: the type of float32's q, k and v where a thread finds its
 * lanes of each in aligned pieces of 16 bytes, or of v 8; else RILL_ABSENT.
 */
const void *rl_attention_step_kernel(bool is_double, rill_dtype packed);

static inline size_t rl_attention_step_shared(size_t number, int columns, int groups)
{
    return (size_t)groups * (size_t)columns * number;
}

/*
 * Take an rl_attention_backward_args; any grid of blocks of whole warps, up to RL_ATTENTION_BACKWARD_THREADS threads,
 * and the shared memory told by rl_attention_backward_shared.  column_threads is at least ROWS and at most a warp.
 */
const void *rl_attention_backward_kernel(bool is_double, bool narrow);

/* Takes an rl_attention_sum_args; any grid. */
const void *rl_attention_sum_kernel(bool is_double);

/* Bytes for each step and besides; rows and columns of a whole tile. */
static inline size_t rl_attention_shared(size_t number, int rows, int columns, int groups, int steps)
{
    return (size_t)steps * ((size_t)(2 * rows + columns + groups * columns + 3) * number) + 64;
}
static inline size_t rl_attention_backward_shared(size_t number, int rows, int columns, int groups, int warps,
                                                  int steps)
{
    return (size_t)steps * ((size_t)(3 * rows + 2 * columns + groups * columns + warps + 3) * number) + 64;
}

#ifdef __cplusplus
}
#endif

#endif
