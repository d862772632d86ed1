/* The split scan of problems that the GPU holds at once (scan_wave.cu), for the launcher in scan_split.c. */
#ifndef RL_CUDA_SCAN_WAVE_H
#define RL_CUDA_SCAN_WAVE_H

#include "scan_split_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_WAVE_THREADS = 512,
    RL_WAVE_STEPS = 64,     /* of a thread */
    RL_WAVE_LANES_LOG2 = 5, /* channels of a block */
    RL_WAVE_MOST_PARTS = 128
};

/*
 * For float32 tensors without offsets.  Takes an rl_split_args in which a tile is what a block holds, `groups` counts
 * those of all sequences, and tickets are not used; a block a tile, at most as many as there are multiprocessors.
 */
rl_split_kernel rl_scan_wave(bool backward);

#ifdef __cplusplus
}
#endif

#endif
