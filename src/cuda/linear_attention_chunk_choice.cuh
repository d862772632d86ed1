/* The kernels of linear attention by chunks, by what they are for; a file has one or two of them. */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_CHOICE_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_CHOICE_CUH

#include <stddef.h>
#include <stdint.h>

namespace attention_chunks
{

/* A kernel, the shared memory and the threads of its block. */
struct Choice {
    const void *kernel;
    size_t shared;
    int threads;
};

Choice choose_y(int64_t keys);
Choice choose_y_and_state(int64_t keys);
Choice choose_dq(int64_t keys);
Choice choose_dk(int64_t keys);
Choice choose_dk_and_dv(int64_t keys);
Choice choose_sum(int64_t keys);
Choice choose_sum_of_state(int64_t keys);

} // namespace attention_chunks

#endif
