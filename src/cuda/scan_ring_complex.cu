/* The ring kernels of the scan for complex numbers. */
#include "scan_kernels.h"
#include "scan_ring.cuh"

const void *rl_scan_ring_kernel_c64(bool along, bool backward, int channels)
{
    return scan_ring::pick<Complex<float>>(along, backward, channels);
}

const void *rl_scan_ring_kernel_c128(bool along, bool backward, int channels)
{
    return scan_ring::pick<Complex<double>>(along, backward, channels);
}
