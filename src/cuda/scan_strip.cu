/* The kernels of the split scan of few channels of float32. */
constexpr bool BY_ROWS = true; /* of headers that the split scan's other kernels share */
#include "scan_strip.cuh"
#include "scan_strip_rows.cuh"
#include "scan_strip_runs.cuh"

template <typename L, bool backward> static rl_strip_kernel instance()
{
    return {kernel_address<strip_kernel<L, backward>>(), L::BYTES, L::TILE_STEPS, L::BLOCKS};
}

template <bool backward, int units> static rl_strip_kernel kernel_of(rl_split_layout layout)
{
    return layout == RL_SPLIT_ROWS   ? instance<Rows<backward, units>, backward>()
           : layout == RL_SPLIT_RUNS ? instance<Runs<backward, units, false>, backward>()
                                     : instance<Runs<backward, units, true>, backward>();
}

rl_strip_kernel rl_scan_strip_kernel(rl_split_layout layout, bool backward, bool large)
{
    if (backward) return large ? kernel_of<true, 16>(layout) : kernel_of<true, 8>(layout);
    return large ? kernel_of<false, 16>(layout) : kernel_of<false, 8>(layout);
}
