/* Times of calls on the host's clock and, in timing.c, the arithmetic of samples. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include "bench.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_SAMPLES = 64 };

/* What is timed; answers false with a reason when it failed. */
typedef bool bench_body(void *data, failure *why);

/* Median and least of `count` times; sorts them. */
bench_sample bench_summarise(double *seconds, int count);

/* Samples of one call each, or of many in a loop when the mode says so, each ended by rill_synchronize. */
bool bench_time_host(rill_context *context, bench_mode mode, bool quick, bench_body *body, void *data,
                     bench_sample *time, failure *why);

/* Two bodies by turns, so that what disturbs the machine disturbs both: the least seconds of each. */
bool bench_time_pair(int turns, bench_body *left, void *left_data, bench_body *right, void *right_data,
                     double seconds[2], failure *why);

#ifdef __cplusplus
}
#endif

#endif
