#include "timing.h"

#include <stdlib.h>

#include "ceilings.h"

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

bench_sample bench_summarise(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, ascending);
    double median = count % 2 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
    return (bench_sample){.median = median, .least = seconds[0], .count = count};
}

static bool prepare(const bench_work *work, failure *why)
{
    return !work->prepare || work->prepare(work->data, why);
}

static bool synchronize(rill_context *context, failure *why)
{
    return rill_synchronize(context) == RILL_OK ? true : failure_set(why, "%s", rill_last_error(context));
}

static bool run_many(rill_context *context, int64_t calls, const bench_work *work, double *seconds, failure *why)
{
    if (!prepare(work, why) || !synchronize(context, why)) return false;
    double begin = bench_now();
    for (int64_t i = 0; i < calls; i++)
        if (!work->run(work->data, why)) return false;
    if (!synchronize(context, why)) return false;
    *seconds = (bench_now() - begin) / (double)calls;
    return true;
}

bool bench_time_host(rill_context *context, bench_mode mode, bool quick, const bench_work *work, bench_sample *time,
                     failure *why)
{
    const double budget = quick ? 0.5 : 2.0;
    double seconds[BENCH_MAX_SAMPLES], once = 0.0;
    if (!run_many(context, 1, work, &once, why) || !run_many(context, 1, work, &once, why)) return false;
    int64_t calls = mode == BENCH_ONE_CALL ? 1 : (int64_t)(5e-3 / (once + 1e-9)) + 1;
    int count = 0, least = quick ? 3 : 5;
    double begin = bench_now();
    while (count < least || (count < BENCH_MAX_SAMPLES && bench_now() - begin < budget))
        if (!run_many(context, calls, work, &seconds[count++], why)) return false;
    *time = bench_summarise(seconds, count);
    return true;
}

static bool run_once(const bench_work *work, double *least, failure *why)
{
    if (!prepare(work, why)) return false;
    double begin = bench_now();
    if (!work->run(work->data, why)) return false;
    double taken = bench_now() - begin;
    if (taken < *least) *least = taken;
    return true;
}

bool bench_time_turns(int turns, const bench_work *works, int count, double *seconds, failure *why)
{
    for (int i = 0; i < count; i++) {
        if (!prepare(&works[i], why) || !works[i].run(works[i].data, why)) return false; /* warm */
        seconds[i] = 1e300;
    }
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < count; i++)
            if (!run_once(&works[i], &seconds[i], why)) return false;
    return true;
}
