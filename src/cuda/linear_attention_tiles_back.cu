/*
 * The gradients of linear attention of bfloat16 data by chunks, all at once (linear_attention_tiles_back.cuh).
 *
 *     block = a segment of a head, a warpgroup for each chunk
 *
 * A warpgroup makes the state that enters its chunk from the one that enters the segment and the chunks before its
 * own, and the gradient from those behind it: three chunks together, for each of them.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_tiles_back.cuh"

namespace
{

using namespace attention_tiles;

template <bool PIECES>
__global__ void __launch_bounds__(CHUNKS *THREADS, 1) back_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args);
        const int chunk = __shfl_sync(ALL, (int)threadIdx.x / THREADS, 0), chunks = task.chunks();
        Gradients<BackChunk, PIECES> gradients(task, (char *)dynamic_shared, chunk);
        bool bad = false;
        if (gradients.own.thread == 0 && chunk < chunks) gradients.load();
        __syncthreads(); /* the barriers are there */
        if (chunk < chunks) bad = gradients.is_unwelcome(gradients.make_states(chunks));
        shared_publish();
        __syncthreads(); /* the states are there, and a chunk's tiles are its own */
        if (chunk >= chunks) return;
        gradients.run();
        bad = bad || gradients.finite != 0;
        if (args.all.dgate.data && gradients.own.thread < 32) bad = !gradients.finish() || bad;
        if (bad) args.all.marks.all[task.walk] = 1;
        gradients.await_stores();
    }
}

/* The same of a chunk alone, whose states and gates the kernel of states left. */
template <bool PIECES>
__global__ void __launch_bounds__(THREADS, 4) lone_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        const int walk = blockIdx.x / (unsigned)args.all.chunks;
        const int chunk = blockIdx.x - (unsigned)walk * (unsigned)args.all.chunks;
        const Task task(args, walk, chunk);
        Gradients<LoneChunk, PIECES> gradients(task, (char *)dynamic_shared, chunk % CHUNKS);
        let_later_start();
        if (threadIdx.x == 0) {
            barrier_init(gradients.full(), 1);
            barrier_publish();
        }
        __syncthreads(); /* the barrier is there */
        await_earlier();
        int special = 0;
        if (threadIdx.x == 0) {
            gradients.load();
            special = args.all.marks.special[task.walk];
        }
        __syncwarp(); /* the engine is told by registers that a warp's threads share */
        barrier_wait(gradients.full(), 0);
        gradients.fill_table();
        bool bad = gradients.is_unwelcome();
        if (args.all.dgate.data) gradients.cross();
        gradients.run();
        bad = bad || gradients.finite != 0;
        if (args.all.dgate.data && gradients.own.thread < 32) bad = !gradients.finish() || bad;
        bad = bad || special;
        if (bad) args.all.marks.all[task.walk] = 1;
        gradients.await_stores();
    }
}

} // namespace

const void *rl_tiles_lone_kernel(bool pieces)
{
    return pieces ? kernel_address<lone_kernel<true>>() : kernel_address<lone_kernel<false>>();
}

size_t rl_tiles_lone_shared(void)
{
    return LoneLayout::BYTES;
}

const void *rl_tiles_back_kernel(bool pieces)
{
    return pieces ? kernel_address<back_kernel<true>>() : kernel_address<back_kernel<false>>();
}

size_t rl_tiles_back_shared(void)
{
    return BackLayout::BYTES;
}
