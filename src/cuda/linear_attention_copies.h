/* Tensors of linear attention as the copy engine brings and takes tiles of them. */
#ifndef RL_CUDA_LINEAR_ATTENTION_COPIES_H
#define RL_CUDA_LINEAR_ATTENTION_COPIES_H

#include <cuda.h>

#include "device.h"
#include "linear_attention_args.h"

/* A tensor's sizes, and the steps of a tile, of which a row is 128 bytes. */
typedef struct rl_attention_copies {
    int64_t batch, length, heads, lanes;
    int steps;
} rl_attention_copies;

/* False where the driver refuses. The view is one that the engine can move: lanes side by side, no stride below 0. */
bool rl_attention_describe(const rill_context *context, const rl_attention_view *view,
                           const rl_attention_copies *copies, CUtensorMap *map);

#endif
