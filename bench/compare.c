#include "compare.h"

#include "ceilings.h"
#include "timing.h"

bool bench_compare_open(const bench_problem *problem, const rill_options *options, int threads,
                        rill_context **context, bench_call *made, failure *why)
{
    rill_options with = *options;
    with.threads = threads;
    if (rill_context_create(&with, context) != RILL_OK) return failure_set(why, "%s", rill_last_error(NULL));
    if (bench_call_open(made, problem, *context, why)) return true;
    rill_context_destroy(*context);
    return false;
}

void bench_compare_close(rill_context *context, bench_call *made)
{
    bench_call_close(made);
    rill_context_destroy(context);
}

/* An FMA loop of fixed work on some threads. */
typedef struct fma_body {
    int threads;
    int64_t rounds;
} fma_body;

static bool run_fma(void *data, failure *why)
{
    (void)why;
    const fma_body *body = data;
    bench_fma_seconds(body->threads, body->rounds);
    return true;
}

/* Rill and the FMA loop on one and on many threads, all four by turns. */
static bool time_threads(bench_call *one, bench_call *many, int threads, int turns, bench_result *result,
                         failure *why)
{
    fma_body single = {1, 20000000}, shared = {threads, 20000000};
    bench_work works[] = {
        bench_call_work(one), bench_call_work(many), {run_fma, NULL, &single}, {run_fma, NULL, &shared}};
    double best[4];
    if (!bench_time_turns(turns, works, 4, best, why)) return false;
    result->threads_speedup = best[0] / best[1];
    result->fma_speedup = best[2] / best[3];
    result->threads_ratio = result->threads_speedup / result->fma_speedup;
    return true;
}

bool bench_compare_threads(const bench_problem *problem, const rill_options *options, int threads, bool quick,
                           bench_result *result, failure *why)
{
    rill_context *context[2];
    bench_call made[2];
    if (!bench_compare_open(problem, options, 1, &context[0], &made[0], why)) return false;
    bool good = bench_compare_open(problem, options, threads, &context[1], &made[1], why);
    if (good) {
        good = time_threads(&made[0], &made[1], threads, quick ? 3 : 20, result, why);
        bench_compare_close(context[1], &made[1]);
    }
    bench_compare_close(context[0], &made[0]);
    return good;
}
