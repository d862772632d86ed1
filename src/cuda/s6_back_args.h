/* The gradients of the selective scan as their kernels see them. */
#ifndef RL_CUDA_S6_BACK_ARGS_H
#define RL_CUDA_S6_BACK_ARGS_H

#include "s6_args.h"

/* The shape of a block's work: the picture is in selective_scan_back.cuh. */
enum {
    RL_S6_BACK_STEPS = 16,          /* of a tile */
    RL_S6_BACK_OWN = 2,             /* channels of a thread */
    RL_S6_BACK_WARP = 16,           /* channels of a warp */
    RL_S6_BACK_CHANNELS = 64,       /* of a block, at most */
    RL_S6_BACK_CHANNELS_F64 = 32,   /* the same in float64 */
    RL_S6_BACK_CHANNEL_THREADS = 2, /* threads of a block for each of its channels */
    RL_S6_BACK_SUMMARY_THREADS = 4, /* the same in the summary */
    RL_S6_BACK_BLOCKS = 3,          /* of the walk that a multiprocessor has at a time */
    RL_S6_BACK_LEAST = 32,          /* steps that each task must exceed there */
    RL_S6_BACK_TEAM = 128, /* threads that walk a task where work is cut by roles: selective_scan_back_roles.cu */
    RL_S6_BACK_SHORT_CHANNELS = 2, /* of a block of short sequences: selective_scan_back_short.cu */
    RL_S6_BACK_SHORT_STATES = 16,  /* at most, there */
    RL_S6_BACK_SHORT_THREADS = 512,
    RL_S6_BACK_SHORT_MATES = 8,   /* blocks of a cluster, there */
    RL_S6_BACK_SUM_THREADS = 256, /* of a block of the sums */
    RL_S6_BACK_SHARES = 8         /* of a parameter's sum where there are many parts */
};

/*
 * What a chunk holds that the fast order cannot take: in the low bits the first of its tiles that has it for the
 * states, or RL_S6_BACK_NONE; whether it has any for the gradients; and whether any of the channel's states has been
 * run again.
 */
enum {
    RL_S6_BACK_NONE = (1 << 29) - 1,
    RL_S6_BACK_WILD_GRADIENTS = 1 << 29,
    RL_S6_BACK_RUN_AGAIN = 1 << 30,
    RL_S6_BACK_LAST_PLAIN = 65534
};

/* A gradient of a parameter: [channels, states], or [channels] with no stride along states. */
typedef struct rl_s6_target {
    void *data;
    int64_t channel, state;
    int32_t dtype;
} rl_s6_target;

/*
 * Time is cut into chunks as in the forward scan, and chunks into tiles of RL_S6_BACK_STEPS steps.  Without a cut a
 * task takes `run` sequences one after the other, so that their parameters' gradients are one sum.  A `piece` is a
 * chunk, or such a run of sequences.
 *
 * Acc below is the accumulation type.
 */
typedef struct rl_s6_back_args {
    rl_s6_args scan; /* the inputs, and the cut: its outputs and its scratch are not used */
    rl_s6_view dy, dx, ddelta, dz, dB, dC;
    rl_s6_state dh_final, dh_init;
    rl_s6_target dA, dD, dbias;
    int64_t groups, run, pieces;
    int32_t shares;       /* of a parameter's sum over the pieces: 1 or RL_S6_BACK_SHARES */
    int32_t input_shares; /* of a sum of dB or dC over blocks of channels: likewise */
    int64_t sum_blocks;   /* of the sums' launch: those that sum dB and dC */
    int64_t rows;         /* of dB and dC: batch x length */
    bool clamps;          /* a step size may be clamped */
    bool whole;           /* no sequence is longer than a tile: then what stands up to `plain` is not there */
    bool add_groups;      /* a group's dB and dC lie in one block: written where they belong */
    int32_t form;         /* what the kernels know of the tensors: rl_s6_back_form in s6_back_kernels.h */
    bool needs_outputs;   /* dz is wanted, and with it the sums that y is made of */
    int32_t mates;        /* blocks of short sequences that add up their dB and dC before they store them, or 1 */

    void *kept;        /* [tiles, blocks, panels, 2, threads, 4] Acc: the state before a tile, but for a chunk's
                          first, as the threads hold them (place_of in selective_scan_back.cuh) */
    void *kept_sums;   /* [tiles, channels] Acc: the sum of the chunk's step sizes before it */
    void *ends;        /* [sequences, chunks, ...] likewise: what a chunk leaves, started from zero; then the states
                          that it starts from.  This and the next only where there are chunks */
    void *backs;       /* [sequences, chunks, ...] likewise: the same of the gradients that run against time */
    double *step_sums; /* [sequences, chunks, channels]: the sum of a chunk's step sizes */
    int32_t *wild;     /* [sequences, chunks, channels]: what of a chunk needs the loop's order */
    uint16_t *plain;   /* [sequences, chunks, channels, states]: the first of a chunk's tiles of which `kept` is the
                          state, not what is to be added to what the chunk makes of the state that it starts from */
    void *A_parts;     /* [pieces, ...] likewise; Acc, as is all that follows */
    void *D_parts;     /* [pieces, channels] */
    void *bias_parts;  /* [pieces, channels] */
    void *bc_parts;    /* [blocks / mates, rows, 2, states]: the blocks' dB and dC */
    int32_t *again;  /* [pieces, blocks]: tasks that selective_scan_back_walk.cu must do after the cut by roles; NULL:
                        it does them all */
    int64_t pace[9]; /* bytes of a step of the tensors in the order of selective_scan_back_rows.cuh, for the cut by
                        roles */
} rl_s6_back_args;

#endif
