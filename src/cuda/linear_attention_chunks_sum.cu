/* Linear attention by chunks (linear_attention_chunk_block.cuh): the sums of segments. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_sum(int64_t keys)
{
    return choose<SUM>(keys);
}

attention_chunks::Choice attention_chunks::choose_sum_of_state(int64_t keys)
{
    return choose<SUM_OF_STATE>(keys);
}
