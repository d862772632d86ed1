/* The selective scan as its kernels see it: views resolved for addressing, and the work cut into pieces. */
#ifndef RL_CUDA_S6_ARGS_H
#define RL_CUDA_S6_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/tensor.h>

/*
 * The shape of a block's work (the picture is in selective_scan.cuh).  These are the algorithm's own; what may be
 * tuned to the problem is in s6_tuning.h.
 */
enum {
    RL_S6_STEPS = 32,       /* of a tile */
    RL_S6_LANES = 4,        /* threads that share a channel */
    RL_S6_MIDDLE_LANES = 8, /* in the middle shape */
    RL_S6_FINE_LANES = 16,  /* in the fine shape */
    RL_S6_OWN = 4,          /* states of a thread, but 2 in the middle shape and 1 in the fine one */
    RL_S6_PANEL = 16,       /* states of a channel in registers at a time */
    RL_S6_CHANNELS = 32,    /* of a block, at most */
    RL_S6_MIDDLE_CHANNELS = 16,
    RL_S6_FINE_CHANNELS = 8,
    RL_S6_PRODUCERS = 128,          /* threads that prepare and write tiles */
    RL_S6_STEP_WHOLE_THREADS = 128, /* of a block of the decode step of whole states */
};

/*
 * Of a chunk: it must be redone in the loop's own order; or what came before its last steps has not faded as its
 * summary supposed, and what follows must be redone.
 */
enum { RL_S6_WILD = 1, RL_S6_UNFADED = 2 };

typedef enum rl_s6_shape { RL_S6_USUAL_SHAPE, RL_S6_MIDDLE_SHAPE, RL_S6_FINE_SHAPE } rl_s6_shape;

/* Strides in elements.  `step` is in the order of running, `lane` is the axis of channels or states, `wide` whether
 * four neighbours are one access. */
typedef struct rl_s6_view {
    void *data;
    int64_t batch, step, group, lane;
    int32_t dtype;
    bool wide;
} rl_s6_view;

/* Bytes from step to step and from tile to tile of a view: as ready numbers they need no registers. */
typedef struct rl_s6_pace {
    int64_t step, tile;
} rl_s6_pace;

typedef struct rl_s6_vector {
    const void *data;
    int64_t stride;
} rl_s6_vector;

typedef struct rl_s6_state {
    void *data;
    int64_t sequence, channel, state;
    int32_t dtype;
    bool wide;
} rl_s6_state;

/*
 * The work is sequences x chunks x blocks, the block fastest.  A chunk is a part of a sequence's steps, a multiple of
 * a tile long; only problems with too few sequences and channels to fill the device have more than one.  A block
 * never holds channels of two groups.
 */
typedef struct rl_s6_args {
    rl_s6_view x, delta, z, y, B, C;
    bool wide;        /* all of these are */
    bool A_wide;      /* A is */
    bool states_wide; /* so are B, C, A and the states in the accumulation type, and no four of states is cut short */
    rl_s6_vector D, bias;
    const void *A;
    int64_t A_channel, A_state;
    rl_s6_state h_init, h_final;
    const int64_t *offsets;
    int64_t offsets_stride;

    int64_t length, channels, states, sequences;
    int64_t group_channels;   /* channels of a group */
    int64_t blocks_per_group; /* blocks of channels in a group */
    int64_t blocks;           /* of all groups */
    int64_t chunks;
    int64_t tasks;
    int64_t first_task;     /* of a launch */
    int32_t block_channels; /* 32, 16 or, in the fine shape, 8 */
    int32_t panels;         /* of states, at least 1 */
    rl_s6_shape shape;

    void *carry;       /* [sequences, chunks, channels, states]: the states that a chunk starts from, and the states
                          between tiles where they do not all fit in registers; NULL where neither is needed */
    void *local;       /* [sequences, chunks, channels, states]: the states a chunk ends with, started from zero */
    double *step_sums; /* [sequences, chunks, channels]: the sum of a chunk's step sizes; or minus that of its last
                          steps, where only these were summarised */
    int32_t *wild;     /* [sequences, chunks, channels]: RL_S6_WILD, RL_S6_UNFADED */

    bool softplus, reverse;
    bool clamps; /* the limits change some step size that softplus, where it acts, can bring */
    bool steady; /* they make none of them negative or huge */
    double delta_min, delta_max;

    bool whole; /* nothing is asked of kernels but wide tensors, full blocks of channels, one panel of states that
                   all exist, and softplus alone; steps of a tile may be missing */
    bool fades; /* chunks may be summarised by their last steps, behind which what came before has faded */
} rl_s6_args;

/* What walks need besides. */
typedef struct rl_s6_paces {
    rl_s6_pace x, delta, z, y, B, C;
} rl_s6_paces;

typedef struct rl_s6_walk_args {
    rl_s6_args scan;
    rl_s6_paces paces; /* of whole work */
} rl_s6_walk_args;

#endif
