/*
 * The projections of the layer: delta, B and C of rows of x, by matrix products over panels of rows.
 *
 * OpenBLAS's bits change with the number of rows of a call and with a row's place in it, so with `reproducible` every
 * panel has RL_PANEL_FIXED rows and begins at a multiple of that from a sequence's first step.
 */
#ifndef RL_CPU_PROJECTIONS_H
#define RL_CPU_PROJECTIONS_H

#include "cpu.h"

enum { RL_PANEL_FIXED = 64, RL_PANEL_MOST = 128 };

/* A weight [rows, columns] as the products read it: row-major, in the accumulation type. */
typedef struct rl_weight {
    const char *data;
    int64_t rows, row; /* row: the distance of rows */
} rl_weight;

typedef struct rl_projections {
    const rl_kernels *kernels;
    bool f64, low_rank;
    size_t real_size;
    int64_t channels, states, rank;

    /* x's products: out = x wᵀ, side by side in one row of `columns`: delta or the low rank, then B, then C. */
    rl_weight from_x[3];
    int weights; /* 1 when packed into one */
    int64_t columns;
    rl_weight from_low; /* delta = low from_lowᵀ */

    /* Where packed weights go; NULL when the tensors themselves are read. */
    char *packed, *packed_low;
    int64_t packed_row, packed_low_row;
} rl_projections;

/* Chooses how the weights are read, and takes memory for it.  Few rows are not worth a copy of the weights. */
rill_status rl_projections_plan(rill_context *context, rl_projections *projections,
                                const rl_selective_layer_problem *problem, bool pack);

/* Packs the weights.  Every thread of a team calls it. */
void rl_projections_pack(const rl_projections *projections, const rl_selective_layer_problem *problem);

/* Columns `part` of `parts` of the products of m rows of x (row-major, rows at x_row) into out (rows at `columns`).
 */
void rl_project_x(const rl_projections *projections, int64_t m, const void *x, int64_t x_row, void *out, int64_t part,
                  int64_t parts);
/* The same of delta from the low rank, which lies in the first columns of `out`. */
void rl_project_low(const rl_projections *projections, int64_t m, const void *out, void *delta, int64_t part,
                    int64_t parts);

#endif
