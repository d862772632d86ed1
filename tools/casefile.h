/*
 * Case files: one call of an operator in a safetensors file.  Tensors carry the names of the operator's arguments;
 * metadata `op`, `dtype`, `options` (a JSON object) and `complex` (names of complex tensors, stored with a last axis
 * of 2).  `expect.NAME` is the right value of an output.  `dOUTPUT` is an upstream gradient and `expect.dNAME` the
 * right gradient of the tensor NAME of the file: a file with one of these wants the gradients too.
 */
#ifndef TOOLS_CASEFILE_H
#define TOOLS_CASEFILE_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "failure.h"
#include "operators.h"
#include "safetensors.h"

typedef struct casefile {
    safetensors file;
    const op *operation;
    rill_dtype activations; /* the metadata's dtype */
    const char *options;    /* the metadata's text */
    void *args;             /* the operator's args struct: inputs and options; outputs are absent */
    op_sizes sizes;         /* of every axis */
    void *gradient_args;    /* of operation->backward: its inputs but for the forward's outputs; NULL: not wanted */
} casefile;

/* Fills *read, or says why not (and leaves nothing to close).  Axes of size 1 become broadcasts of the full size. */
bool casefile_read(const char *path, casefile *read, failure *why);
void casefile_close(casefile *read);

/* The right value of an output or a gradient ("dNAME"), or NULL. */
const rill_tensor *casefile_expected(const casefile *read, const char *name);

/* How a tensor is stored: a complex one as its parts, with a last axis of 2. */
rill_tensor casefile_stored_view(const rill_tensor *view);

#endif
