/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk of dq. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_dq(int64_t keys)
{
    return choose<READ_STATES>(keys);
}
