/*
 * The products of the gates of all chunks of a walk (linear_attention_chunk_decays.cuh), ahead of the walk, which has
 * no time for them: they are a long chain of small steps.
 *
 *     block = some chunks of one head, one after the other; thread = a step
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_chunk_gates.cuh"

namespace
{

using namespace attention_chunks;

__global__ void __launch_bounds__(STEPS) decays_kernel(const __grid_constant__ rl_chunks_args args)
{
    const uint32_t heads = (uint32_t)args.heads, sequence = blockIdx.x / heads, head = blockIdx.x - sequence * heads;
    const int thread = (int)threadIdx.x;
    Decays &d = *(Decays *)dynamic_shared;
    let_later_start();
    await_earlier();
    const Course course(args, sequence);
    for (int chunk = (int)blockIdx.y; chunk < course.chunks; chunk += (int)gridDim.y) {
        const int64_t step = course.step(chunk) + thread;
        start_decays(d, args, course, thread, step, Raw(args, course, head, step));
        __syncthreads(); /* what the blocks multiply to is there */
        finish_decays(d, course, thread);
        __syncthreads(); /* all is there */
        uint4 *to = (uint4 *)((Decays *)args.gates + place_of(args, course, sequence, head, chunk));
        for (int at = thread; at < (int)(sizeof(Decays) / sizeof(uint4)); at += STEPS)
            to[at] = ((const uint4 *)&d)[at];
        __syncthreads(); /* the next chunk's may be written */
    }
}

} // namespace

const void *rl_chunks_decays_kernel(void)
{
    return kernel_address<decays_kernel>();
}

size_t rl_chunks_decays_bytes(void)
{
    return sizeof(Decays);
}
