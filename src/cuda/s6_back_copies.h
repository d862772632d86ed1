/* What the summaries of neat tensors take beside s6_back_args.h: selective_scan_back_summary_neat.cu. */
#ifndef RL_CUDA_S6_BACK_COPIES_H
#define RL_CUDA_S6_BACK_COPIES_H

#include <cuda.h>

#include "s6_back_args.h"

/* The tensors as the copy engine brings spans of two tiles of them, of a block's channels or of a panel of states. */
typedef struct rl_s6_back_copies {
    CUtensorMap delta, x, dy, z, B, C;
} rl_s6_back_copies;

typedef struct rl_s6_back_summary_args {
    rl_s6_back_args back;
    rl_s6_back_copies copies;
} rl_s6_back_summary_args;

#endif
