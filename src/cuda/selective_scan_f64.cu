/* The selective scan's kernels for float64 tensors. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step_whole.cuh"

using namespace selective_scan;

rl_s6_kernel rl_s6_kernel_f64(rl_s6_walk walk)
{
    using Memory = Tiles<double, Usual>;
    if (walk == RL_S6_SUMMARY)
        return {kernel_address<scan_kernel<double, double, double, Usual, SUMMARY, ANY>>(), sizeof(Memory)};
    return {kernel_address<scan_kernel<double, double, double, Usual, FULL, ANY>>(), sizeof(Memory)};
}

const void *rl_s6_step_f64(bool whole)
{
    using namespace selective_scan_step;
    return whole ? kernel_address<step_whole_kernel<double, double, double>>()
                 : kernel_address<step_kernel<double, double, double>>();
}
