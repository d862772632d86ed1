/*
 * The gradients of linear attention of bfloat16 data by spans of two chunks.  With S the state that enters the span,
 * G the gradient that enters it from behind, b and e the products of gates from the span's begin and to its end, D
 * those between two steps, and t <= s:
 *
 *     dq_s = scale (b_s S dy_s + Σ_t D_st β_t (v_t · dy_s) k_t)
 *     dv_t = β_t (e_t Gᵀ k_t + scale Σ_s D_st (q_s · k_t) dy_s)
 *     dk_t = β_t (e_t G v_t + scale Σ_s D_st (dy_s · v_t) q_s)
 *
 *     block = any spans, one after the other: a warpgroup for dk and dv of each chunk, one for dq, and clerks
 *
 * S, G and weighed products of steps meet other products as one bfloat16 number.  What breaks the rules of products,
 * or comes out not finite, marks its head, all of which is then had in the loop's order.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_span_clerk.cuh"
#include "linear_attention_span_given.cuh"

namespace
{

using namespace attention_spans;

constexpr int BLOCK_THREADS = (MAKERS + 1) * THREADS;
constexpr int MAKER_REGISTERS = 160, CLERK_REGISTERS = 32; /* 4 x 128 in all, with which the block begins */

template <class Kind> __device__ __forceinline__ void make(Kind &maker, int64_t total)
{
    int turn = 0;
#pragma unroll 1
    for (int64_t index = blockIdx.x; index < total; index += gridDim.x, turn++) {
        maker.forget_places();
        const Span span(maker.args, index);
        if (turn > 0) barrier_wait(&maker.signals().taken, (turn - 1) & 1);
        maker.run(span, turn);
        maker.judge(span);
    }
}

template <bool BETAS> __device__ __forceinline__ void run_block(const rl_spans_args &args, char *shared)
{
    const int64_t total = args.walk.sequences * args.walk.heads * args.spans;
    const int group = __shfl_sync(ALL, (int)threadIdx.x / THREADS, 0);
    if (threadIdx.x == 0) {
        attention_spans::Signals &signals = attention_spans::Ground(args, shared).signals();
        for (int which = 0; which < TENSORS; which++) {
            const int makers = which == S ? WALK_WARPS : which == G ? 2 * WALK_WARPS : WARPS_OF_MAKERS;
            barrier_init(&signals.full[which], 1);
            barrier_init(&signals.used[which], makers + CLERKS);
        }
        barrier_init(&signals.noted, WARPS_OF_MAKERS + CLERKS);
        barrier_init(&signals.taken, 1);
        barrier_publish();
    }
    __syncthreads(); /* the signals are there */
    if (group == MAKERS) {
        registers_lower<CLERK_REGISTERS>();
        Clerk clerk(args, shared);
        if (clerk.warp() == 0)
            clerk.bring(total);
        else
            clerk.read(total);
    } else if (group == MAKERS - 1) {
        registers_raise<MAKER_REGISTERS>();
        Asked maker(args, shared, group);
        make(maker, total);
    } else {
        registers_raise<MAKER_REGISTERS>();
        Given<BETAS> maker(args, shared, group);
        make(maker, total);
    }
}

template <bool BETAS>
__global__ void __launch_bounds__(BLOCK_THREADS, 1) spans_kernel(const __grid_constant__ rl_spans_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        run_block<BETAS>(args, (char *)dynamic_shared);
    }
}

} // namespace

const void *rl_spans_kernel(bool betas)
{
    return betas ? kernel_address<spans_kernel<true>>() : kernel_address<spans_kernel<false>>();
}

size_t rl_spans_shared(void)
{
    return attention_spans::Layout::BYTES;
}

int rl_spans_threads(void)
{
    return BLOCK_THREADS;
}
