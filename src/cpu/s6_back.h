/*
 * The gradients of selective scans, common to both operators.
 *
 * A task is a block of channels over a part of the pieces (runs of steps of one sequence), one piece after the other.
 * A run forward keeps the states at the begin of each tile of time; then the tiles are walked from the last to the
 * first, each of them run again from the states that were kept.
 *
 * All sums have an order that follows from the call's sizes alone.  dB and dC are summed over a block's vectors, then
 * its lanes, and by the operator over a group's blocks; dA, dD and ddelta_bias over a tile, a part's tiles, and the
 * parts.  Vectors are those of s6.h, but for narrow groups: then a vector holds as many whole groups as its lanes
 * can.
 */
#ifndef RL_CPU_S6_BACK_H
#define RL_CPU_S6_BACK_H

#include "kernels/recur_back.h"
#include "s6.h"

typedef struct rl_back_piece {
    rl_piece steps; /* y is not; carry is the state before it, read where it does not begin its sequence */
    rl_series dy, dx, ddelta, dz, dB, dC; /* dB and dC: this block's share */
    void *G;     /* [vectors][states][lanes] from the piece after it to the one before; not at a sequence's ends */
    void *after; /* not NULL: only the state after the piece is wanted, and goes here, as carry */
} rl_back_piece;

/* A list of pieces, made on demand; block is one of its stripe's. */
typedef struct rl_back_pieces {
    int64_t count;
    void (*get)(const void *owner, int64_t index, int64_t block, rl_back_piece *piece);
    const void *owner;
} rl_back_pieces;

typedef struct rl_s6_back {
    /* Set by the operator: of `forward` what s6.h says, but for h_final. */
    rl_s6 forward;
    rill_tensor dh_final, dh_init;
    bool has_dy;
    int64_t parts;   /* of the pieces, each with sums of its own */
    int64_t longest; /* piece */
    int threads;

    /* Set by rl_back_cut and rl_back_plan. */
    rl_s6 gradient; /* what s6.h reads of the states' gradients: h_init is dh_final */
    int64_t vector_channels, stripe_channels, stripe_vectors, vectors;
    int64_t block_vectors, stripe_blocks, blocks;
    size_t scratch_size; /* bytes */
    void *scratch;       /* [threads or tasks, whichever are fewer][scratch_size] */
    void *sums;          /* [parts][vectors][states + 2][lanes] of dA, dD, ddelta_bias */
} rl_s6_back;

/* Parts that are worth their sums. */
int64_t rl_back_parts(int64_t sequences, int64_t steps, int64_t states);

/*
 * Cuts channels into blocks and takes memory.  The blocks follow from the sizes alone, as their sums' bits do; with
 * `reproducible` not from how many parts there are.
 */
void rl_back_cut(rl_s6_back *back, bool reproducible);
rill_status rl_back_plan(rill_context *context, rl_s6_back *back);

/*
 * Every thread of a team of back->threads calls these: first the one that clears the parameters' sums, then for any
 * pieces the one that runs them, in the end the one that stores the sums, to tensors of which any may be absent.
 */
void rl_back_begin(const rl_s6_back *back);
void rl_back_run(const rl_s6_back *back, const rl_back_pieces *pieces);
void rl_back_finish(const rl_s6_back *back, const rill_tensor *dA, const rill_tensor *dD, const rill_tensor *dbias);

/* The rest is shared by the files of this name. */

/* The arrays of a task, in a thread's scratch. */
typedef struct rl_back_scratch {
    rl_back_tile tile;
    char *bc, *held, *decays, *dB, *dC, *lanes; /* lanes: sums of them */
    char *vectors, *kept;                       /* each vector's parameters and G; [tiles][vectors][states][lanes] */
} rl_back_scratch;

/* Where the arrays lie; answers their size in bytes. */
size_t rl_back_lay_out(const rl_s6_back *back, char *memory, rl_back_scratch *scratch);

/* In the scratch that `worker` says. */
void rl_back_run_task(const rl_s6_back *back, const rl_back_pieces *pieces, int64_t task, int64_t worker);

static inline rl_vector_place rl_back_place(const rl_s6_back *back, int64_t index)
{
    int64_t stripe = index / back->stripe_vectors, first = index % back->stripe_vectors * back->vector_channels;
    int64_t left = back->stripe_channels - first;
    return (rl_vector_place){.channel = stripe * back->stripe_channels + first,
                             .lanes = left < back->vector_channels ? left : back->vector_channels,
                             .stripe = stripe,
                             .index = index};
}

/* A vector's sums in a part: dA [states][lanes], dD [lanes], ddelta_bias [lanes]. */
static inline char *rl_back_sums(const rl_s6_back *back, int64_t part, int64_t vector)
{
    size_t rows = (size_t)back->forward.states + 2;
    return (char *)back->sums + (size_t)(part * back->vectors + vector) * rows * back->forward.vector_size;
}

static inline char *rl_back_scratch_of(const rl_s6_back *back, int64_t worker)
{
    return (char *)back->scratch + (size_t)worker * back->scratch_size;
}

#endif
