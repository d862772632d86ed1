/* The kernels of the scan that walk time serially, for the launcher in scan.c. */
#ifndef RL_CUDA_SCAN_KERNELS_H
#define RL_CUDA_SCAN_KERNELS_H

#include <stdbool.h>

#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_SCAN_PLAIN_THREADS = 128,
    RL_SCAN_PANEL_MANY = 32, /* channels of a panel */
    RL_SCAN_PANEL_FEW = 8    /* for small problems */
};

#ifdef __cplusplus
constexpr
#else
static inline
#endif
    int
    rl_scan_panel_threads(int channels)
{
    return channels == RL_SCAN_PANEL_MANY ? 256 : 128;
}

/* Takes an rl_scan_args, any grid of blocks of up to RL_SCAN_PLAIN_THREADS threads; one for short sequences. */
const void *rl_scan_plain_kernel(rill_dtype activations, bool backward, bool is_short);

/*
 * Takes an rl_scan_args, any grid of blocks of rl_scan_panel_threads(RL_SCAN_PANEL_MANY) threads, each for that many
 * channels.  mixed: not all tensors over time are of the activations' type.
 */
const void *rl_scan_panel_kernel(rill_dtype activations, bool mixed, bool backward);

/*
 * Takes an rl_scan_args whose tensors over time are of one type, and blocks of
 * rl_scan_panel_threads(RL_SCAN_PANEL_FEW) threads, for that many channels (x) of a sequence (y).
 */
const void *rl_scan_small_kernel(rill_dtype dtype, bool backward);

/*
 * These take an rl_scan_ring_args, a block a task, `channels` + 32 threads.  along: time is contiguous, else channels
 * are.
 */
const void *rl_scan_ring_kernel_f64(bool along, bool backward, int channels);
const void *rl_scan_ring_kernel_f32(bool along, bool backward, int channels);
const void *rl_scan_ring_kernel_bf16(bool along, bool backward, int channels);
const void *rl_scan_ring_kernel_f16(bool along, bool backward, int channels);
const void *rl_scan_ring_kernel_c64(bool along, bool backward, int channels);
const void *rl_scan_ring_kernel_c128(bool along, bool backward, int channels);

#ifdef __cplusplus
}
#endif

#endif
