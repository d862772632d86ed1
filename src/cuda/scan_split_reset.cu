/* Sets all bits of a split scan's common memory; the scan's own kernel gets ready meanwhile. */
#include <machine/early.cuh>
#include <machine/kernel.cuh>
#include <stdint.h>

#include "scan_split_args.h"

static __global__ void reset_kernel(uint4 *common, int64_t units)
{
    let_later_start();
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < units; k += stride)
        common[k] = make_uint4(~0u, ~0u, ~0u, ~0u);
}

const void *rl_scan_split_reset(void)
{
    return kernel_address<reset_kernel>();
}
