/*
 * Comparing a case's outputs and gradients with the right values by SPEC's measure: those are the file's expect.NAME,
 * or else the reference backend's result in f64 (c128).  The allowance for rounding is between the two reference
 * backends, whatever the file expects; each of them takes its own outputs through its own gradients.
 *
 * Where the file stretches an input over an axis, the gradient of the stored tensor is the sum over that axis.  It is
 * summed here in long double, from what the backend, the reference and the plain loop have computed for each element,
 * and measured as one slice.
 */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include <stdbool.h>

#include <rill/rill.h>

#include "casefile.h"
#include "failure.h"
#include "measure.h"
#include "solution.h"

typedef struct judge {
    const casefile *from;
    solution ref, loop; /* the case on the two reference backends, run once */
} judge;

bool judge_open(judge *made, const casefile *from, failure *why);
void judge_close(judge *made);

/* A tensor of the case computed elsewhere, in its storage type. */
measure judge_outcome(const judge *made, const outcome *out);

/* The reference's own tensor against expect.NAME, an output within 1e-13, a gradient within 1e-12; false in *known
 * without an expect. */
measure judge_reference(const judge *made, const outcome *out, bool *known);

#endif
