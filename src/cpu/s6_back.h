/*
 * The gradients of one selective scan.
 *
 * A task is a block of channels over a part of the sequences, one sequence after the other.  A run forward keeps the
 * states at the begin of each tile of time; then the tiles are walked from the last to the first, each of them run
 * again from the states that were kept.
 *
 * All sums have an order that follows from the call's sizes alone.  dB and dC are summed over a block's vectors, then
 * its lanes, and over a group's blocks in the end; dA, dD and ddelta_bias over a tile, a part's tiles, and the parts.
 * Vectors are those of s6.h, but for narrow groups: then a vector holds as many whole groups as its lanes can.
 */
#ifndef RL_CPU_S6_BACK_H
#define RL_CPU_S6_BACK_H

#include "kernels/recur_back.h"
#include "s6.h"

typedef struct rl_s6_back {
    const rl_selective_scan_backward_problem *problem;
    const rl_kernels *kernels;
    rl_s6 forward, gradient; /* what s6.h reads of the states, and of their gradients: h_init is dh_final */
    int64_t vector_channels, stripe_channels, stripe_vectors, vectors;
    int64_t block_vectors, stripe_blocks, blocks;
    int64_t parts;   /* of the sequences */
    int64_t longest; /* sequence */
    int threads;
    size_t vector_size, scratch_size; /* bytes */
    void *scratch;                    /* [threads][scratch_size] */
    void *sums;                       /* [parts][vectors][states + 2][lanes] of dA, dD, ddelta_bias */
    rill_tensor dB,
        dC;           /* [batch, length, groups, states] or absent; [stripe_blocks, ...] of them if those are many */
    size_t sums_step; /* bytes from one of these to the next */
} rl_s6_back;

/* The arrays of a task, in a thread's scratch. */
typedef struct rl_back_scratch {
    rl_back_tile tile;
    char *bc, *held, *decays, *dB, *dC, *lanes; /* lanes: sums of them, or any rows */
    char *vectors, *kept;                       /* each vector's parameters and G; [tiles][vectors][states][lanes] */
} rl_back_scratch;

/* Where the arrays lie; answers their size in bytes. */
size_t rl_back_lay_out(const rl_s6_back *back, char *memory, rl_back_scratch *scratch);

void rl_back_run_task(const rl_s6_back *back, int64_t task);

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
    size_t rows = (size_t)back->problem->states + 2;
    return (char *)back->sums + (size_t)(part * back->vectors + vector) * rows * back->vector_size;
}

static inline char *rl_back_scratch_of(const rl_s6_back *back, int thread)
{
    return (char *)back->scratch + (size_t)thread * back->scratch_size;
}

#endif
