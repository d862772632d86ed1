/* A call ready to be made: an args struct with inputs, options, and outputs in host memory of its own. */
#ifndef TOOLS_CALL_H
#define TOOLS_CALL_H

#include <stdbool.h>

#include <rill/rill.h>

#include "failure.h"
#include "operators.h"

typedef struct call {
    const op *operation;
    void *args;
    void *memory[OP_MAX_TENSORS]; /* of the outputs, by row of the operator's tensors */
} call;

/*
 * Copies the args and adds every output that the inputs allow, optional ones too, poisoned with NaN.  Types are the
 * defaults beside these activations, or op_wide_type when wide.
 */
bool call_open(call *made, const op *operation, const void *inputs, const op_sizes *sizes, rill_dtype activations,
               bool wide, failure *why);
void call_close(call *made);

/* Runs it and waits; on an error the context's message is in *why. */
bool call_run(const call *made, rill_context *context, failure *why);

#endif
