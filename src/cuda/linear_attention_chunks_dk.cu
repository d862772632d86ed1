/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk of dk. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_dk(int64_t keys)
{
    return choose<READ_GRADIENTS>(keys);
}
