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
    .scan = &RL_NAME(rl_scan_kernels),
};
