#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_commit.h"
#include "rates.h"

/* The marks on the cpu: how much faster than the yardstick, or in how many times the functions' time, and how near to
 * the FMA loop's own speed-up. */
static const double yardstick_mark = 2.2, functions_mark = 1.3, threads_mark = 0.93;

static void read_processor(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    fclose(file);
}

void bench_report_begin(bench_report *report, rill_context *context, const char *backend, const char *commit)
{
    rill_info info = {0};
    rill_context_info(context, &info);
    *report = (bench_report){.threads = info.threads, .processors = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    snprintf(report->backend, sizeof report->backend, "%s", backend);
    snprintf(report->device, sizeof report->device, "%s", info.device ? info.device : "");
    snprintf(report->commit, sizeof report->commit, "%s", commit ? commit : BENCH_COMMIT);
    read_processor(report->processor, sizeof report->processor);
    time_t now = time(NULL);
    struct tm utc;
    strftime(report->date, sizeof report->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

void bench_report_print_head(const bench_report *report)
{
    const bench_ceilings *top = &report->ceilings;
    printf("%s, commit %s, %s\n", report->backend, report->commit, report->date);
    if (report->device[0])
        printf("machine: %s\n", report->device);
    else
        printf("machine: %s, %d processors, %d threads, loops of the ceilings in %s\n", report->processor,
               report->processors, report->threads, bench_rates_here()->isa);
    printf("ceilings: %s %.4g GB/s, exponentials %.4g G/s, state steps %.4g G/s\n",
           report->device[0] ? "copy" : "triad", 1e-9 * top->bytes, 1e-9 * top->exponentials,
           1e-9 * top->state_steps);
    printf("          products f32 %.4g, f64 %.4g, bf16 %.4g, f16 %.4g GFLOP/s\n\n", 1e-9 * top->flops_f32,
           1e-9 * top->flops_f64, 1e-9 * top->flops_bf16, 1e-9 * top->flops_f16);
    printf("%-36s %11s %11s %11s %-11s %7s\n", "shape", "median ms", "least ms", "floor ms", "(by)", "ratio");
}

static void print_text(const bench_result *result)
{
    static const char *const modes[] = {"", " mode=eager", " mode=graph", " mode=decode"};
    printf("    \"%s%s\"\n", result->problem.text, modes[result->problem.mode]);
}

/* Ordinary stores: rill's time over the triad's; stores past the caches: its speed over the triad's. */
static void print_beside(const bench_result *result, int i)
{
    const bench_problem *problem = &result->problem;
    const bench_beside *ordinary = &result->beside[BENCH_ORDINARY][i],
                       *streaming = &result->beside[BENCH_STREAMING][i];
    double mark = problem->streaming_mark[i > 0];
    if (problem->triad[BENCH_ORDINARY]) {
        printf("    %d thread%s: %.3f of the time of a triad of as many bytes, %.3f ms", ordinary->threads,
               ordinary->threads > 1 ? "s" : "", ordinary->seconds / ordinary->triad_seconds,
               1e3 * ordinary->triad_seconds);
        if (problem->triad_mark > 0.0) printf(" (mark %.2g)", problem->triad_mark);
        printf("\n");
    }
    if (!problem->triad[BENCH_STREAMING]) return;
    printf("    %d thread%s: %.1f%% of the speed of a triad past the caches, %.3f ms", streaming->threads,
           streaming->threads > 1 ? "s" : "", 1e2 * streaming->triad_seconds / streaming->seconds,
           1e3 * streaming->triad_seconds);
    if (mark > 0.0) printf(" (mark %.3g%%)", 1e2 * mark);
    printf("\n");
}

static void print_yardstick(const bench_result *result)
{
    const bool by_functions = result->functions_ratio > 0.0;
    printf("    one thread: %.2f times faster than the plain loop's %.3f ms", result->yardstick_ratio,
           1e3 * result->yardstick_seconds);
    if (!by_functions) printf(" (mark %.2g)", yardstick_mark);
    printf(", results differ by %.1e\n", result->yardstick_error);
    if (by_functions)
        printf("    one thread: %.2f times the %.3f ms of its softplus and exponentials alone (mark %.2g)\n",
               result->functions_ratio, 1e3 * result->functions_seconds, functions_mark);
}

void bench_report_print(const bench_report *report, const bench_result *result)
{
    const bench_problem *problem = &result->problem;
    printf("%-36s %11.5f %11.5f %11.5f %-11s %7.2f", problem->name, 1e3 * result->time.median,
           1e3 * result->time.least, 1e3 * result->floor.seconds, result->floor.by,
           result->floor.seconds > 0.0 ? result->time.median / result->floor.seconds : 0.0);
    if (problem->cuda_mark_ms > 0.0 && strstr(report->device, "H200"))
        printf("   mark %.4g ms, %.2f of it", problem->cuda_mark_ms,
               1e3 * result->time.median / problem->cuda_mark_ms);
    printf("\n");
    print_text(result);
    if (result->yardstick_ratio > 0.0) print_yardstick(result);
    if (result->threads_ratio > 0.0)
        printf("    %d threads: %.3f times faster than one; an FMA loop %.3f; %.3f of it (mark %.2g)\n",
               report->threads, result->threads_speedup, result->fma_speedup, result->threads_ratio, threads_mark);
    for (int i = 0; i < result->beside_count; i++) print_beside(result, i);
    fflush(stdout);
}
