/*
 * The selective scan of one call, common to both operators.
 *
 * Channels are cut into vectors of the kernels' lanes, and vectors into blocks.  The unit of work is a block of one
 * piece (a run of steps of one sequence), walked in tiles of time that fit the first-level cache.  A vector's lanes
 * belong to one group; where groups are narrower than a vector, B and C are spread over its lanes instead.
 *
 * The result's bits follow from each channel's own data alone: every step is computed in the same order and grouping
 * of states whatever the blocks, tiles, pieces and threads are.
 */
#ifndef RL_CPU_S6_H
#define RL_CPU_S6_H

#include "cpu.h"
#include "series.h"

typedef struct rl_piece {
    int64_t sequence, length;
    bool first, last; /* whether it begins and ends its sequence */
    rl_series x, delta, B, C, z, y;
    void *carry; /* [vectors][states][lanes] the state between pieces; NULL where a sequence is one piece */
} rl_piece;

/* A list of pieces, made on demand. */
typedef struct rl_pieces {
    int64_t count;
    void (*get)(const void *owner, int64_t index, rl_piece *piece);
    const void *owner;
} rl_pieces;

typedef struct rl_s6 {
    /* Set by the operator. */
    const rl_kernels *kernels;
    int64_t channels, states, groups;
    rill_tensor A, D, delta_bias, h_init, h_final; /* as in the problem */
    bool f64, A_is_log, softplus, gated;           /* gated: z is given */
    double low, high;

    /* Set by rl_s6_plan. */
    int threads;
    bool spread;
    int64_t stripe_channels, stripe_vectors, vectors; /* stripe: a group's channels, or all of them when spread */
    int64_t block_vectors, stripe_blocks, blocks;
    int64_t state_blocks, slices; /* the states' slices: units in which Σ C h is summed and shared out */
    int64_t tile_rows;
    size_t real_size, vector_size, scratch_size;
    void *scratch;            /* [threads][scratch_size] */
    struct rl_narrow *narrow; /* for few and long pieces: see s6_narrow.c; NULL otherwise */
    struct rl_parts *parts;   /* for very long ones of these: see s6_parts.c; NULL otherwise */
} rl_s6;

/*
 * Plans a call whose pieces are at least `pieces` at a time, none longer than `longest`, and takes scratch memory.
 * `threads` is the team that will run it.
 */
rill_status rl_s6_plan(rill_context *context, rl_s6 *scan, int threads, int64_t pieces, int64_t longest);

/* Runs the pieces.  Every thread of a team of scan->threads calls it; all work is done when all have returned. */
void rl_s6_run(const rl_s6 *scan, const rl_pieces *pieces);

/* Threads worth starting for this many steps of channels. */
int rl_s6_threads(const rill_context *context, int64_t steps, int64_t states);

/* The rest is shared with s6_narrow.c and s6_parts.c. */

/* Where a vector's channels lie. */
typedef struct rl_vector_place {
    int64_t channel, lanes, stripe, index; /* the first channel; how many; the vector's index of all */
} rl_vector_place;

static inline rl_vector_place rl_vector_at(const rl_s6 *scan, int64_t stripe, int64_t vector)
{
    int64_t first = vector * scan->kernels->lanes, left = scan->stripe_channels - first;
    return (rl_vector_place){.channel = stripe * scan->stripe_channels + first,
                             .lanes = left < scan->kernels->lanes ? left : scan->kernels->lanes,
                             .stripe = stripe,
                             .index = stripe * scan->stripe_vectors + vector};
}

/* A vector's parameters and state. */
typedef struct rl_vector_state {
    char *A, *A_bound, *h; /* as in rl_recurrence */
    char *D, *bias;
} rl_vector_state;

size_t rl_vector_state_size(const rl_s6 *scan);
rl_vector_state rl_vector_state_in(const rl_s6 *scan, void *memory);
void rl_load_parameters(const rl_s6 *scan, rl_vector_place place, const rl_vector_state *v);

/* The state at a piece's begin and end; `h` as v->h or in the piece's carry. */
void rl_load_state(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, void *h);
void rl_store_state(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, const void *h);

/* B and C of the rows from step t on, for vectors like the one at `place`. */
void rl_pack_inputs(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, int64_t t, int64_t rows,
                    void *bc);
size_t rl_inputs_size(const rl_s6 *scan, int64_t rows);

/* A vector's rows from step t on: where they lie, or loaded into `room`. */
rl_rows rl_s6_rows(const rl_s6 *scan, const rl_series *series, int64_t t, int64_t rows, rl_vector_place place,
                   void *room);

/* Where a kernel may write such rows: where they lie, or `room`, from which they are still to be stored. */
rl_rows rl_s6_target(const rl_s6 *scan, const rl_series *series, int64_t t, rl_vector_place place, void *room);

/* From Σ C h of these rows to y, past skip and gate; `sum` may be overwritten. */
void rl_s6_finish(const rl_s6 *scan, const rl_piece *piece, int64_t t, int64_t rows, rl_vector_place place,
                  const rl_vector_state *v, void *sum, rl_rows x, void *room);

/* The recurrence over one slice of the states. */
void rl_recur_slice(const rl_s6 *scan, const rl_vector_state *v, rl_recurrence recurrence, int64_t slice);

/* The calling thread's room for a vector's parameters and state. */
rl_vector_state rl_own_vector_state(const rl_s6 *scan);

/* The rows of one vector from step t on, at most a tile. */
void rl_run_rows(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, const rl_vector_state *v, int64_t t,
                 int64_t rows);

/* Whether a sequence begins without a state at the piece's first step. */
static inline bool rl_starts_fresh(const rl_s6 *scan, const rl_piece *piece)
{
    return piece->first && !scan->h_init.data;
}

size_t rl_narrow_size(const rl_s6 *scan);
void rl_narrow_plan(rl_s6 *scan, void *memory);
void rl_narrow_run(const rl_s6 *scan, const rl_piece *piece);

rill_status rl_parts_plan(rill_context *context, rl_s6 *scan, int64_t longest);
bool rl_parts_wanted(const rl_s6 *scan, const rl_piece *piece);
void rl_parts_run(const rl_s6 *scan, const rl_piece *piece);

#endif
