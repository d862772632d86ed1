/* The selective scan's kernels for float32 tensors. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step_whole.cuh"

using namespace selective_scan;

rl_s6_kernel rl_s6_kernel_f32(rl_s6_walk walk, bool whole)
{
    return pick_kernel<float, float>(walk, whole);
}

const void *rl_s6_step_f32(bool whole)
{
    using namespace selective_scan_step;
    return whole ? kernel_address<step_whole_kernel<float, float, float>>()
                 : kernel_address<step_kernel<float, float, float>>();
}
