/*
 * The gradients of the layer, in rounds.
 *
 * A round is some steps of some sequences, its segments, as rows one below the other.  In a round
 *   1. panels of rows are projected to delta (or the low rank, and that to delta), B and C;
 *   2. the segments are walked back (s6_back.c): delta, B and C become their gradients, in place;
 *   3. with a low rank, dW_delta takes its sums over rows, and the low rank becomes its gradient, in place;
 *   4. the other weights' gradients take their sums over rows, and dx what comes through the projections.
 * Sequences that fit are taken whole.  Of those that do not, a few are walked side by side, cut into slabs of time:
 * first a run forward keeps the states between slabs, then the slabs are rounds from the last to the first.
 *
 * Rounds follow from the call's sizes alone, never from the threads, and so do all sums' bits.  With `reproducible`
 * panels have a fixed number of rows from each sequence's first step on, rows of no step being zeros, and no row of a
 * sequence's own gradients depends on what else is in a round.
 */
#ifndef RL_CPU_LAYER_BACK_H
#define RL_CPU_LAYER_BACK_H

#include "projections.h"
#include "s6_back.h"

enum {
    RL_LAYER_BACK_BYTES = 64 << 20, /* of a round's rows */
    RL_LAYER_SEGMENTS = 4096,       /* of a round at most */
    RL_LAYER_STRIP = 32             /* rows of a weight that are stored at a time */
};

/* Rows of a round that belong to one sequence, from its step t on. */
typedef struct rl_layer_segment {
    int64_t sequence, t, length, row;
    bool first, last;
    int64_t index; /* of its wave */
} rl_layer_segment;

/* Rows that one product takes, within one segment or, gathered, of several from `segment` on. */
typedef struct rl_layer_rows {
    int64_t row, rows, segment;
    int64_t steps; /* rows that are: the others are zeros; more than 0 only in whole panels */
} rl_layer_rows;

/* Sequences that are walked side by side. */
typedef struct rl_layer_wave {
    int64_t first, count;
    int64_t slab, rounds; /* steps of a sequence in a round */
} rl_layer_wave;

typedef struct rl_layer_back {
    const rl_selective_layer_backward_problem *problem;
    rl_selective_layer_problem forward; /* its inputs */
    rl_projections projections;
    rl_s6_back scan;
    bool fixed;           /* panels of fixed rows that begin with each sequence */
    bool x_lies, dx_lies; /* products read or add to the tensor itself, where rows do not come from two segments */
    int64_t panel_rows, most; /* rows of a panel; of a round */
    int64_t side;             /* long sequences that are walked side by side */
    size_t carry;             /* bytes of a sequence's states */

    /* Of the round. */
    rl_layer_segment *segments;
    rl_layer_rows *panels, *runs; /* runs: for sums over rows */
    int64_t segment_count, panel_count, run_count, row_count;
    rl_layer_wave wave;
    int64_t round;
    bool keeping; /* only the states after it are wanted */

    /* Memory. */
    char *rows, *delta; /* [most] of projections.columns, and of delta with a low rank */
    char *dx;           /* [most][channels] unless dx lies well */
    char *sums_BC;      /* [blocks][most][2 states] unless one block is all */
    char *panel, *tile; /* [threads][panel_rows] of panel_row, where rows are gathered, and of lanes */
    int64_t shares;     /* of a round's rows, with sums of their own */
    char *dW, *dW_low;  /* [shares] of sums [columns][panel_row], and [channels][rank_row] */
    char *states, *G;   /* between slabs: [rounds][side] and [side] of carry */
    int64_t panel_row, rank_row;
} rl_layer_back;

/* The call with rounds of at most so many bytes, for tests: RL_LAYER_BACK_BYTES is what the operator takes. */
rill_status rl_layer_back_within(rill_context *context, const rl_selective_layer_backward_problem *problem,
                                 int64_t bytes);

/* Cuts the call into rounds of at most `bytes`; takes no memory. */
void rl_layer_cut(rl_layer_back *layer, int64_t bytes);
/* Takes the memory, of rounds and products, and says how a round's rows are shared out for sums. */
rill_status rl_layer_take(rill_context *context, rl_layer_back *layer, int threads);
rl_layer_wave rl_layer_wave_from(const rl_layer_back *layer, int64_t first);
/* Deals a round; by one thread. */
void rl_layer_deal(rl_layer_back *layer, const rl_layer_wave *wave, int64_t round, bool keeping);

/* Step `skip` of a segment on. */
rl_series rl_layer_series(const rl_layer_back *layer, const rill_tensor *tensor, const rl_layer_segment *segment,
                          int64_t skip);

/* Whether a product ever takes rows of x, or of dx, that are not whole panels where they lie. */
static inline bool rl_layer_gathers(const rl_layer_back *layer)
{
    return layer->fixed || !layer->x_lies;
}

typedef struct rl_range {
    int64_t begin, end;
} rl_range;

/* A thread's own panel, rows at panel_row, and a tile of as many rows. */
char *rl_layer_panel(const rl_layer_back *layer);
char *rl_layer_tile(const rl_layer_back *layer);
/* Channels of some rows of a tensor over time into memory, rows at panel_row, those of no step as zeros. */
void rl_layer_gather(const rl_layer_back *layer, const rill_tensor *from, int64_t row, int64_t rows,
                     rl_range channels, char *to);
/* Channels of rows of memory, at most a panel's, into a tensor over time. */
void rl_layer_scatter(const rl_layer_back *layer, const rill_tensor *to, int64_t row, int64_t rows, rl_range channels,
                      const char *from, int64_t from_row);
/* Where rows lie in a tensor that lies well. */
void *rl_layer_rows_in(const rl_layer_back *layer, const rill_tensor *tensor, const rl_layer_rows *rows);

/* The products of a round and in the end the weights' gradients.  Every thread of a team calls them. */
void rl_layer_begin_products(const rl_layer_back *layer);
void rl_layer_project(const rl_layer_back *layer);
void rl_layer_project_back(const rl_layer_back *layer);
void rl_layer_store_weights(const rl_layer_back *layer);

static inline rill_dtype rl_layer_real(const rl_layer_back *layer)
{
    return layer->projections.f64 ? RILL_F64 : RILL_F32;
}

static inline char *rl_layer_row(const rl_layer_back *layer, int64_t row, int64_t column)
{
    const rl_projections *p = &layer->projections;
    return layer->rows + (size_t)(row * p->columns + column) * p->real_size;
}

static inline char *rl_layer_delta(const rl_layer_back *layer, int64_t row)
{
    const rl_projections *p = &layer->projections;
    return layer->delta + (size_t)(row * p->channels) * p->real_size;
}

#endif
