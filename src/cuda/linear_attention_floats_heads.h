/*
 * Linear attention in float32 of many heads: a block goes through all chunks of a head, one after the other, and
 * keeps what it needs of the state.  The walks of the gradients are the forward one with tensors in other places:
 *
 *     what     asks   from   of     goes             out, by 32 lanes of `of`
 *     y        q      k      v      forward in time  y_t = scale (b_t Sᵀ q_t + Σ_{j <= t} D_tj β_j (q_t · k_j) v_j)
 *     dq       dy     v      k      forward          likewise, the state turned
 *     dv       k      q      dy     backward         dv_t = β_t (e_t Gᵀ k_t + scale Σ_{s >= t} D_st (q_s · k_t) dy_s)
 *     dk       v      dy     q      backward         likewise
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_H
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_H

#include <cuda.h>
#include <stddef.h>

#include "device.h"
#include "linear_attention_floats.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_HEADS_Y, RL_HEADS_DQ, RL_HEADS_DV, RL_HEADS_DK };
enum { RL_HEADS_Q, RL_HEADS_K, RL_HEADS_V, RL_HEADS_TO_Y, RL_HEADS_SIDES };
enum { RL_HEADS_THREADS = 640, RL_HEADS_LANES = 32, RL_HEADS_GATES_THREADS = 512 };

typedef struct rl_heads_args {
    CUtensorMap
        tiles[RL_HEADS_SIDES]; /* [sequences, heads, steps, lanes], RL_HEADS_LANES lanes of a chunk swizzled */
    rl_floats_args all;
} rl_heads_args;

/* The launcher: whether these kernels take the problem, of either direction; and then its walks, but for the heads
 * that they mark. */
bool rl_heads_plan(const rill_context *context, const rl_floats_args *a, rl_heads_args *to);
rill_status rl_heads_run(rill_context *context, rl_heads_args *a);
rill_status rl_heads_run_back(rill_context *context, rl_heads_args *a);
cudaError_t rl_heads_prepare(rl_cuda_state *state);

/*
 * Products of gates: of each chunk of [sequences, heads] ahead of the others, by a block of RL_FLOATS_STEPS threads;
 * bytes of each in all.records.
 */
const void *rl_heads_records_kernel(void);
size_t rl_heads_records_shared(void);
size_t rl_heads_record(void);

/*
 * A block for each RL_HEADS_LANES lanes of what it makes of each of [sequences, heads], lanes first; that is its
 * place in marks.parts from `part` of each head on.  With dgate, that of dq comes before that of dk, and with dgate
 * or dbeta the gates' comes last, a block a head, which has a head's last mark.
 */
const void *rl_heads_kernel(void);
size_t rl_heads_shared(void);
const void *rl_heads_back_kernel(int what); /* dq, dv or dk */
size_t rl_heads_back_shared(int what);
const void *rl_heads_gates_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
