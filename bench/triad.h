/* STREAM's triad on some threads: the yardstick of what is bound by memory. */
#ifndef BENCH_TRIAD_H
#define BENCH_TRIAD_H

#include "bench.h"

typedef struct bench_triad {
    int threads;
    int64_t count; /* doubles in each of the three arrays */
    double *a, *b, *c;
    const char *isa;
} bench_triad;

/* Three arrays of `bytes` in all, first touched by the threads that will use them; isa as in bench_rates_of. */
bool bench_triad_open(bench_triad *made, double bytes, int threads, const char *isa, failure *why);
void bench_triad_close(bench_triad *made);

/* Bodies for a timer: one pass with ordinary stores, or with stores past the caches. */
bool bench_triad_run(void *triad, failure *why);
bool bench_triad_run_streaming(void *triad, failure *why);

#endif
