/* The cpu backend beside a plain loop, many threads beside one, and both beside triads. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "inputs.h"

/* A problem on a context of its own. */
bool bench_compare_open(const bench_problem *problem, const rill_options *options, int threads,
                        rill_context **context, bench_call *made, failure *why);
void bench_compare_close(rill_context *context, bench_call *made);

/* Which shapes have a yardstick: plain float32 calls of a few operators. */
bool bench_has_yardstick(const bench_problem *problem);

/* One thread each, by turns: result->yardstick_ratio and _error.  For shapes that have one. */
bool bench_compare_yardstick(const bench_problem *problem, const rill_options *options, bool quick,
                             bench_result *result, failure *why);

/* One and `threads` threads by turns, rill and an FMA loop: result->threads_ratio and the two speed-ups. */
bool bench_compare_threads(const bench_problem *problem, const rill_options *options, int threads, bool quick,
                           bench_result *result, failure *why);

/* One thread, then `threads`, by turns with the triads that the problem names: result->beside.  floor.bytes is set.
 */
bool bench_compare_triad(const bench_problem *problem, const rill_options *options, int threads, bool quick,
                         bench_result *result, failure *why);

#endif
