/* A problem's tensors, in the memory of a context: random inputs, poisoned outputs. */
#ifndef BENCH_INPUTS_H
#define BENCH_INPUTS_H

#include "bench.h"

enum { BENCH_ROTATING = 24 }; /* states that a decode loop goes round, so that none is still in the cache */

typedef struct bench_call {
    const bench_problem *problem;
    rill_context *context;
    void *args;
    void *memory[OP_MAX_TENSORS];
    void *states[BENCH_ROTATING]; /* decode: each is h_init and h_final of one call in turn */
    int next;
} bench_call;

bool bench_call_open(bench_call *made, const bench_problem *problem, rill_context *context, failure *why);
void bench_call_close(bench_call *made);

/* One call of the operator; the signature is a timer's. */
bool bench_call_run(void *made, failure *why);

/* Whether the outputs, sampled, are free of NaN. */
bool bench_call_sound(bench_call *made, failure *why);

#endif
