/* The cpu's own ceilings, measured in the run that they are compared with. */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include "bench.h"

/* Triad bandwidth (the better kind of stores), exponentials, state steps and matrix products with this many threads.
 */
bool bench_cpu_ceilings(int threads, bool quick, bench_ceilings *ceilings, failure *why);

/* Seconds of an FMA loop that gives each thread the same work: `rounds` by all threads together. */
double bench_fma_seconds(int threads, int64_t rounds);

/* Seconds since some time ago. */
double bench_now(void);

#endif
