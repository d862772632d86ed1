/* The kernels of the split scan of few channels of float32. */
constexpr bool BY_ROWS = true; /* of headers that the split scan's other kernels share */
#include "scan_strip.cuh"
#include "scan_strip_rows.cuh"

template <bool backward, int steps, int held> static rl_strip_kernel instance()
{
    typedef Rows<backward, steps, held> L;
    return {kernel_address<strip_kernel<L, backward>>(), L::BYTES, L::TILE_STEPS, L::BLOCKS};
}

rl_strip_kernel rl_scan_strip_kernel(bool backward, bool large)
{
    if (backward) return instance<true, 8, 0>();
    return large ? instance<false, 16, 2>() : instance<false, 8, 0>();
}
