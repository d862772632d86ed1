/* The selective scan's kernels for bfloat16 and float16 tensors, alone and beside float32 delta, B and C. */
#include "scan_kernels.h"
#include "selective_scan.cuh"

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
