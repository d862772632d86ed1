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

static bool run_many(rill_context *context, int64_t calls, bench_body *body, void *data, double *seconds,
                     failure *why)
{
    double begin = bench_now();
    for (int64_t i = 0; i < calls; i++)
        if (!body(data, why)) return false;
    if (rill_synchronize(context) != RILL_OK) return failure_set(why, "%s", rill_last_error(context));
    *seconds = (bench_now() - begin) / (double)calls;
    return true;
}

bool bench_time_host(rill_context *context, bench_mode mode, bool quick, bench_body *body, void *data,
                     bench_sample *time, failure *why)
{
    const double budget = quick ? 0.5 : 2.0;
    double seconds[BENCH_MAX_SAMPLES], once = 0.0;
    if (!run_many(context, 1, body, data, &once, why) || !run_many(context, 1, body, data, &once, why)) return false;
    int64_t calls = mode == BENCH_ONE_CALL ? 1 : (int64_t)(5e-3 / (once + 1e-9)) + 1;
    int count = 0, least = quick ? 3 : 5;
    double begin = bench_now();
    while (count < least || (count < BENCH_MAX_SAMPLES && bench_now() - begin < budget))
        if (!run_many(context, calls, body, data, &seconds[count++], why)) return false;
    *time = bench_summarise(seconds, count);
    return true;
}

static bool run_once(bench_body *body, void *data, double *least, failure *why)
{
    double begin = bench_now();
    if (!body(data, why)) return false;
    double taken = bench_now() - begin;
    if (taken < *least) *least = taken;
    return true;
}

bool bench_time_pair(int turns, bench_body *left, void *left_data, bench_body *right, void *right_data,
                     double seconds[2], failure *why)
{
    if (!left(left_data, why) || !right(right_data, why)) return false; /* warm */
    seconds[0] = seconds[1] = 1e300;
    for (int turn = 0; turn < turns; turn++) {
        if (!run_once(left, left_data, &seconds[0], why)) return false;
        if (!run_once(right, right_data, &seconds[1], why)) return false;
    }
    return true;
}
