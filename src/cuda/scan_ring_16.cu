/* The ring kernels of the scan for the 16-bit types. */
#include "scan_kernels.h"
#include "scan_ring.cuh"

const void *rl_scan_ring_kernel_bf16(bool along, bool backward, int channels)
{
    return scan_ring::pick<bf16>(along, backward, channels);
}

const void *rl_scan_ring_kernel_f16(bool along, bool backward, int channels)
{
    return scan_ring::pick<f16>(along, backward, channels);
}
