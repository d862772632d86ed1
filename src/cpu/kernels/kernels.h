/*
 * The inner loops of the cpu backend: one table an instruction set and accumulation type ("real", float or double).
 *
 * All of them work on tiles in scratch memory.  A tile has `rows` rows of one vector, the lanes of a row being
 * neighbouring channels; the rows are steps of time or states.  Lanes beyond the last channel hold whatever a channel
 * of zeros gives: they are computed, never stored, and no lane sees another.
 */
#ifndef RL_CPU_KERNELS_H
#define RL_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/tensor.h>

/* States that one pass of the recurrence keeps in registers, and the grouping in which Σ C h is summed. */
enum { RL_STATE_BLOCK = 4 };

/* A matrix somewhere in a tensor; row and lane are strides in elements, of any sign. */
typedef struct rl_matrix {
    void *data;
    rill_dtype dtype;
    int64_t row, lane;
} rl_matrix;

/* Rows of one vector each, `step` bytes apart, on any address. */
typedef struct rl_rows {
    char *data;
    int64_t step;
} rl_rows;

enum { RL_STEP_FETCHES = 3 }; /* of prepare_step over a tile */

/* What turns delta into the step size; bias may be NULL. */
typedef struct rl_step_rule {
    const void *bias; /* [lanes] of real */
    bool softplus;
    double low, high;
    const rl_rows *ahead; /* [RL_STEP_FETCHES] as rl_recurrence's; may be NULL */
} rl_step_rule;

/* The step sizes of a tile, as rl_recurrence reads them. */
typedef struct rl_steps {
    void *rate, *rate_rest, *input, *bound;
} rl_steps;

/*
 * The recurrence of a run of states of one vector over a tile.  B and C of a block of states lie together,
 * `bc`[block][row][B's states, C's states], each entry one number for all lanes, or one a lane when `spread`.
 */
typedef struct rl_recurrence {
    int64_t rows, states;
    const void *rate;      /* [rows][lanes] what the decays take of δ, and its lower part: see functions.h */
    const void *rate_rest; /* [rows][lanes]; read only where there is fma, but always there */
    const void *input;     /* [rows][lanes] δ x */
    const void *bound;     /* [lanes] the largest |δ| of the tile */
    const void *A;         /* [states][lanes] */
    const void *A_bound;   /* [blocks][lanes] the largest |A| of each block of states */
    const void *bc;
    void *h;              /* [states][lanes], in and out */
    void *y;              /* [rows][lanes] */
    const rl_rows *ahead; /* fetched meanwhile: of what the next tile reads or writes; it or its data may be NULL */
    bool accumulate;      /* the first block adds to y instead of writing it */
    bool fresh;           /* there is no state before the first row: it is not read there, nor is the decay */
    bool spread;
} rl_recurrence;

/* B and C of a tile: rows are steps, lanes are states, data lies at the first step, state 0, the first lane's group.
 */
typedef struct rl_input_tile {
    rl_matrix B, C;
    int64_t rows, states;
    bool spread; /* the rest is for spread tiles: lanes of more than one group */
    int64_t lanes;
    int64_t B_group, C_group; /* strides */
    int64_t group_channels;   /* channels that share a group */
    int64_t phase;            /* channels of the first group that come before the first lane */
} rl_input_tile;

typedef struct rl_kernels {
    int lanes;

    /* Tile from matrix: rows at `pitch` reals; lanes beyond `lanes` become 0.  Any strides, all activations' types.
     */
    void (*load)(void *tile, int64_t pitch, const rl_matrix *from, int64_t rows, int64_t lanes);
    /* Matrix from tile, rounded to the matrix's type.  Lanes beyond `lanes` are not stored. */
    void (*store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes);

    /* B and C of a tile into `bc`, laid out as rl_recurrence reads it. */
    void (*pack)(void *bc, const rl_input_tile *from);
    /* A into its finite range, after A = -exp(A) if `negate_exp`; bound[blocks][lanes] as in rl_recurrence. */
    void (*prepare_A)(void *A, void *bound, int64_t states, bool negate_exp);
    /* Makes the recurrence's rows of a tile of delta, which may lie in steps->rate. */
    void (*prepare_step)(const rl_steps *steps, rl_rows delta, rl_rows x, int64_t rows, const rl_step_rule *rule);
    void (*recur)(const rl_recurrence *recurrence);
    /* to += from */
    void (*add)(void *to, const void *from, int64_t rows);
    /* to = (sum + D x) z σ(z); D [lanes] and z.data may be NULL, and `to` where any of the others is. */
    void (*finish)(rl_rows to, const void *sum, rl_rows x, const void *D, rl_rows z, int64_t rows);

    const struct rl_back_kernels *back;           /* recur_back.h */
    const struct rl_scan_kernels *scan;           /* scan.h */
    const struct rl_attention_kernels *attention; /* linear_attention.h */
} rl_kernels;

#endif
