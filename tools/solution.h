/* A case computed on one backend: the operator's outputs and, where the file wants them, the gradients. */
#ifndef TOOLS_SOLUTION_H
#define TOOLS_SOLUTION_H

#include <stdbool.h>

#include <rill/rill.h>

#include "call.h"
#include "casefile.h"
#include "failure.h"

typedef struct solution {
    const casefile *from;
    call forward, backward; /* backward.args is NULL while there are no gradients */
    bool wide;
} solution;

/* One of its tensors. */
typedef struct outcome {
    const op_tensor *tensor;
    const rill_tensor *view;
    const rill_tensor *input; /* the tensor of the file whose gradient this is, as it is stored; NULL: of an output */
    bool gradient;            /* also where the file's own operator is one of gradients */
} outcome;

enum { SOLUTION_MAX_OUTCOMES = 2 * OP_MAX_TENSORS };

/* The outputs, in their default types or, when wide, in op_wide_type.  On an error the context's message is in *why.
 */
bool solution_open(solution *made, const casefile *from, rill_context *context, bool wide, failure *why);

/* The gradients, from the outputs that are there; does nothing where the file wants none. */
bool solution_add_gradients(solution *made, rill_context *context, failure *why);

void solution_close(solution *made);

/* Lists outputs, then gradients; equal files give equal lists on every backend. */
int solution_list(const solution *made, outcome list[SOLUTION_MAX_OUTCOMES]);

#endif
