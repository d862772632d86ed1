constexpr bool BY_ROWS = false;
#include "scan_split.cuh"

rl_split_kernel rl_scan_split_f32(rl_split_layout layout, bool backward)
{
    return layout == RL_SPLIT_ANY ? any_instance_of<float>(backward) : instance_of<float>(layout, backward);
}
