/* The selective scan's kernels for bfloat16 and float16 tensors, alone and beside float32 delta, B and C. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step.cuh"

using namespace selective_scan;

rl_s6_kernel rl_s6_kernel_bf16(rl_s6_walk walk, bool projected)
{
    return projected ? pick_kernel<bf16, float>(walk) : pick_kernel<bf16, bf16>(walk);
}

rl_s6_kernel rl_s6_kernel_f16(rl_s6_walk walk, bool projected)
{
    return projected ? pick_kernel<f16, float>(walk) : pick_kernel<f16, f16>(walk);
}

template <typename T> static const void *pick_step(bool projected)
{
    using selective_scan_step::step_kernel;
    return projected ? kernel_address<step_kernel<T, float, float>>() : kernel_address<step_kernel<T, T, float>>();
}

const void *rl_s6_step_bf16(bool projected)
{
    return pick_step<bf16>(projected);
}

const void *rl_s6_step_f16(bool projected)
{
    return pick_step<f16>(projected);
}
