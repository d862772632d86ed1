/* Linear attention forward in the loop's own order: the kernel (linear_attention_walk_forward.cuh). */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_walk_forward.cuh"

namespace
{

using namespace attention;

template <typename N, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(RL_ATTENTION_THREADS, 2) walk_kernel(const __grid_constant__ rl_attention_args args)
{
    unsigned char *const shared = dynamic_shared;
    const rl_attention_inputs &in = args.in;
    const int64_t tasks = in.sequences * in.heads * in.slabs;
    let_later_start();
    await_earlier();
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t walk = divide(task, in.slabs);
        const int mark = mark_of(args.marks, walk);
        if (mark > 0)
            walk_slab<N, ROWS, COLUMNS>(args, walk, task - walk * in.slabs, mark == RL_ATTENTION_ALL, (N *)shared);
    }
}

template <typename N, int COLUMNS> const void *pick(bool narrow)
{
    return narrow ? kernel_address<walk_kernel<N, RL_ATTENTION_NARROW_ROWS, 1>>()
                  : kernel_address<walk_kernel<N, RL_ATTENTION_ROWS, COLUMNS>>();
}

} // namespace

const void *rl_attention_kernel(bool is_double, bool narrow)
{
    return is_double ? pick<double, 2>(narrow) : pick<float, 4>(narrow);
}
