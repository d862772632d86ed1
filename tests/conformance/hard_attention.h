/* What the tests of linear attention's hard inputs share: the context at hand, and ways to run and cut a call. */
#ifndef CONFORMANCE_HARD_ATTENTION_H
#define CONFORMANCE_HARD_ATTENTION_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attention_calls.h"
#include "venues.h"

/* Set for each group of tests. */
extern rill_context *context;
extern const venue *where;

enum { ATTENTION_OUTPUTS = 8, ATTENTION_DGATE = 5 };

/* The types in which results are compared closely. */
extern const rill_dtype wide_types[2];

/* A refusal fails the test. */
void run(const rill_linear_attention_args *args);
void run_back(const rill_linear_attention_backward_args *args);

/* The steps [start, start + count) of every tensor by time. */
void narrow(attention *made, int64_t start, int64_t count);

/* One step's gates. */
void set_gate(const attention *made, int64_t t, double value);

/* y, S_final, dq, dk, dv, dgate, dbeta, dS_init. */
void list_outputs(attention *made, rill_tensor *list[ATTENTION_OUTPUTS]);

/* Cut in time, packed, in crowds, of every size, in views: rows 4, 5, 6, 8, 10, 11, 12. */
int run_shape_tests(const char *name);

/* Values of gates and states: rows 1, 2, 3, 9, 13, gates that are not read, resets. */
int run_value_tests(const char *name);

/* 16-bit data in chunks and tiles. */
int run_chunk_tests(const char *name);

#endif
