/* The walks of dq and dk side by side, for the gates' gradients. */
#ifndef RL_CPU_LINEAR_ATTENTION_GATES_H
#define RL_CPU_LINEAR_ATTENTION_GATES_H

#include "linear_attention.h"

/*
 * Runs both walks.  After it dq->inner holds each panel's part of <G, S before the step>, at rl_attention_sums_at. dq
 * has q as its partner, dk has k, and both have panels.
 */
rill_status rl_attention_run_gates(rill_context *context, rl_attention_walk *dq, rl_attention_walk *dk);

#endif
