/* The kernels of the selective scan, one file a type, for the launcher in selective_scan.c. */
#ifndef RL_CUDA_S6_KERNELS_H
#define RL_CUDA_S6_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The main kernel in its three shapes, and the one that summarises a chunk in two.  float64 has the usual one only.
 */
typedef enum rl_s6_walk {
    RL_S6_USUAL,
    RL_S6_MIDDLE,
    RL_S6_FINE,
    RL_S6_SUMMARY,
    RL_S6_MIDDLE_SUMMARY,
    RL_S6_WALKS
} rl_s6_walk;

typedef struct rl_s6_kernel {
    const void *address;
    size_t shared; /* bytes of dynamic shared memory */
} rl_s6_kernel;

/* `projected`: delta, B and C are float32 beside 16-bit x.  `whole`: as rl_s6_args has it. */
rl_s6_kernel rl_s6_kernel_f64(rl_s6_walk walk);
rl_s6_kernel rl_s6_kernel_f32(rl_s6_walk walk, bool whole);
rl_s6_kernel rl_s6_kernel_bf16(rl_s6_walk walk, bool projected, bool whole);
rl_s6_kernel rl_s6_kernel_f16(rl_s6_walk walk, bool projected, bool whole);

/* Carries states from chunk to chunk: one thread a state. */
const void *rl_s6_carry_kernel(bool f64);

/* Runs on behind a chunk that was summarised too shortly: one warp a channel. */
const void *rl_s6_redo_kernel(void);

/* One step of every sequence; `whole`: at most 16 states, which lie as one. */
const void *rl_s6_step_f64(bool whole);
const void *rl_s6_step_f32(bool whole);
const void *rl_s6_step_bf16(bool projected, bool whole);
const void *rl_s6_step_f16(bool projected, bool whole);

#ifdef __cplusplus
}
#endif

#endif
