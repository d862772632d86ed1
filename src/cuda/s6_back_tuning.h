/*
 * How the gradients of a selective scan are cut up.  The cut depends on sizes and options alone, never on timing, so
 * a call repeats bit for bit.
 */
#ifndef RL_CUDA_S6_BACK_TUNING_H
#define RL_CUDA_S6_BACK_TUNING_H

#include "s6_back_args.h"
#include "s6_tuning.h"

enum {
    RL_S6_BACK_ENTRY = 16,    /* steps that the start of a task costs, about */
    RL_S6_BACK_TRIED = 1024,  /* chunks of a sequence, at most: the carries run through them one by one */
    RL_S6_BACK_FREE = 1 << 25 /* bytes of scratch that need not be saved */
};

/* Channels of a block: as many as it may have, shared out evenly in whole warps. */
static inline int32_t rl_s6_back_block_channels(int64_t group_channels, bool f64)
{
    const int64_t most = f64 ? RL_S6_BACK_CHANNELS_F64 : RL_S6_BACK_CHANNELS;
    const int64_t blocks = group_channels > most ? rl_s6_ceil(group_channels, most) : 1;
    const int64_t warps = rl_s6_ceil(rl_s6_ceil(group_channels, blocks), RL_S6_BACK_WARP);
    return (int32_t)((warps > 1 ? warps : 1) * RL_S6_BACK_WARP);
}

/* Steps of a chunk where `length` steps are cut in `chunks`. */
static inline int64_t rl_s6_back_share(int64_t length, int64_t chunks)
{
    return rl_s6_ceil(rl_s6_ceil(length, chunks), RL_S6_STEPS) * RL_S6_STEPS;
}

/*
 * How long `chunks` take, in steps: in the walk a multiprocessor has one block at a time, and rounds of them do not
 * overlap.  The summaries want two at least, so that one computes while another loads: an eighth is their share.
 */
static inline int64_t rl_s6_back_time(int64_t tasks, int64_t length, int64_t chunks, int sms)
{
    int64_t time = rl_s6_ceil(tasks * chunks, sms) * (rl_s6_back_share(length, chunks) + RL_S6_BACK_ENTRY);
    return tasks * chunks < 2 * (int64_t)sms ? time + time / 8 : time;
}

/* Bytes that chunks need: their ends, their parameters' gradients, their sums. */
static inline int64_t rl_s6_back_chunk_bytes(int64_t sequences, int64_t channels, int64_t states, int64_t element)
{
    return sequences * channels * (states * (3 * element + 2) + 2 * element + 12);
}

#endif
