/* The split scan of few channels of float32 that are neighbours in memory. */
#ifndef RL_CUDA_SCAN_STRIP_H
#define RL_CUDA_SCAN_STRIP_H

#include "device.h"
#include "scan_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_STRIP_LANES = 16, /* channels of a tile */
    RL_STRIP_WARPS = 4,  /* of a block: four channels each */
    RL_STRIP_STEPS = 8,  /* of a thread */
    RL_STRIP_GROUP = 16, /* tiles whose summaries are joined before they are folded */
    RL_STRIP_CHAINS = 8  /* at most, of a carrying block */
};

/* A chain is 16 channels of a sequence; its tiles are 32 RL_STRIP_STEPS steps each. */
typedef struct rl_strip_args {
    rl_scan_args scan;
    int32_t chains;   /* of all sequences */
    int32_t carriers; /* the first blocks, which carry the chains' states from group to group of tiles */
    int64_t tiles;    /* of a chain */
    /* All bits set before the kernel runs. */
    void *told;   /* [chains, tiles, lanes] a tile's summary */
    void *joined; /* [chains, groups - 1, lanes] a group's summary */
    void *states; /* [chains, groups, lanes] the state that enters a group */
    void *ends;   /* [chains, tiles, lanes] the state that leaves a tile */
} rl_strip_args;

/* Takes an rl_strip_args; carriers + chains * tiles blocks. */
const void *rl_scan_strip_kernel(bool backward);
size_t rl_scan_strip_shared(bool backward);

/* As rl_cuda_scan_split_wanted, of scans for which that holds. */
bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args);
cudaError_t rl_cuda_prepare_scan_strips(void);
rill_status rl_cuda_scan_strips(rill_context *context, const rl_scan_args *args, bool backward);

#ifdef __cplusplus
}
#endif

#endif
