/* Linear attention forward in float32 of many heads (linear_attention_floats_heads.cuh). */
#include "linear_attention_floats_heads_block.cuh"

namespace attention_heads
{

__global__ void __launch_bounds__(STEPS) records_kernel(const __grid_constant__ rl_heads_args whole)
{
    if constexpr (HAS_PRODUCTS) {
        const rl_floats_args &args = whole.all;
        const int i = (int)threadIdx.x;
        let_later_start();
        await_earlier();
        const Task task(args, (int)(blockIdx.x / (unsigned)args.chunks), (int)(blockIdx.x % (unsigned)args.chunks),
                        STEPS);
        Record &r = *(Record *)dynamic_shared;
        start_decays(r.d, args.in, task.span(), task.head(), task.first(), i);
        __syncthreads(); /* the blocks' products are there */
        finish_decays(r.d, i);
        r.weight[0][i] = r.d.to_end[i] * r.d.beta[i];
        r.weight[1][i] = r.d.from_begin[i] * (float)args.in.scale;
        if (i == 0) {
            const double carry = r.d.product();
            r.first = (float)carry;
            r.second = (float)(carry - r.first);
            r.steady = r.d.is_steady(), r.fades = r.d.fades(), r.special = r.d.is_special();
            r.heavy = r.d.heavy[0] || r.d.heavy[1];
        }
        __syncthreads(); /* all is there */
        float4 *const to = (float4 *)((char *)args.records + (int64_t)blockIdx.x * RECORD_BYTES);
        for (int at = i; at < (int)sizeof(Record) / 16; at += STEPS) to[at] = ((const float4 *)&r)[at];
    }
}

} // namespace attention_heads

const void *rl_heads_records_kernel(void)
{
    return kernel_address<attention_heads::records_kernel>();
}

size_t rl_heads_record(void)
{
    return attention_heads::RECORD_BYTES;
}

const void *rl_heads_kernel(void)
{
    return kernel_address<attention_heads::heads_kernel<RL_HEADS_Y>>();
}

size_t rl_heads_shared(void)
{
    return attention_heads::Room<RL_HEADS_Y>::BYTES;
}
