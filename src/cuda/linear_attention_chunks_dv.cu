/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk of dk and dv. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_dk_and_dv(int64_t keys)
{
    return choose<READ_BOTH>(keys);
}
