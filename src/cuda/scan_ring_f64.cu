/* The ring kernels of the scan for float64. */
#include "scan_kernels.h"
#include "scan_ring.cuh"

const void *rl_scan_ring_kernel_f64(bool along, bool backward, int channels)
{
    return scan_ring::pick<double>(along, backward, channels);
}
