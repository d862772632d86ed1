/* Which kernel of linear attention by chunks a walk takes (linear_attention_chunk_block.cuh). */
#include "linear_attention_chunk_choice.cuh"
#include "linear_attention_chunks.h"

using namespace attention_chunks;

static Choice choose(int64_t keys, rl_chunks_purpose purpose)
{
    switch (purpose) {
    case RL_CHUNKS_Y:
        return choose_y(keys);
    case RL_CHUNKS_Y_AND_STATE:
        return choose_y_and_state(keys);
    case RL_CHUNKS_DQ:
        return choose_dq(keys);
    case RL_CHUNKS_DK:
        return choose_dk(keys);
    case RL_CHUNKS_DK_AND_DV:
        return choose_dk_and_dv(keys);
    case RL_CHUNKS_SUM:
        return choose_sum(keys);
    default:
        return choose_sum_of_state(keys);
    }
}

const void *rl_chunks_kernel(int64_t keys, rl_chunks_purpose purpose)
{
    return choose(keys, purpose).kernel;
}

size_t rl_chunks_shared(int64_t keys, rl_chunks_purpose purpose)
{
    return choose(keys, purpose).shared;
}

int rl_chunks_threads(int64_t keys, rl_chunks_purpose purpose)
{
    return choose(keys, purpose).threads;
}

bool rl_chunks_has_products(void)
{
#ifdef RL_GPU_90A
    return true;
#else
    return false;
#endif
}
