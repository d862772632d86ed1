/* What the summaries of neat tensors take beside s6_back_args.h: selective_scan_back_summary_neat.cu. */
#ifndef RL_CUDA_S6_BACK_COPIES_H
#define RL_CUDA_S6_BACK_COPIES_H

#include <cuda.h>

#include <rill/context.h>

#include "s6_back_args.h"

/* The tensors as the copy engine brings spans of two tiles of them, of a block's channels or of a panel of states. */
typedef struct rl_s6_back_copies {
    CUtensorMap delta, x, dy, z, B, C;
} rl_s6_back_copies;

typedef struct rl_s6_back_summary_args {
    rl_s6_back_args back;
    rl_s6_back_copies copies;
} rl_s6_back_summary_args;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Fills *copies.  False where the summaries are not those of the kernel for neat tensors, or the copy engine cannot
 * bring what it reads.
 */
bool rl_s6_back_describe(rill_context *context, const rl_s6_back_args *args, rl_s6_back_copies *copies);

#ifdef __cplusplus
}
#endif

#endif
