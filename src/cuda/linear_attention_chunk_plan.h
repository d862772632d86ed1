/* Walks of linear attention by chunks, as a launcher makes them. */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_PLAN_H
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_PLAN_H

#include "linear_attention_chunks.h"
#include "linear_attention_launch.h"
#include "linear_attention_views.h"

/* One walk, before it is known whether the kernels take it. */
typedef struct rl_chunks_plan {
    const rill_tensor *q, *k, *v, *y;
    rl_chunks_args args;
} rl_chunks_plan;

/* Whether the kernels take it; completes it. */
bool rl_chunks_make_plan(rill_context *context, rl_chunks_plan *p);

/* A tensor [batch, length, heads, lanes] for the copy engine. */
bool rl_chunks_describe(rill_context *context, const rill_tensor *t, CUtensorMap *map);

/* Whether 8 neighbours are one aligned access of bfloat16 numbers. */
bool rl_chunks_is_stageable(const rl_attention_view *y, int64_t lanes);

/* The products of its gates, sums where time is cut, and the walk. */
rill_status rl_chunks_launch(rill_context *context, rl_chunks_args *a, rl_chunks_purpose purpose);

/* The gradients by spans of two chunks, where they suit; `taken` says whether. */
rill_status rl_cuda_attention_spans(rill_context *context, const rl_linear_attention_backward_problem *p,
                                    rl_chunks_plan *dq, rl_chunks_plan *dk, bool *taken);
cudaError_t rl_cuda_prepare_attention_spans(rl_cuda_state *state); /* after that of chunks */

#endif
