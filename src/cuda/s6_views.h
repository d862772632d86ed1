/* From a problem's tensors to the views of s6_args.h. */
#ifndef RL_CUDA_S6_VIEWS_H
#define RL_CUDA_S6_VIEWS_H

#include "s6_args.h"

/* An axis of one element has no stride; along the last it is 1. */
void rl_s6_own_strides(const rill_tensor *tensor, int64_t *stride);

/* Whether four neighbours along the last axis, from any multiple of four on, are one aligned access. */
bool rl_s6_is_wide(const rill_tensor *tensor, const int64_t *stride);

/* Strides of [batch, length, (groups,) lanes]. */
rl_s6_view rl_s6_view_of(const rill_tensor *tensor);

/* The same over channels: blocks begin at multiples of 4 channels of their group, so the groups must too. */
rl_s6_view rl_s6_channels_of(const rill_tensor *tensor, int64_t groups, int64_t group_channels);

/* Steps in the order of running. */
rl_s6_view rl_s6_turned(rl_s6_view view, bool reverse);

rl_s6_vector rl_s6_vector_of(const rill_tensor *tensor);
rl_s6_state rl_s6_state_of(const rill_tensor *tensor);

#endif
