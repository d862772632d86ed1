/* The kernels of the selective scan, one file a type, for the launcher in selective_scan.c. */
#ifndef RL_CUDA_SCAN_KERNELS_H
#define RL_CUDA_SCAN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The main kernel in its two shapes, and the one that summarises a chunk; float64 has no fine shape. */
typedef enum rl_scan_walk { RL_SCAN_USUAL, RL_SCAN_FINE, RL_SCAN_SUMMARY } rl_scan_walk;

/* `projected`: delta, B and C are float32 beside 16-bit x. */
const void *rl_scan_kernel_f64(rl_scan_walk walk);
const void *rl_scan_kernel_f32(rl_scan_walk walk);
const void *rl_scan_kernel_bf16(rl_scan_walk walk, bool projected);
const void *rl_scan_kernel_f16(rl_scan_walk walk, bool projected);

/* Their dynamic shared memory, by accumulation type. */
size_t rl_scan_shared_bytes(bool f64);

/* Carries states from chunk to chunk: one thread a state. */
const void *rl_scan_carry_kernel(bool f64);

/* One step of every sequence. */
const void *rl_scan_step_f64(void);
const void *rl_scan_step_f32(void);
const void *rl_scan_step_bf16(bool projected);
const void *rl_scan_step_f16(bool projected);

#ifdef __cplusplus
}
#endif

#endif
