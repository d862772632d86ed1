/* Results as JSON. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "report.h"

/* By thread count: rill's time, the triad's, and the one over the other. */
static json_t *beside_json(const bench_result *result, int kind)
{
    json_t *list = json_array();
    for (int i = 0; i < result->beside_count; i++) {
        const bench_beside *beside = &result->beside[kind][i];
        json_array_append_new(list, json_pack("{s:i, s:f, s:f, s:f}", "threads", beside->threads, "ms",
                                              1e3 * beside->seconds, "triad_ms", 1e3 * beside->triad_seconds,
                                              "time_over_triad", beside->seconds / beside->triad_seconds));
    }
    return list;
}

static void add_comparisons(json_t *json, const bench_result *result)
{
    static const char *const names[BENCH_TRIADS] = {"beside_triad", "beside_nt_triad"};
    if (result->yardstick_ratio > 0.0) {
        json_object_set_new(json, "times_faster_than_yardstick", json_real(result->yardstick_ratio));
        json_object_set_new(json, "yardstick_ms", json_real(1e3 * result->yardstick_seconds));
        json_object_set_new(json, "difference_from_yardstick", json_real(result->yardstick_error));
    }
    if (result->functions_ratio > 0.0) {
        json_object_set_new(json, "time_over_functions", json_real(result->functions_ratio));
        json_object_set_new(json, "functions_ms", json_real(1e3 * result->functions_seconds));
    }
    if (result->threads_ratio > 0.0) {
        json_object_set_new(json, "threads_speedup", json_real(result->threads_speedup));
        json_object_set_new(json, "fma_speedup", json_real(result->fma_speedup));
        json_object_set_new(json, "threads_speedup_over_fma", json_real(result->threads_ratio));
    }
    for (int kind = 0; kind < BENCH_TRIADS; kind++)
        if (result->beside_count && result->problem.triad[kind])
            json_object_set_new(json, names[kind], beside_json(result, kind));
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
    add_comparisons(json, result);
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
