constexpr bool BY_ROWS = false;
#include "scan_split.cuh"

rl_split_kernel rl_scan_split_c64(rl_split_layout layout, bool backward)
{
    typedef Complex<float> T;
    return layout == RL_SPLIT_ANY ? any_instance_of<T>(backward) : instance_of<T>(layout, backward);
}

rl_split_kernel rl_scan_split_c128(rl_split_layout, bool backward)
{
    return any_instance_of<Complex<double>>(backward);
}
