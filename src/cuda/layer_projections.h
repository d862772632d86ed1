/*
 * The selective layer's projections of some rows of x, for both directions:
 *
 *     first[rows, :] = x [W_delta; W_B; W_C]ᵀ              delta, B, C are column ranges of first
 *     first[rows, :] = x [W_delta_down; W_B; W_C]ᵀ         and with a low rank  delta = first[:, :rank] W_deltaᵀ
 *
 * The stacked weights make it one product, so x is read once.  The products are rill's own (product.h), but for the
 * first one of 16-bit x and weights, unless it is brief, which is cuBLAS's: twice as fast.  Not in reproducible mode:
 * there a row's bits may depend on how many rows there are.
 */
#ifndef RL_CUDA_LAYER_PROJECTIONS_H
#define RL_CUDA_LAYER_PROJECTIONS_H

#include "gather.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_LAYER_JOBS = 4 };

typedef struct rl_layer_projections {
    rill_context *context;
    const rl_selective_layer_problem *problem; /* its sizes, x, weights and A_log */
    bool blas, low_rank;
    bool direct, up_direct;       /* the product, or that of the low rank, takes weights as they lie */
    rill_dtype accumulated;       /* of all scratch: f64 or f32 */
    rill_dtype multiplied;        /* of the first product's operands */
    rill_dtype exact, up_exact;   /* the 16-bit type of all of its weights, of the low rank's, or absent */
    int64_t delta_columns;        /* of the first product: channels or rank */
    int64_t columns;              /* of the first product: those, B and C */
    int64_t first_row, delta_row; /* leading dimensions; without a low rank there is no row of delta */
    void *weights, *up_weights, *A, *x, *first, *delta, *scratch;
} rl_layer_projections;

/* Rows of x: some sequences, and some of their steps. */
typedef struct rl_layer_slab {
    int64_t batch0, batch, step0, steps;
} rl_layer_slab;

/* Steps of a slab are a multiple of the scan's tiles; slabs of packed sequences, which may begin anywhere, are all.
 */
rl_layer_slab rl_layer_slab_of(const rl_selective_layer_problem *problem, int64_t most_rows);
/* The k-th of them along time, as sequences run. */
rl_layer_slab rl_layer_slab_at(const rl_selective_layer_problem *problem, int64_t batch0, int64_t batch,
                               int64_t most_steps, int64_t k);
rill_tensor rl_layer_part(const rill_tensor *tensor, const rl_layer_slab *slab);
/* Sequences of a tensor of states. */
rill_tensor rl_layer_states(const rill_tensor *tensor, const rl_layer_slab *slab);

/* What the products of a call need to know; opens cuBLAS where they want it. */
rill_status rl_layer_projections_plan(rill_context *context, const rl_selective_layer_problem *problem,
                                      rl_layer_projections *p);
/* Memory for slabs as large as this one. */
rill_status rl_layer_projections_take(rl_layer_projections *p, const rl_layer_slab *slab);
/* Stacks the weights in the products' types, makes A = -exp(A_log) (or leaves them to the products), and does at most
 * RL_LAYER_JOBS more. */
rill_status rl_layer_projections_prepare(rl_layer_projections *p, const rl_gather_job *more, int count);

/* What a slab's scan takes: views of scratch, [batch, steps, channels] and [batch, steps, 1, states]. */
typedef struct rl_layer_projected {
    rill_tensor delta, low, B, C;
} rl_layer_projected;

rl_layer_projected rl_layer_projections_views(const rl_layer_projections *p, const rl_layer_slab *slab, void *first,
                                              void *delta);
rill_status rl_layer_projections_run(rl_layer_projections *p, const rl_layer_slab *slab);

/* Rows of scratch that belong to a slab: columns of them. */
rill_tensor rl_layer_projections_rows(const rl_layer_projections *p, const rl_layer_slab *slab, void *data,
                                      int64_t column, int64_t row, int64_t columns);
rill_status rl_layer_projections_block(const rl_layer_projections *p, int64_t elements, void **block);

#ifdef __cplusplus
}
#endif

#endif
