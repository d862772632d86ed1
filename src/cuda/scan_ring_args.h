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

/* Channels of a tile, at most and at the least: 256 bytes or more, where they are contiguous and many. */
RL_SCAN_RING_CONSTANT int rl_scan_ring_most(int size, bool along)
{
    return along ? 32 : size == 2 ? 128 : 64;
}
RL_SCAN_RING_CONSTANT int rl_scan_ring_least(int size, bool along)
{
    return !along && size == 2 ? 64 : 32;
}

/*
 * Lines of a channel in a tile along time.  Channels lie far apart there, and memory is slow at a line here and a
 * line there: two side by side took 10 % less time than one, four another 2 %, for which the three tensors of a
 * backward tile leave no room.
 */
RL_SCAN_RING_CONSTANT int rl_scan_ring_lines(bool along, bool backward)
{
    return !along ? 1 : backward ? 2 : 4;
}

/* Steps of a tile, along time of a line of it. */
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
