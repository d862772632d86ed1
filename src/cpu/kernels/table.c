#include "table.h"

const rl_kernels RL_NAME(rl_kernels) = {
    .lanes = LANES,
    .load = RL_NAME(rl_load),
    .store = RL_NAME(rl_store),
    .pack = RL_NAME(rl_pack),
    .prepare_A = RL_NAME(rl_prepare_A),
    .prepare_step = RL_NAME(rl_prepare_step),
    .recur = RL_NAME(rl_recur),
    .add = RL_NAME(rl_add),
    .finish = RL_NAME(rl_finish),
    .back = &RL_NAME(rl_back_kernels),
    .scan = &RL_NAME(rl_scan_kernels),
    .attention = &RL_NAME(rl_attention_kernels),
};

const rl_attention_kernels RL_NAME(rl_attention_kernels) = {
    .largest = RL_NAME(rl_attention_largest),
    .prepare = RL_NAME(rl_attention_prepare),
    .enter = RL_NAME(rl_attention_enter),
    .walk = RL_NAME(rl_attention_walk),
    .begin_gates = RL_NAME(rl_attention_begin_gates),
    .end_gates = RL_NAME(rl_attention_end_gates),
};

const rl_back_kernels RL_NAME(rl_back_kernels) = {
    .take_steps = RL_NAME(rl_take_steps),
    .enter_gate = RL_NAME(rl_enter_gate),
    .recur = RL_NAME(rl_recur_back),
    .leave_steps = RL_NAME(rl_leave_steps),
    .clear_lanes = RL_NAME(rl_clear_lanes),
    .sum_lanes = RL_NAME(rl_sum_lanes),
    .bar_A = RL_NAME(rl_bar_A),
    .through_log = RL_NAME(rl_through_log),
};
