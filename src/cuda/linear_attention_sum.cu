/* Sums of gradients over the heads that share a query head. */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_inputs.cuh"
#include "linear_attention_kernels.h"

namespace
{

using namespace attention;

/* One thread an element, in the order of the heads. */
template <typename N> __global__ void sum_kernel(const __grid_constant__ rl_attention_sum_args args)
{
    let_later_start();
    await_earlier();
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < args.count; k += stride) {
        const int64_t row = k / args.keys, key = k - row * args.keys; /* row of [batch, length, query_heads] */
        const int64_t step = row / args.query_heads, head = row - step * args.query_heads;
        const int64_t batch = step / args.length, time = step - batch * args.length;
        const N *from = (const N *)args.from + row * args.share * args.keys + key;
        N total = 0;
        for (int64_t member = 0; member < args.share; member++) total = rounded_sum(total, from[member * args.keys]);
        store_any(args.to.data, args.to.dtype,
                  batch * args.to.batch + time * args.to.step + head * args.to.head + key * args.to.lane, total);
    }
}

} // namespace

const void *rl_attention_sum_kernel(bool is_double)
{
    return is_double ? kernel_address<sum_kernel<double>>() : kernel_address<sum_kernel<float>>();
}
