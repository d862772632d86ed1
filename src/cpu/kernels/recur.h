/* What the recurrence and its gradients read a step: entries of B and C, and the decay. */
#ifndef RL_CPU_RECUR_H
#define RL_CPU_RECUR_H

#include <stdbool.h>

#include "functions.h"

/* Entry i of a row of B and C: one number for all lanes, or a vector. */
RL_INLINE vreal entry(const real *row, int i, bool spread)
{
    return spread ? *(const vreal *)(row + i * LANES) : splat(row[i]);
}

/* How the decays of a tile are had: within EXP_SAFE, for any argument, or from step sizes that have no rate. */
enum { WIDE, SAFE, LARGE };

RL_INLINE vreal decay_of(decay_rate rate, vreal A, int way)
{
    return way == LARGE ? exp_decay_of(rate.upper, A) : exp_decay(rate, A, way == SAFE);
}

/* The way for a tile and block of states, from the largest magnitudes of their δ and A. */
RL_INLINE int way_of(vreal bound, vreal A_bound)
{
    if (!all_at_most(bound, splat(DELTA_LARGE))) return LARGE;
    return all_at_most(bound * A_bound, splat(EXP_SAFE)) ? SAFE : WIDE;
}

#endif
