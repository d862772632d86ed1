/* The split scan of few channels of float32. */
#ifndef RL_CUDA_SCAN_STRIP_H
#define RL_CUDA_SCAN_STRIP_H

#include "device.h"
#include "scan_split_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_STRIP_LANES = 16, /* channels of a chain */
    RL_STRIP_WARPS = 4,  /* of a block */
    RL_STRIP_TILES = 32  /* of a group */
};

/* A chain is 16 channels of a sequence, whose states a carrier hands from group to group of tiles. */
typedef struct rl_strip_args {
    rl_scan_args scan;
    int32_t chains;        /* of all sequences; as many carriers, the first blocks */
    int64_t tiles, groups; /* of a chain */
    /* All bits set before the kernel runs. */
    void *told;   /* [chains, tiles, lanes] a tile's summary */
    void *states; /* [chains, groups, lanes] the state that enters a group */
    void *ends;   /* [chains, tiles, lanes] the state that leaves a tile */
} rl_strip_args;

typedef struct rl_strip_kernel {
    const void *kernel;
    size_t shared; /* bytes of dynamic shared memory */
    int32_t tile_steps;
    int32_t together; /* blocks of a multiprocessor */
} rl_strip_kernel;

/* `large`: of tiles of more steps. */
rl_strip_kernel rl_scan_strip_kernel(bool backward, bool large);
cudaError_t rl_cuda_prepare_scan_strips(const rl_cuda_state *state);

/* Of scans that rl_cuda_scan_split_wanted wants, and whose tensors lie so. */
bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args, rl_split_layout layout,
                                bool backward);
rill_status rl_cuda_scan_strips(rill_context *context, const rl_scan_args *args, bool backward);

#ifdef __cplusplus
}
#endif

#endif
