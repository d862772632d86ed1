/*
 * Linear attention: one walk along time, and the gates' gradients.
 *
 * A walk carries a state S [keys, values] through S = g S + k vᵀ and answers y = f Sᵀ q at every step.  That is the
 * forward operator; with the tensors in other places it is each of dq, dk and dv as well
 * (src/cpu/linear_attention.h). Values lie in lanes.  A panel is RL_PANEL_VECTORS vectors of them with all keys;
 * panels never see each other.
 *
 * Time is cut into chunks of RL_CHUNK steps.  In tiles of scratch memory a column is one vector wide:
 *   q      [RL_CHUNK][q_pitch]             rows, zero from the last step up to a multiple of RL_STATE_ROWS
 *   k      [state_rows][RL_CHUNK]          transposed, zero beyond the last key or step
 *   v, y   [vectors][RL_CHUNK][lanes]      columns
 *   state  [vectors][state_rows][lanes]    columns; state_rows is keys, up to a multiple of RL_STATE_ROWS
 */
#ifndef RL_CPU_LINEAR_ATTENTION_KERNELS_H
#define RL_CPU_LINEAR_ATTENTION_KERNELS_H

#include "kernels.h"

enum { RL_CHUNK = 32, RL_PANEL_VECTORS = 2, RL_STATE_ROWS = 8, RL_AHEAD = 4 * RL_CHUNK };

/*
 * Memory that the next chunk will read or write, fetched while this one is computed: its rows are far apart, and come
 * late unless asked for.
 */
typedef struct rl_attention_ahead {
    int count;
    const char *row[RL_AHEAD];
    int64_t bytes[RL_AHEAD];
} rl_attention_ahead;

/* The steps of a chunk of one head, common to its panels. */
typedef struct rl_attention_chunk {
    int64_t rows, keys, q_pitch, state_rows;
    bool may_multiply; /* the sizes are such that products of matrices win */

    /* Set before `prepare`. */
    void *q, *k;
    const void *k_factor;  /* [RL_CHUNK] one a step; NULL: 1 */
    double gate[RL_CHUNK]; /* the factor */
    bool reset[RL_CHUNK];  /* drops the state before it */

    /*
     * Made by `prepare`.  b: the product of the gates from the first one on; e: of those after the step.  Where a
     * step is not steady, products of matrices must not reach it or what follows; where its query is not good, not
     * it.
     */
    void *mix;   /* [RL_CHUNK][RL_CHUNK] products of decays times q·k; zero above the diagonal; NULL: not wanted */
    void *plain; /* the same without the decays, the diagonal and what is above it undefined; NULL: not wanted */
    double b[RL_CHUNK], e[RL_CHUNK];
    double carry_rest;          /* of the last b, what a real cannot hold */
    int64_t steady;             /* steps before the first that is not */
    int64_t fades;              /* steps before the first where a product of decays is so small that only moderate
                                   numbers may meet it */
    int64_t largest;            /* bits of the largest magnitude in q and k */
    bool good[RL_CHUNK], sound; /* sound: all are good and steady */
} rl_attention_chunk;

/* One panel at one chunk. */
typedef struct rl_attention_panel {
    const rl_attention_chunk *chunk;
    int vectors;
    int64_t columns;      /* lanes of the vectors that hold values; zeros in the others meet infinities, too */
    void *v;              /* multiplied by v_factor in `enter` */
    const void *v_factor; /* [RL_CHUNK]; NULL: 1 */
    const void *y_factor; /* [RL_CHUNK]; NULL: 1 */
    void *state;
    int64_t *largest; /* bits of the state's largest magnitude, kept up to date; NULL where no chunk may multiply */
    void *y;          /* NULL: only the state is wanted */
    bool accumulate;  /* adds to y */
    void *faded;      /* [vectors][RL_CHUNK][lanes] room */
    const rl_attention_ahead *ahead;

    /* Set by `enter`. */
    bool multiplies; /* the entering state may take part in products of matrices */
    int64_t steady;  /* of the chunk's, those where the values are, too */

    const void *partner; /* [vectors][RL_CHUNK][lanes] or NULL */
    void *inner; /* [RL_CHUNK] partner · Sᵀq of the entering state, without decay; NaN where that may not multiply */
    void *whole; /* [RL_CHUNK] partner · Sᵀq of the state after the update */
} rl_attention_panel;

/*
 * A panel's part of the gates' gradients, dg = <G, S before the step>, beside the walk that makes dk: its q is v, its
 * k is dy, its v is scale q, its state is Gᵀ and its steps run backward.  All arrays are in that order.
 */
typedef struct rl_attention_gates {
    const rl_attention_panel *panel; /* its partner is k */
    const void *entry;               /* the state before the chunk, laid out as the panel's own */
    int64_t entry_largest;
    const double *gate; /* [RL_CHUNK] of the steps themselves: the walk's are those of the steps after */
    const bool *reset;
    const double *beta; /* [RL_CHUNK] */
    const void *read;   /* [RL_CHUNK] q · scale S dy of the entering state, without decay */
    void *room;         /* [2 vectors lanes + 2 RL_CHUNK][RL_CHUNK] of real, and [RL_CHUNK] vectors */
    int64_t begin, end; /* those that products give; the others are had by steps */
    double across;      /* <G, S> of the states on the chunk's two sides */
    double *dg;         /* [RL_CHUNK] */
} rl_attention_gates;

typedef struct rl_attention_kernels {
    int64_t (*largest)(const void *numbers, int64_t vectors);
    /* Multiplies k by its factor, and makes the rest of the chunk. */
    void (*prepare)(rl_attention_chunk *chunk);
    /* Multiplies v by its factor and decides the way; then the walk itself. */
    void (*enter)(rl_attention_panel *panel);
    void (*walk)(rl_attention_panel *panel);
    /* Before the panel's walk, after it was entered; and after the walk. */
    void (*begin_gates)(rl_attention_gates *gates);
    void (*end_gates)(rl_attention_gates *gates);
} rl_attention_kernels;

#endif
