/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk that gives out its state, too. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_y_and_state(int64_t keys)
{
    return choose<ANSWER_AND_STATE>(keys);
}
