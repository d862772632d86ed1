/* What is bound by memory, beside triads that move as many bytes. */
#include <string.h>

#include "compare.h"
#include "inputs.h"
#include "timing.h"
#include "triad.h"

/* Rill and the triads that are asked for, by turns. */
static bool time_beside(bench_call *made, const bench_problem *problem, int turns, bench_triad *triad,
                        double seconds[1 + BENCH_TRIADS], failure *why)
{
    static bench_body *const bodies[BENCH_TRIADS] = {bench_triad_run, bench_triad_run_streaming};
    bench_work works[1 + BENCH_TRIADS] = {bench_call_work(made)};
    int which[1 + BENCH_TRIADS] = {0}, count = 1;
    double taken[1 + BENCH_TRIADS];
    for (int kind = 0; kind < BENCH_TRIADS; kind++) {
        if (!problem->triad[kind]) continue;
        which[count] = 1 + kind;
        works[count++] = (bench_work){bodies[kind], NULL, triad};
    }
    if (!bench_time_turns(turns, works, count, taken, why)) return false;
    for (int i = 0; i < count; i++) seconds[which[i]] = taken[i];
    return true;
}

static bool compare_with(bench_call *made, const bench_problem *problem, int threads, const char *isa, bool quick,
                         bench_result *result, failure *why)
{
    bench_triad triad;
    double seconds[1 + BENCH_TRIADS] = {0.0};
    if (!bench_triad_open(&triad, result->floor.bytes, threads, isa, why)) return false;
    bool good = time_beside(made, problem, quick ? 3 : 20, &triad, seconds, why);
    bench_triad_close(&triad);
    for (int kind = 0; good && kind < BENCH_TRIADS; kind++)
        if (problem->triad[kind])
            result->beside[kind][result->beside_count] = (bench_beside){threads, seconds[0], seconds[1 + kind]};
    result->beside_count += good;
    return good;
}

bool bench_compare_triad(const bench_problem *problem, const rill_options *options, int threads, bool quick,
                         bench_result *result, failure *why)
{
    rill_context *single;
    rill_options with = *options;
    with.threads = 1;
    if (rill_context_create(&with, &single) != RILL_OK) return failure_set(why, "%s", rill_last_error(NULL));
    rill_context *many = NULL;
    with.threads = threads;
    bool good = rill_context_create(&with, &many) == RILL_OK ? true : failure_set(why, "%s", rill_last_error(NULL));
    bench_call made = {0};
    rill_info info = {.isa = ""};
    rill_context_info(single, &info);
    good = good && bench_call_open(&made, problem, many, why);
    if (good) {
        bench_call one = made; /* the same tensors */
        one.context = single;
        good = compare_with(&one, problem, 1, info.isa, quick, result, why);
        if (good && threads > 1) good = compare_with(&made, problem, threads, info.isa, quick, result, why);
        bench_call_close(&made);
    }
    rill_context_destroy(many);
    rill_context_destroy(single);
    return good;
}
