/*
 * Comparing a case's outputs with the right values by SPEC's measure: those are the file's expect.NAME, or else the
 * reference backend's output in f64.  The allowance for rounding is between the two reference backends, whatever the
 * file expects.
 */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include <stdbool.h>

#include <rill/rill.h>

#include "call.h"
#include "casefile.h"
#include "failure.h"
#include "measure.h"

typedef struct judge {
    const casefile *from;
    call ref, loop; /* the case on the two reference backends, run once */
} judge;

bool judge_open(judge *made, const casefile *from, failure *why);
void judge_close(judge *made);

/* An output of the case computed elsewhere, in its storage type. */
measure judge_output(const judge *made, const op_tensor *tensor, const rill_tensor *out);

/* The reference's own output, in f64, against expect.NAME within 1e-13; false in *known without an expect. */
measure judge_reference(const judge *made, const op_tensor *tensor, bool *known);

#endif
