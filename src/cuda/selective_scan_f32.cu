/* The selective scan's kernels for float32 tensors. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step.cuh"

using namespace selective_scan;

rl_s6_kernel rl_s6_kernel_f32(rl_s6_walk walk)
{
    return pick_kernel<float, float>(walk);
}

const void *rl_s6_step_f32(void)
{
    return kernel_address<selective_scan_step::step_kernel<float, float, float>>();
}
