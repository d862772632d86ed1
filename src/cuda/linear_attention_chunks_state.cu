/* Linear attention by chunks (linear_attention_chunk_block.cuh): the walk that gives out its state, too, and the sums
 * of segments. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_y_and_state(int64_t keys)
{
    return choose<ANSWER_AND_STATE>(keys);
}

attention_chunks::Choice attention_chunks::choose_sum(int64_t keys)
{
    return choose<SUM>(keys);
}
