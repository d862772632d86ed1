/* The gradients of the selective layer on their way: selective_layer_backward.c tells how. */
#ifndef RL_CUDA_SELECTIVE_LAYER_BACK_H
#define RL_CUDA_SELECTIVE_LAYER_BACK_H

#include "device.h"
#include "layer_projections.h"
#include "product.h"

typedef struct rl_layer_gradients {
    rill_context *context;
    const rl_selective_layer_backward_problem *problem;
    rl_selective_layer_problem forward;
    rl_layer_projections projections;
    rl_layer_slab slab;          /* the first and largest */
    int64_t slabs;               /* along time */
    bool several;                /* slabs in all */
    bool weighs, owns_dx;        /* gradients of weights are wanted; dx gathers its parts in scratch */
    bool projects;               /* gradients of the projections are wanted */
    bool rough;                  /* data are of 16 bits */
    bool little;                 /* all products are little work: what is below up to `parts` is not there, but g */
    void *turned, *turned_up;    /* [channels, columns] of the first weights, [rank, channels] of the low rank's */
    void *g, *ddelta, *dx;       /* rows of first_row, with a low rank of delta_row, of channels */
    void *sums, *low_sums;       /* [columns, channels], [channels, rank] */
    void *parts;                 /* of one of those */
    void *parameters, *addends;  /* dA, dD, db_delta one after the other: their sums, and what a slab adds */
    void *states, *G[2];         /* between slabs along time */
    rl_cuda_scan_back_left left; /* by the scan, where products are little work */
    bool begun;                  /* sums have been written */
} rl_layer_gradients;

/* Decides what is to be done, in slabs whose rows take at most so many bytes, and takes the memory for it. */
rill_status rl_layer_gradients_plan(rl_layer_gradients *l, int64_t bytes);

/* A slab's part of the weights' gradients. */
rl_step_sum rl_layer_sum_of_x(const rl_layer_gradients *l, const rl_layer_slab *slab);
rl_step_sum rl_layer_sum_of_low(const rl_layer_gradients *l, const rl_layer_slab *slab);

/* All that follows the scan's gradients, where products are little work. */
rill_status rl_layer_little_back(const rl_layer_gradients *l, const rl_layer_slab *slab);

/* A parameter's gradient as it lies in `parameters`, from a number on; absent where that is not wanted. */
rill_tensor rl_layer_parameter(const rl_layer_gradients *l, const rill_tensor *wanted, void *numbers, int64_t first);

/* Where the scan's part of dx is. */
rill_tensor rl_layer_own_dx(const rl_layer_gradients *l, const rl_layer_slab *slab);

/* Numbers of dA, dD and db_delta. */
static inline int64_t rl_layer_parameters(const rl_layer_gradients *l)
{
    return l->problem->channels * (l->problem->states + 2);
}

#endif
