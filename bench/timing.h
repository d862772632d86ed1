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

/* A body and, where it spoils its own inputs, what restores them before each time that is taken; or NULL. */
typedef struct bench_work {
    bench_body *run, *prepare;
    void *data;
} bench_work;

/* Median and least of `count` times; sorts them. */
bench_sample bench_summarise(double *seconds, int count);

/* Samples of one call each, or of many in a loop when the mode says so, each ended by rill_synchronize. */
bool bench_time_host(rill_context *context, bench_mode mode, bool quick, const bench_work *work, bench_sample *time,
                     failure *why);

/* Several bodies by turns, so that what disturbs the machine disturbs them all: the least seconds of each. */
bool bench_time_turns(int turns, const bench_work *works, int count, double *seconds, failure *why);

#ifdef __cplusplus
}
#endif

#endif
