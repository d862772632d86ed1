/* A problem's tensors, in the memory of a context: random inputs, poisoned outputs. */
#ifndef BENCH_INPUTS_H
#define BENCH_INPUTS_H

#include "bench.h"
#include "timing.h"

enum { BENCH_ROTATING = 24 }; /* states that a decode loop goes round, so that none is still in the cache */

typedef struct bench_call {
    const bench_problem *problem;
    rill_context *context;
    void *args;
    void *memory[OP_MAX_TENSORS];
    rill_tensor kept, spoilt; /* in place: the input's own values, and the view over which the output is written */
    void *states[BENCH_ROTATING]; /* decode: each enters and leaves one call in turn */
    int next;
} bench_call;

bool bench_call_open(bench_call *made, const bench_problem *problem, rill_context *context, failure *why);
void bench_call_close(bench_call *made);

/*
 * Whether the library takes such a call, before anything is measured: found by one of length 0, which it checks as
 * any other and which is done at once.
 */
bool bench_call_check(const bench_problem *problem, rill_context *context, failure *why);

/* One call of the operator, with its input restored beforehand where it works in place. */
bench_work bench_call_work(bench_call *made);

/* Whether the outputs, sampled, are free of NaN. */
bool bench_call_sound(bench_call *made, failure *why);

#endif
