/* What the tests of the selective gradients' hard inputs share: the context at hand, and ways to run and to look. */
#ifndef CONFORMANCE_HARD_SELECTIVE_BACK_H
#define CONFORMANCE_HARD_SELECTIVE_BACK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hard.h"

/* Set for each group of tests. */
extern rill_context *context;

/* The types in which results are compared closely. */
extern const rill_dtype wide_types[2];

/* A refusal fails the test. */
void run_back(const hard_back *back);

/* Within SPEC's tolerance of a gradient of the tensor's type. */
void check_at(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, double right);

/* Edges: softplus, clamps, an infinite A, what is not read, what flows nowhere. */
int run_edge_tests(const char *name);

/* Row 12: views in other orders, with gaps, and far apart. */
int run_view_tests(const char *name);

/* Problems that fill a GPU. */
int run_walk_tests(const char *name);

#endif
