/* The gradients of linear attention in float32 of many heads (linear_attention_floats_heads.cuh). */
#include "linear_attention_floats_back.cuh"
#include "linear_attention_floats_heads_block.cuh"

namespace attention_heads
{

/* dgate and dbeta from what the blocks of a head have: a head's are a block's. */
__global__ void __launch_bounds__(RL_HEADS_GATES_THREADS) gates_kernel(const __grid_constant__ rl_heads_args whole)
{
    const rl_floats_args &args = whole.all;
    const rl_attention_inputs &in = args.in;
    const int walk = (int)blockIdx.x, slabs = (int)((in.keys + LANES - 1) / LANES);
    const int64_t head = walk % in.heads, each = args.chunks * STEPS, first = walk * slabs * each;
    const Span span(in, walk / in.heads);
    bool all = false;
    let_later_start();
    await_earlier();
    for (int64_t step = threadIdx.x; step < in.length; step += RL_HEADS_GATES_THREADS) {
        float flow = 0, worth = 0;
        for (int slab = 0; slab < slabs; slab++) {
            if (args.dgate.data) flow += args.flow[first + slab * each + step];
            if (args.dbeta.data) worth += args.worth[first + slab * each + step];
        }
        if (args.dbeta.data) {
            store_any(args.dbeta.data, args.dbeta.dtype, span.at(args.dbeta, head, step), worth);
            all = all || !is_finite(worth);
        }
        if (!args.dgate.data) continue;
        const attention::Factor<float> factor(in, span, head, step);
        const float gate = factor.reset ? 0 : is_finite(factor.value) ? factor.value : 1;
        const bool is_read = step > 0 || in.S_init.data, divides = is_read && !in.gate_is_log;
        if (in.gate_is_log && gate == 0) flow = 0;
        all = all || !is_finite(flow) || (divides && fabsf(gate) < LEAST_GATE);
        store_any(args.dgate.data, args.dgate.dtype, span.at(args.dgate, head, step),
                  !is_read  ? 0
                  : divides ? flow / gate
                            : flow);
    }
    all = __syncthreads_or(all);
    if (threadIdx.x == 0)
        args.marks.parts[(int64_t)walk * args.marks.each + args.marks.each - 1] = all ? RL_ATTENTION_ALL : 0;
}

} // namespace attention_heads

const void *rl_heads_gates_kernel(void)
{
    return kernel_address<attention_heads::gates_kernel>();
}

size_t rl_heads_back_shared(int what)
{
    using namespace attention_heads;
    return what == RL_HEADS_DQ   ? Room<RL_HEADS_DQ>::BYTES
           : what == RL_HEADS_DV ? Room<RL_HEADS_DV>::BYTES
                                 : Room<RL_HEADS_DK>::BYTES;
}

const void *rl_heads_back_kernel(int what)
{
    using namespace attention_heads;
    return what == RL_HEADS_DQ   ? kernel_address<heads_kernel<RL_HEADS_DQ>>()
           : what == RL_HEADS_DV ? kernel_address<heads_kernel<RL_HEADS_DV>>()
                                 : kernel_address<heads_kernel<RL_HEADS_DK>>();
}
