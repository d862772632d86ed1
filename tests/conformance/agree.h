/* SPEC's bound on one slice: all of an output. */
#ifndef CONFORMANCE_AGREE_H
#define CONFORMANCE_AGREE_H

#include <stdbool.h>

#include <rill/rill.h>

/* Whether `out` is as near to the reference as the bound of its type allows, given the plain loop's result. */
bool slice_agrees(const rill_tensor *out, const rill_tensor *ref, const rill_tensor *loop, bool is_gradient);

#endif
