#include "scan.h"
#include "table.h"

const rl_scan_kernels RL_NAME(rl_scan_kernels) = {
    .load = RL_NAME(rl_scan_load),
    .store = RL_NAME(rl_scan_store),
    .stream = RL_NAME(rl_scan_stream),
    .walk = RL_NAME(rl_scan_walk),
    .walk_lane = RL_NAME(rl_scan_walk_lane),
#if RL_REAL_BITS == 64
    .summarise = RL_NAME(rl_scan_summarise),
    .walk_run = RL_NAME(rl_scan_walk_run),
    .summarise_run = RL_NAME(rl_scan_summarise_run),
    .take_columns = RL_NAME(rl_scan_take_columns),
#endif
    .walk_rows = RL_NAME(rl_scan_walk_rows),
    .walk_columns = RL_NAME(rl_scan_walk_columns),
    .give_columns = RL_NAME(rl_scan_give_columns),
};
