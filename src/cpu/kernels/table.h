/* The functions of one instruction set and accumulation type, and the table that holds them. */
#ifndef RL_CPU_TABLE_H
#define RL_CPU_TABLE_H

#include "kernels.h"
#include "linear_attention.h"
#include "recur_back.h"
#include "scan.h"
#include "vec.h"

RL_INLINE vreal row_of(rl_rows rows, int64_t row)
{
    return load_any(rows.data + row * rows.step);
}

/* A fetch for a loop to make: of `any` memory where nothing is wanted. */
RL_INLINE rl_rows fetch_of(const rl_rows *wanted, const void *any)
{
    bool is_wanted = wanted && wanted->data;
    return (rl_rows){is_wanted ? wanted->data : (char *)any, is_wanted ? wanted->step : 0};
}

/* Into the second level: rows a power of two apart would drive each other out of the first. */
RL_INLINE void fetch_row(rl_rows from, int64_t row)
{
    __builtin_prefetch(from.data + row * from.step, 0, 2);
}

void RL_NAME(rl_load)(void *tile, int64_t pitch, const rl_matrix *from, int64_t rows, int64_t lanes);
void RL_NAME(rl_store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes);
void RL_NAME(rl_pack)(void *bc, const rl_input_tile *from);
void RL_NAME(rl_prepare_A)(void *A, void *bound, int64_t states, bool negate_exp);
void RL_NAME(rl_prepare_step)(const rl_steps *steps, rl_rows delta, rl_rows x, int64_t rows,
                              const rl_step_rule *rule);
void RL_NAME(rl_recur)(const rl_recurrence *recurrence);
void RL_NAME(rl_add)(void *to, const void *from, int64_t rows);
void RL_NAME(rl_finish)(rl_rows to, const void *sum, rl_rows x, const void *D, rl_rows z, int64_t rows);

void RL_NAME(rl_take_steps)(const rl_back_tile *tile, rl_rows x, rl_rows delta, const rl_step_rule *rule);
void RL_NAME(rl_enter_gate)(const rl_back_tile *tile, rl_rows dy);
void RL_NAME(rl_recur_back)(const rl_back_tile *tile, const rl_back_states *states);
void RL_NAME(rl_leave_steps)(const rl_back_tile *tile, rl_rows dx, rl_rows ddelta, const void *D, void *dD,
                             void *dbias);
void RL_NAME(rl_clear_lanes)(void *numbers, int64_t rows, int64_t lanes);
void RL_NAME(rl_sum_lanes)(void *to, const void *numbers, const rl_lane_sums *shape);
void RL_NAME(rl_bar_A)(void *dA, const void *A, int64_t states);
void RL_NAME(rl_through_log)(void *dA, const void *A, int64_t states);

void RL_NAME(rl_scan_load)(void *tile, const rl_matrix *from, int64_t rows, int64_t lanes);
void RL_NAME(rl_scan_store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes);
void RL_NAME(rl_scan_stream)(void *to, const void *from, int64_t bytes);
void RL_NAME(rl_scan_walk)(const rl_scan_tile *tile);
void RL_NAME(rl_scan_walk_lane)(const rl_scan_tile *tile, int64_t lane, double *state, double *low);
void RL_NAME(rl_scan_summarise)(const rl_scan_summary *summary);
void RL_NAME(rl_scan_walk_rows)(const rl_scan_rows *rows);
void RL_NAME(rl_scan_look_again)(const rl_scan_summary *summary);
void RL_NAME(rl_scan_walk_columns)(const rl_scan_columns *columns);
void RL_NAME(rl_scan_give_columns)(const rl_scan_columns *columns);
void RL_NAME(rl_scan_take_columns)(const rl_scan_columns *columns, const rl_scan_summary *summaries);
void RL_NAME(rl_scan_walk_run)(rl_scan_run *run);
rl_scan_run_summary RL_NAME(rl_scan_summarise_run)(const rl_scan_run *run);

int64_t RL_NAME(rl_attention_largest)(const void *numbers, int64_t vectors);
void RL_NAME(rl_attention_prepare)(rl_attention_chunk *chunk);
void RL_NAME(rl_attention_enter)(rl_attention_panel *panel);
void RL_NAME(rl_attention_walk)(rl_attention_panel *panel);
void RL_NAME(rl_attention_begin_gates)(rl_attention_gates *gates);
void RL_NAME(rl_attention_end_gates)(rl_attention_gates *gates);

extern const rl_attention_kernels RL_NAME(rl_attention_kernels);
extern const rl_back_kernels RL_NAME(rl_back_kernels);
extern const rl_scan_kernels RL_NAME(rl_scan_kernels);
extern const rl_kernels RL_NAME(rl_kernels);

#endif
