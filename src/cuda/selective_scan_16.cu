/* The selective scan's kernels for bfloat16 and float16 tensors, alone and beside float32 delta, B and C. */
#include "scan_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step.cuh"

using namespace selective_scan;

template <typename T> static const void *pick(bool summary, bool projected)
{
    if (projected)
        return summary ? (const void *)scan_kernel<T, float, float, SUMMARY>
                       : (const void *)scan_kernel<T, float, float, FULL>;
    return summary ? (const void *)scan_kernel<T, T, float, SUMMARY> : (const void *)scan_kernel<T, T, float, FULL>;
}

const void *rl_scan_kernel_bf16(bool summary, bool projected)
{
    return pick<bf16>(summary, projected);
}

const void *rl_scan_kernel_f16(bool summary, bool projected)
{
    return pick<f16>(summary, projected);
}

template <typename T> static const void *pick_step(bool projected)
{
    using selective_scan_step::step_kernel;
    return projected ? (const void *)step_kernel<T, float, float> : (const void *)step_kernel<T, T, float>;
}

const void *rl_scan_step_bf16(bool projected)
{
    return pick_step<bf16>(projected);
}

const void *rl_scan_step_f16(bool projected)
{
    return pick_step<f16>(projected);
}
