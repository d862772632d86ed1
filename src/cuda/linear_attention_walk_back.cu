/* The gradients of linear attention in the loop's own order: the kernel (linear_attention_walk_back.cuh). */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_walk_back.cuh"

namespace
{

using namespace attention;

/* Whether the block has anything to do, asked of all its walks at once: one after the other, marks are a long way. */
__device__ inline bool has_work(const rl_attention_marks &marks, int64_t walks)
{
    int mark = marks.parts != nullptr;
    for (int64_t walk = blockIdx.x + (int64_t)threadIdx.x * gridDim.x; walk < walks && !mark;
         walk += (int64_t)blockDim.x * gridDim.x)
        mark = mark_of(marks, walk);
    return __syncthreads_or(mark);
}

template <typename N, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(RL_ATTENTION_BACKWARD_THREADS)
    back_kernel(const __grid_constant__ rl_attention_backward_args args)
{
    unsigned char *const shared = dynamic_shared;
    const rl_attention_inputs &in = args.in;
    let_later_start();
    await_earlier();
    const int64_t walks = in.sequences * in.heads;
    if (!has_work(args.marks, walks)) return;
    for (int64_t walk = blockIdx.x; walk < walks; walk += gridDim.x) {
        const int64_t sequence = walk / in.heads, head = walk - sequence * in.heads;
        const Span span(in, sequence);
        Reach reach;
        const int mark = mark_of(args.marks, walk);
        if (mark == 0) continue;
        if (mark == RL_ATTENTION_SPECIAL)
            reach = find_reach(in, args.dy, args.dS_final, span, sequence, head, args.marks.kinds + walk * in.length);
        for (int64_t tile = 0; tile < in.panels * in.slabs; tile++) {
            const int64_t panel = tile / in.slabs, slab = tile - panel * in.slabs;
            const Place<ROWS, COLUMNS> place(in, sequence, head, panel, slab);
            if (span.count == 0)
                pass_on<N>(args.dS_init, args.dS_final, place);
            else
                Gradients<N, ROWS, COLUMNS>(args, span, place, panel, slab, reach, (N *)shared).run();
        }
    }
}

template <typename N, int COLUMNS> const void *pick(bool narrow)
{
    return narrow ? kernel_address<back_kernel<N, RL_ATTENTION_NARROW_ROWS, 1>>()
                  : kernel_address<back_kernel<N, RL_ATTENTION_ROWS, COLUMNS>>();
}

} // namespace

const void *rl_attention_backward_kernel(bool is_double, bool narrow)
{
    return is_double ? pick<double, 2>(narrow) : pick<float, 4>(narrow);
}
