#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_commit.h"
#include "rates.h"

/* The marks on the cpu: how much faster than the yardstick, and how near to the FMA loop's own speed-up. */
static const double yardstick_mark = 2.2, threads_mark = 0.93;

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
    printf("%-30s %11s %11s %11s %-11s %7s\n", "shape", "median ms", "least ms", "floor ms", "(by)", "ratio");
}

static void print_text(const bench_result *result)
{
    static const char *const modes[] = {"", " mode=eager", " mode=graph", " mode=decode"};
    printf("    \"%s%s\"\n", result->problem.text, modes[result->problem.mode]);
}

void bench_report_print(const bench_report *report, const bench_result *result)
{
    const bench_problem *problem = &result->problem;
    printf("%-30s %11.5f %11.5f %11.5f %-11s %7.2f", problem->name, 1e3 * result->time.median,
           1e3 * result->time.least, 1e3 * result->floor.seconds, result->floor.by,
           result->floor.seconds > 0.0 ? result->time.median / result->floor.seconds : 0.0);
    if (problem->cuda_mark_ms > 0.0 && strstr(report->device, "H200"))
        printf("   mark %.4g ms, %.2f of it", problem->cuda_mark_ms,
               1e3 * result->time.median / problem->cuda_mark_ms);
    printf("\n");
    print_text(result);
    if (result->yardstick_ratio > 0.0)
        printf(
            "    one thread: %.2f times faster than the plain loop's %.3f ms (mark %.2g), results differ by %.1e\n",
            result->yardstick_ratio, 1e3 * result->yardstick_seconds, yardstick_mark, result->yardstick_error);
    if (result->threads_ratio > 0.0)
        printf("    %d threads: %.3f times faster than one; an FMA loop %.3f; %.3f of it (mark %.2g)\n",
               report->threads, result->threads_speedup, result->fma_speedup, result->threads_ratio, threads_mark);
    fflush(stdout);
}

static json_t *result_json(const bench_result *result)
{
    static const char *const modes[] = {"call", "eager", "graph", "decode"};
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:f, s:s, s:f, s:f, s:f}", "name", result->problem.name, "problem",
                  result->problem.text, "mode", modes[result->problem.mode], "median_ms", 1e3 * result->time.median,
                  "least_ms", 1e3 * result->time.least, "samples", result->time.count, "floor_ms",
                  1e3 * result->floor.seconds, "floor_by", result->floor.by, "bytes", result->floor.bytes,
                  "state_steps", result->floor.state_steps, "product_flops", result->floor.flops);
    if (result->problem.cuda_mark_ms > 0.0)
        json_object_set_new(json, "mark_h200_ms", json_real(result->problem.cuda_mark_ms));
    if (result->yardstick_ratio > 0.0) {
        json_object_set_new(json, "times_faster_than_yardstick", json_real(result->yardstick_ratio));
        json_object_set_new(json, "yardstick_ms", json_real(1e3 * result->yardstick_seconds));
        json_object_set_new(json, "difference_from_yardstick", json_real(result->yardstick_error));
    }
    if (result->threads_ratio > 0.0) {
        json_object_set_new(json, "threads_speedup", json_real(result->threads_speedup));
        json_object_set_new(json, "fma_speedup", json_real(result->fma_speedup));
        json_object_set_new(json, "threads_speedup_over_fma", json_real(result->threads_ratio));
    }
    return json;
}

bool bench_report_write(const bench_report *report, output *to, failure *why)
{
    const bench_ceilings *top = &report->ceilings;
    json_t *results = json_array();
    for (int i = 0; i < report->count; i++) json_array_append_new(results, result_json(&report->results[i]));
    json_t *root = json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:i, s:i}, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f}, s:o}",
                             "backend", report->backend, "commit", report->commit, "date", report->date, "machine",
                             "device", report->device, "processor", report->processor, "processors",
                             report->processors, "threads", report->threads, "ceilings", "bytes_per_second",
                             top->bytes, "exponentials_per_second", top->exponentials, "state_steps_per_second",
                             top->state_steps, "flops_f64", top->flops_f64, "flops_f32", top->flops_f32, "flops_bf16",
                             top->flops_bf16, "flops_f16", top->flops_f16, "results", results);
    if (!root) return failure_set(why, "out of memory");
    bool good = output_begin(to, why);
    if (good && (json_dumpf(root, to->file, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) != 0 || fflush(to->file) != 0))
        good = failure_set(why, "cannot write: %s", strerror(errno));
    json_decref(root);
    return good;
}
