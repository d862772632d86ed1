/*
 * The gradients of the S6 recurrence over a tile of steps of one vector of channels.
 *
 * With G the gradient of h_t as it comes from y_t and from the later steps, and p = exp(δ A) h_{t-1}:
 *
 *     dB += G δ x    dC += du h_t    dx += G B δ    dδ += G (A p + B x)    dA += G δ p    G <- exp(δ A) G
 *
 * p is the product that the forward step makes, never h_t - δ x B.
 */
#ifndef RL_CPU_RECUR_BACK_H
#define RL_CPU_RECUR_BACK_H

#include "kernels.h"

/* Steps of a tile at most: what rl_back_states keeps of a block of states stays in the first-level cache. */
enum { RL_BACK_ROWS = 32, RL_BACK_AHEAD = 7, RL_BACK_PASSES = 3 + RL_STEP_FETCHES };

/* The steps, each an array [rows][lanes]. */
typedef struct rl_back_tile {
    int64_t rows;
    void *x, *size, *slope; /* slope: of size by delta, or -1 where size is clamped */
    rl_steps steps;
    void *dy, *z;     /* NULL: not given; dy is there with z only */
    void *du;         /* the gradient of C h + D x */
    void *along_B;    /* Σ G B */
    void *along_size; /* Σ G (A p + B x) */
    void *y;          /* with z: Σ C h, then dz */
    /* Fetched meanwhile, of what the next tile will read and write: by the recurrence, two a block of states, and by
     * the passes of take_steps. */
    rl_rows ahead[RL_BACK_AHEAD], passes[RL_BACK_PASSES];
} rl_back_tile;

/* The states of the vector. */
typedef struct rl_back_states {
    int64_t states;
    const void *A, *A_bound, *bc; /* as in rl_recurrence */
    const void *h;                /* [states][lanes] before the first row */
    void *G;                      /* [states][lanes] comes as what later steps leave, goes as what reaches h */
    void *dA;                     /* [states][lanes] is added to */
    void *dB, *dC; /* [blocks][rows][RL_STATE_BLOCK][lanes] are added to: sums over vectors, not over lanes */
    void *held;    /* [RL_BACK_ROWS + 1][RL_STATE_BLOCK][lanes] scratch */
    void *decays;  /* [RL_BACK_ROWS][RL_STATE_BLOCK][lanes] scratch */
    bool fresh;    /* there is no state before the first row */
    bool spread;
} rl_back_states;

/* Sums over lanes of numbers laid out as dB is: of each row and group, states from `first` on to lanes. */
typedef struct rl_lane_sums {
    int64_t rows, first, states; /* at most `lanes` states */
    int64_t groups, members;     /* lanes of a group */
} rl_lane_sums;

typedef struct rl_back_kernels {
    /* x, the step sizes, their slopes and rates.  x and delta may lie in tile->x and tile->size. */
    void (*take_steps)(const rl_back_tile *tile, rl_rows x, rl_rows delta, const rl_step_rule *rule);
    /* du from dy, which may lie in tile->dy; with z, tile->dy too. */
    void (*enter_gate)(const rl_back_tile *tile, rl_rows dy);
    void (*recur)(const rl_back_tile *tile, const rl_back_states *states);
    /* dx, ddelta, and dz in tile->y; adds to dD and dbias, [lanes].  D may be NULL; dx and ddelta may lie in
     * tile->along_B and tile->along_size. */
    void (*leave_steps)(const rl_back_tile *tile, rl_rows dx, rl_rows ddelta, const void *D, void *dD, void *dbias);
    /* Makes the lanes from `lanes` on zero. */
    void (*clear_lanes)(void *numbers, int64_t rows, int64_t lanes);
    /* to [groups][rows][lanes] */
    void (*sum_lanes)(void *to, const void *numbers, const rl_lane_sums *shape);
    /* dA is 0 where A, not yet prepared, lies beyond the finite range. */
    void (*bar_A)(void *dA, const void *A, int64_t states);
    /* Of A's logarithm instead: dA · A, 0 where A, prepared, was brought into the finite range. */
    void (*through_log)(void *dA, const void *A, int64_t states);
} rl_back_kernels;

#endif
