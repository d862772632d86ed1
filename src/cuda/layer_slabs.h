/* The gradients of the layer with slabs of a given size, for tests. */
#ifndef RL_CUDA_LAYER_SLABS_H
#define RL_CUDA_LAYER_SLABS_H

#include "backend.h"

/* As the operator's entry, but a slab's rows take at most so many bytes. */
rill_status rl_cuda_layer_back_within(rill_context *context, const rl_selective_layer_backward_problem *problem,
                                      int64_t bytes);

#endif
