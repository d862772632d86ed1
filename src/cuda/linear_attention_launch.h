/* The ways of linear attention's launcher. */
#ifndef RL_CUDA_LINEAR_ATTENTION_LAUNCH_H
#define RL_CUDA_LINEAR_ATTENTION_LAUNCH_H

#include "device.h"

/* By chunks, on the tensor cores; `taken` is false, and nothing done, where the kernels do not take the problem. */
rill_status rl_cuda_attention_chunks(rill_context *context, const rl_linear_attention_problem *problem, bool *taken);
rill_status rl_cuda_attention_chunks_backward(rill_context *context,
                                              const rl_linear_attention_backward_problem *problem, bool *taken);

/* dgate and dbeta in the loop's order: of the heads [sequences, heads] that are marked, or of all without marks. */
rill_status rl_cuda_attention_gates_by_steps(rill_context *context,
                                             const rl_linear_attention_backward_problem *problem,
                                             const int32_t *marks);

/* dq or dk from what the heads of each query head have. */
rill_status rl_cuda_attention_sum_heads(rill_context *context, const rill_tensor *to, const void *sums, int64_t share,
                                        bool is_double);

#endif
