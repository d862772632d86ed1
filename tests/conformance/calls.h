/* Calls made of whole tensors, and the parts of such calls: for tests of laws that relate calls to each other. */
#ifndef CONFORMANCE_CALLS_H
#define CONFORMANCE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "draw.h"
#include "run.h"

/* Every tensor of a case, contiguous or with time as the fastest axis: drawn inputs, and outputs full of a value that
 * no result has. */
typedef struct call {
    const test_case *c;
    rill_tensor tensor[OP_MAX_TENSORS]; /* own their data; absent ones are zero */
    bool wide;
} call;

/* wide: outputs, and states going in, are f64 or c128 whatever the case says (reference only). */
call call_make(const test_case *c, bool wide);
void call_free(call *made);

/* Fresh outputs beside the same inputs' values. */
void call_clear_outputs(const call *made);

/* The call's args struct, and a part of it: every tensor with that axis keeps [start, start + count). */
void call_args(const call *made, args_room *args);
void args_narrow(const op *row, args_room *args, const char *axis, int64_t start, int64_t count);

/* Runs; a refusal is printed with its message. */
bool args_run(rill_context *context, const op *row, args_room *args);

/* Whether an output is a sum over all steps of all sequences: the gradient of a parameter. */
bool is_sum(const op_tensor *t);

/* The first output of a that differs from b's in any bit is printed; true where none does.  Sums count where said. */
bool calls_same_outputs(const call *a, const call *b, const char *what, bool sums);

/* The rows of op_table. */
int op_count(void);

/* Pins the sizes of heads, keys and values that have this number, from 0 to 5; other operators do not see them. */
void pin_attention(draw_limits *limits, int number);

/* The i-th pair of a state's entry and exit (tensor indices); false after the last. */
bool state_pair(const test_case *c, int i, int *entry, int *exit);

bool case_option(const test_case *c, const char *name);

/* Whether the operator walks from the last step to the first: it is reversed, or a backward that is not. */
bool runs_backwards(const test_case *c);

#endif
