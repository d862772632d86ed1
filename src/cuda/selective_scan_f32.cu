/* The selective scan's kernels for float32 tensors. */
#include "scan_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step.cuh"

using namespace selective_scan;

const void *rl_scan_kernel_f32(bool summary)
{
    return summary ? (const void *)scan_kernel<float, float, float, SUMMARY>
                   : (const void *)scan_kernel<float, float, float, FULL>;
}

const void *rl_scan_step_f32(void)
{
    return (const void *)selective_scan_step::step_kernel<float, float, float>;
}
