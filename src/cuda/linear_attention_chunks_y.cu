/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk of y. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_y(int64_t keys)
{
    return choose<ANSWER>(keys);
}
