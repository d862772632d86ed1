/* The ring kernels of the scan for float32. */
#include "scan_kernels.h"
#include "scan_ring.cuh"

const void *rl_scan_ring_kernel_f32(bool along, bool backward, int channels)
{
    return scan_ring::pick<float>(along, backward, channels);
}
