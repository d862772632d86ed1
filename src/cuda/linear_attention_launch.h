/* The ways of linear attention's launcher. */
#ifndef RL_CUDA_LINEAR_ATTENTION_LAUNCH_H
#define RL_CUDA_LINEAR_ATTENTION_LAUNCH_H

#include "device.h"
#include "linear_attention_args.h"

/* By chunks, on the tensor cores; `taken` is false, and nothing done, where the kernels do not take the problem. */
rill_status rl_cuda_attention_chunks(rill_context *context, const rl_linear_attention_problem *problem, bool *taken);
rill_status rl_cuda_attention_chunks_backward(rill_context *context,
                                              const rl_linear_attention_backward_problem *problem, bool *taken);

/* The same for up to 64 keys and values, all chunks at once; the walk is the same problem in the loop's order. */
rill_status rl_cuda_attention_tiles(rill_context *context, const rl_attention_args *walk, bool *taken);
rill_status rl_cuda_attention_tiles_backward(rill_context *context, rl_attention_backward_args *walk, bool *taken);

/* The same in float32, for what accumulates in it; the walk is the same problem in the loop's order. */
rill_status rl_cuda_attention_floats(rill_context *context, const rl_attention_args *walk, bool *taken);
rill_status rl_cuda_attention_floats_backward(rill_context *context, rl_attention_backward_args *walk, bool *taken);

/* Cuts a problem for narrow tiles of float32 and blocks of RL_ATTENTION_THREADS or more with `room` bytes to share.
 */
void rl_cuda_attention_cut(rl_attention_args *args, size_t room);

/* In the loop's order, in float32: of all heads, or of those that are marked. */
rill_status rl_cuda_attention_by_steps(rill_context *context, rl_attention_args *args);
rill_status rl_cuda_attention_backward_by_steps(rill_context *context, rl_attention_backward_args *args);

/* dgate and dbeta, and dv with `values`, in the loop's order: of the heads [sequences, heads] that are marked, or of
 * all without marks. */
rill_status rl_cuda_attention_gates_by_steps(rill_context *context,
                                             const rl_linear_attention_backward_problem *problem, int32_t *marks,
                                             bool values);

/* dq or dk from what the heads of each query head have. */
rill_status rl_cuda_attention_sum_heads(rill_context *context, const rill_tensor *to, const void *sums, int64_t share,
                                        bool is_double);

#endif
