constexpr bool BY_ROWS = false;
#include "scan_split.cuh"

rl_split_kernel rl_scan_split_bf16(rl_split_layout layout, bool backward)
{
    return layout == RL_SPLIT_ANY ? rl_scan_split_f32(layout, backward) : instance_of<bf16>(layout, backward);
}

rl_split_kernel rl_scan_split_f16(rl_split_layout layout, bool backward)
{
    return layout == RL_SPLIT_ANY ? rl_scan_split_f32(layout, backward) : instance_of<f16>(layout, backward);
}
