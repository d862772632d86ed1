constexpr bool BY_ROWS = false;
#include "scan_split.cuh"

rl_split_kernel rl_scan_split_f64(rl_split_layout layout, bool backward)
{
    return layout == RL_SPLIT_ANY ? any_instance_of<double>(backward) : instance_of<double>(layout, backward);
}
