/* The kernels of the scan that walk time serially, for the launcher in scan.c. */
#ifndef RL_CUDA_SCAN_KERNELS_H
#define RL_CUDA_SCAN_KERNELS_H

#include <stdbool.h>

#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_SCAN_PLAIN_THREADS = 128 };

/* Takes an rl_scan_args, any grid of blocks of up to RL_SCAN_PLAIN_THREADS threads; one for short sequences. */
const void *rl_scan_plain_kernel(rill_dtype activations, bool backward, bool is_short);

#ifdef __cplusplus
}
#endif

#endif
