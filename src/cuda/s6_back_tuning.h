/*
 * How the gradients of a selective scan are cut up.  The cut depends on sizes and options alone, never on timing, so
 * a call repeats bit for bit.
 */
#ifndef RL_CUDA_S6_BACK_TUNING_H
#define RL_CUDA_S6_BACK_TUNING_H

#include "s6_back_args.h"
#include "s6_tuning.h"

enum {
    RL_S6_BACK_ENTRY = 16,         /* steps that the start of a task costs, about */
    RL_S6_BACK_TRIED = 1024,       /* chunks of a sequence, at most: the carries run through them one by one */
    RL_S6_BACK_FREE = 1 << 25,     /* bytes of scratch that need not be saved */
    RL_S6_BACK_FEW_SUMS = 1 << 19, /* numbers of dB and dC that are too few for a thread each four */
    RL_S6_BACK_SHORT_ROUNDS = 2    /* blocks of short sequences for each multiprocessor, at most */
};

/* Steps of a short sequence, at most: shared memory holds them all. */
static inline int64_t rl_s6_back_short_steps(bool f64)
{
    return f64 ? 128 : 256;
}

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
    return rl_s6_ceil(rl_s6_ceil(length, chunks), RL_S6_BACK_STEPS) * RL_S6_BACK_STEPS;
}

/*
 * How long `chunks` take, in quarter steps of a full multiprocessor: rounds of blocks do not overlap, and the fewer
 * blocks of the last share a multiprocessor, the faster each of them is.  A cut costs the summaries' way back.
 */
static inline int64_t rl_s6_back_time(int64_t tasks, int64_t length, int64_t chunks, int sms)
{
    const int64_t blocks = tasks * chunks, round = (int64_t)sms * RL_S6_BACK_BLOCKS;
    const int64_t rest = rl_s6_ceil(blocks % round, sms);
    const int64_t quarters = blocks / round * 4 + (rest ? rest + 1 : 0);
    const int64_t time = quarters * (rl_s6_back_share(length, chunks) + RL_S6_BACK_ENTRY);
    return time + time * (chunks - 1) / (8 * chunks);
}

/* Bytes that chunks need: their ends, their parameters' gradients, their sums. */
static inline int64_t rl_s6_back_chunk_bytes(int64_t sequences, int64_t channels, int64_t states, int64_t element)
{
    return sequences * channels * (states * (3 * element + 2) + 2 * element + 12);
}

/* Numbers of the states of all channels in the threads' order. */
static inline int64_t rl_s6_back_matrix(const rl_s6_args *scan)
{
    return scan->blocks * scan->panels * scan->block_channels * RL_S6_PANEL;
}

/* Shares of the sum of a parameter's gradient over so many pieces. */
static inline int32_t rl_s6_back_shares(int64_t pieces)
{
    return pieces >= 4 * RL_S6_BACK_SHARES ? RL_S6_BACK_SHARES : 1;
}

/* Shares of a sum of dB or dC: where there are few threads to go round, and each would add up many. */
static inline int32_t rl_s6_back_input_shares(int64_t numbers, int64_t blocks_per_group)
{
    return numbers < RL_S6_BACK_FEW_SUMS && blocks_per_group >= 4 * RL_S6_BACK_SHARES ? RL_S6_BACK_SHARES : 1;
}

#endif
