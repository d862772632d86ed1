/* The selective scan's kernels for float64 tensors. */
#include <machine/kernel.cuh>

#include "s6_kernels.h"
#include "selective_scan.cuh"
#include "selective_scan_step.cuh"

using namespace selective_scan;

const void *rl_s6_kernel_f64(rl_s6_walk walk)
{
    return walk == RL_S6_SUMMARY ? kernel_address<scan_kernel<double, double, double, Usual, SUMMARY>>()
                                 : kernel_address<scan_kernel<double, double, double, Usual, FULL>>();
}

size_t rl_s6_shared_bytes(bool f64)
{
    return f64 ? sizeof(Tiles<double>) : sizeof(Tiles<float>);
}

const void *rl_s6_step_f64(void)
{
    return kernel_address<selective_scan_step::step_kernel<double, double, double>>();
}
