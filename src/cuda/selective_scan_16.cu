/* The selective scan's kernels for bfloat16 and float16 tensors, alone and beside float32 delta, B and C. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step_whole.cuh"

using namespace selective_scan;

rl_s6_kernel rl_s6_kernel_bf16(rl_s6_walk walk, bool projected, bool whole)
{
    return projected ? pick_kernel<bf16, float>(walk, whole) : pick_kernel<bf16, bf16>(walk, whole);
}

rl_s6_kernel rl_s6_kernel_f16(rl_s6_walk walk, bool projected, bool whole)
{
    return projected ? pick_kernel<f16, float>(walk, whole) : pick_kernel<f16, f16>(walk, whole);
}

template <typename T, typename U> static const void *pick_step(bool whole)
{
    using namespace selective_scan_step;
    return whole ? kernel_address<step_whole_kernel<T, U, float>>() : kernel_address<step_kernel<T, U, float>>();
}

const void *rl_s6_step_bf16(bool projected, bool whole)
{
    return projected ? pick_step<bf16, float>(whole) : pick_step<bf16, bf16>(whole);
}

const void *rl_s6_step_f16(bool projected, bool whole)
{
    return projected ? pick_step<f16, float>(whole) : pick_step<f16, f16>(whole);
}
