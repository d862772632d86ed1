/* Linear attention by chunks (linear_attention_chunk_block.cuh): the states alone, which are kept for gradients. */
#include "linear_attention_chunk_block.cuh"

attention_chunks::Choice attention_chunks::choose_kept_states()
{
    return choice<2 * WIDE, KEEP_STATES>();
}
