/* From a problem to the kernels' arguments: selective_scan_back_resolve.c. */
#ifndef RL_CUDA_S6_BACK_RESOLVE_H
#define RL_CUDA_S6_BACK_RESOLVE_H

#include <stdbool.h>

#include "backend.h"
#include "s6_back_args.h"
#include "s6_back_kernels.h"

/* All that follows from the problem alone: its tensors, and the form that they have. */
rl_s6_back_args rl_s6_back_resolve(const rl_selective_scan_backward_problem *problem);

/* Whether all tensors by time are of this type. */
bool rl_s6_back_all_of_type(const rl_s6_back_args *args, rill_dtype dtype);

#endif
