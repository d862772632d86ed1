/* The kernels of the selective scan's gradients, for the launcher in selective_scan_backward.c. */
#ifndef RL_CUDA_S6_BACK_KERNELS_H
#define RL_CUDA_S6_BACK_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What kernels know of their tensors.  Neat: whatever is in fours, of channels or of states, is whole and one access
 * in memory; and then all by time may be of one type, with one panel of states.  Mixed: x, z, dy and dz are bfloat16,
 * and all else is float32, as the layer has it.
 */
typedef enum rl_s6_back_form {
    RL_S6_BACK_ANY,
    RL_S6_BACK_NEAT,
    RL_S6_BACK_NEAT_F32,
    RL_S6_BACK_NEAT_BF16,
    RL_S6_BACK_NEAT_MIXED,
    RL_S6_BACK_FORMS
} rl_s6_back_form;

/* What each chunk does to a state, and to a gradient that runs against time; keeps the states before tiles. */
const void *rl_s6_back_summary_kernel(bool f64, bool split, rl_s6_back_form form);
size_t rl_s6_back_summary_shared(bool f64);

/* The summaries of neat tensors all of one type, float32 or bfloat16, and one panel of states, with softplus and
 * without limits; `gated`: of gradients that pass z. */
const void *rl_s6_back_summary_neat_kernel(rl_s6_back_form form, bool gated);
size_t rl_s6_back_summary_neat_shared(rl_s6_back_form form, bool gated);

/* Carries both from chunk to chunk: one thread a state. */
const void *rl_s6_back_carry_kernel(bool f64);

/* The gradients themselves. */
const void *rl_s6_back_walk_kernel(bool f64, rl_s6_back_form form);
size_t rl_s6_back_walk_shared(bool f64);

/* The same, for a multiprocessor's three tasks at a time, of tensors all of one type. */
const void *rl_s6_back_roles_kernel(rl_s6_back_form form);
size_t rl_s6_back_roles_shared(void);

/* Sums of dB and dC over blocks of channels, in the first blocks; of the parameters' gradients over pieces. */
const void *rl_s6_back_sums_kernel(bool f64);

/* All of it for a few short sequences: a block a sequence of two channels; then the sums.  `floats`: all tensors by
 * time are float32. */
const void *rl_s6_back_short_kernel(bool f64, bool floats);
const void *rl_s6_back_short_sums_kernel(bool f64);
size_t rl_s6_back_short_shared(bool f64, int64_t length);

#ifdef __cplusplus
}
#endif

#endif
