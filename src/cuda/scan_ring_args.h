/* The scan by a ring of tiles: what its launcher (scan_ring.c) hands its kernels (scan_ring.cuh). */
#ifndef RL_CUDA_SCAN_RING_ARGS_H
#define RL_CUDA_SCAN_RING_ARGS_H

#include <cuda.h>

#include "scan_args.h"

enum {
    RL_SCAN_RING_LINE = 128, /* bytes of a channel in a tile along time: the widest row that is swizzled */
    RL_SCAN_RING_GROUP = 8   /* steps in registers at a time; tiles hold a multiple of it */
};

#ifdef __cplusplus
#define RL_SCAN_RING_CONSTANT constexpr
#else
#define RL_SCAN_RING_CONSTANT static inline
#endif

/* Channels of a tile, at most; also half as many.  Where they are contiguous, 256 bytes or more. */
RL_SCAN_RING_CONSTANT int rl_scan_ring_channels(int size, bool along)
{
    return size == 2 && !along ? 128 : 64;
}

/* Steps of a tile: 8 KiB of the most channels, but 16 KiB of the largest elements. */
RL_SCAN_RING_CONSTANT int rl_scan_ring_steps(int size, bool along)
{
    return along || size > 2 ? RL_SCAN_RING_LINE / size : 32;
}

typedef struct rl_scan_ring_args {
    CUtensorMap a, input, before, output, decay; /* those that are given; a only where it is streamed */
    rl_scan_args scan;
    int32_t blocks; /* of channels */
    int32_t stages; /* of the ring */
    bool streams_a; /* else a channel has one decay for all of its steps */
} rl_scan_ring_args;

#endif
