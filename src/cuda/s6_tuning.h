/*
 * How a selective scan is cut up: the numbers that may be tuned without touching the algorithm.  The cut depends on
 * sizes and options alone, never on timing, so a call repeats bit for bit.
 */
#ifndef RL_CUDA_S6_TUNING_H
#define RL_CUDA_S6_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "s6_args.h"

enum {
    RL_S6_NARROW = 16,       /* channels of a block when wide blocks would leave multiprocessors idle */
    RL_S6_SPLIT_STEPS = 256, /* the least length of a chunk: below it the summaries cost more than they save */
    RL_S6_SPLIT_FACTOR = 4,  /* the least number of chunks worth it: two walks over the steps instead of one */
    RL_S6_SPLIT_MOST = 256,  /* chunks: the carries run through them one by one */
    RL_S6_LONG_STEPS =
        4096, /* the same where summaries are of a chunk's last steps, if states fade as they mostly do */
    RL_S6_STEP_THREADS = 256, /* of a block of the decode step */
    RL_S6_STEP_BLOCKS = 16,   /* of the decode step on a multiprocessor: beyond, a block takes several sequences */
    RL_S6_STEP_MOST = 65535   /* rows of its grid, which CUDA allows */
};

static inline int64_t rl_s6_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Channels of a block: wide ones read B and C less often, narrow ones leave fewer multiprocessors idle. */
static inline int32_t rl_s6_block_channels(int64_t sequences, int64_t groups, int64_t group_channels, int sms)
{
    int64_t wide = sequences * groups * rl_s6_ceil(group_channels, RL_S6_CHANNELS);
    return wide < sms || group_channels <= RL_S6_NARROW ? RL_S6_NARROW : RL_S6_CHANNELS;
}

/* Chunks of a sequence: 1 where sequences and blocks fill at least a third of the device. */
static inline int64_t rl_s6_chunks(int64_t sequences, int64_t blocks, int64_t length, int sms, bool reproducible)
{
    int64_t tasks = sequences * blocks;
    if (reproducible || tasks * 3 >= sms) return 1; /* bits must not depend on the number of sequences */
    int64_t wanted = rl_s6_ceil(2 * (int64_t)sms, tasks), longest = length / RL_S6_SPLIT_STEPS;
    int64_t chunks = wanted < longest ? wanted : longest;
    if (chunks > RL_S6_SPLIT_MOST) chunks = RL_S6_SPLIT_MOST;
    return chunks < RL_S6_SPLIT_FACTOR ? 1 : chunks;
}

/* Chunks of a sequence whose summaries may be short: as many as two blocks a multiprocessor leave room for. */
static inline int64_t rl_s6_long_chunks(int64_t tasks, int64_t length, int sms)
{
    int64_t room = 2 * (int64_t)sms / tasks, longest = length / RL_S6_LONG_STEPS;
    int64_t chunks = room < longest ? room : longest;
    return chunks < 2 ? 1 : chunks;
}

/*
 * The shape that is done first, by the work of the multiprocessor that has most: its channels, times what a channel
 * costs in that shape.  Never asked where bits must not depend on the number of sequences.
 */
static inline rl_s6_shape rl_s6_pick_shape(int64_t sequences, int64_t groups, int64_t group_channels, int sms)
{
    static const int channels[] = {RL_S6_CHANNELS, RL_S6_MIDDLE_CHANNELS, RL_S6_FINE_CHANNELS};
    static const int cost[] = {21, 24, 30};
    rl_s6_shape best = RL_S6_USUAL_SHAPE;
    int64_t least = INT64_MAX;
    for (int k = 0; k < 3; k++) {
        int64_t tasks = sequences * groups * rl_s6_ceil(group_channels, channels[k]);
        int64_t work = rl_s6_ceil(tasks, sms) * channels[k] * cost[k];
        if (work >= least) continue;
        best = (rl_s6_shape)k;
        least = work;
    }
    return best;
}

/* Rows of the decode step's grid: each takes every rows-th sequence. */
static inline int64_t rl_s6_step_rows(int64_t sequences, int64_t blocks, int sms)
{
    int64_t rows = rl_s6_ceil((int64_t)sms * RL_S6_STEP_BLOCKS, blocks);
    if (rows > RL_S6_STEP_MOST) rows = RL_S6_STEP_MOST;
    return rows < sequences ? rows : sequences;
}

static inline int64_t rl_s6_step_whole_rows(int64_t sequences)
{
    int64_t rows = rl_s6_ceil(sequences, RL_S6_LANES);
    return rows < RL_S6_STEP_MOST ? rows : RL_S6_STEP_MOST;
}

#endif
