#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ceilings.h"
#include "inputs.h"
#include "rates.h"
#include "timing.h"

static bool open_call(const bench_problem *problem, const rill_options *options, int threads, rill_context **context,
                      bench_call *made, failure *why)
{
    rill_options with = *options;
    with.threads = threads;
    if (rill_context_create(&with, context) != RILL_OK) return failure_set(why, "%s", rill_last_error(NULL));
    if (bench_call_open(made, problem, *context, why)) return true;
    rill_context_destroy(*context);
    return false;
}

static void close_call(rill_context *context, bench_call *made)
{
    bench_call_close(made);
    rill_context_destroy(context);
}

static const float *data_of(const bench_call *made, const char *name)
{
    return op_args_tensor(op_tensor_find(made->problem->operation, name), made->args)->data;
}

/* The yardstick reads the same memory as the call; only A is turned round. */
static bool open_yardstick(const bench_call *made, yardstick_scan *plain, failure *why)
{
    const op_sizes *sizes = &made->problem->sizes;
    *plain = (yardstick_scan){.batch = op_size(sizes, "batch"),
                              .length = op_size(sizes, "length"),
                              .channels = op_size(sizes, "channels"),
                              .states = op_size(sizes, "states"),
                              .x = data_of(made, "x"),
                              .delta = data_of(made, "delta"),
                              .B = data_of(made, "B"),
                              .C = data_of(made, "C"),
                              .D = data_of(made, "D"),
                              .delta_bias = data_of(made, "delta_bias")};
    size_t channels = (size_t)plain->channels, states = (size_t)plain->states;
    const float *A = data_of(made, "A");
    float *turned = malloc(channels * states * sizeof *turned);
    plain->A = turned;
    plain->y = malloc((size_t)plain->batch * (size_t)plain->length * channels * sizeof *plain->y);
    plain->room = malloc((states + 3) * channels * sizeof *plain->room);
    if (!turned || !plain->y || !plain->room) return failure_set(why, "out of memory");
    for (size_t d = 0; d < channels; d++)
        for (size_t n = 0; n < states; n++) turned[n * channels + d] = A[d * states + n];
    return true;
}

static void close_yardstick(yardstick_scan *plain)
{
    free((void *)plain->A);
    free(plain->y);
    free(plain->room);
}

/* The plain loop in the instruction set that the context uses. */
typedef struct yardstick_body {
    void (*run)(const yardstick_scan *problem);
    yardstick_scan plain;
} yardstick_body;

static bool run_yardstick(void *data, failure *why)
{
    (void)why;
    const yardstick_body *body = data;
    body->run(&body->plain);
    return true;
}

static double relative_difference(const float *left, const float *right, int64_t count)
{
    double error = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double difference = (double)left[i] - (double)right[i];
        error += difference * difference;
        size += (double)right[i] * (double)right[i];
    }
    return size > 0.0 ? sqrt(error / size) : 0.0;
}

static bool has_yardstick(const bench_problem *problem)
{
    static const char *const names[] = {"D", "delta_bias"};
    const op *row = problem->operation;
    if (strcmp(row->name, "selective_scan") != 0 || problem->dtype != RILL_F32) return false;
    if (problem->time_contiguous || problem->in_place) return false;
    for (int i = 0; i < row->tensor_count; i++) {
        bool wanted = row->tensors[i].role == OP_INPUT || row->tensors[i].role == OP_OUTPUT;
        for (int k = 0; k < 2; k++) wanted = wanted || strcmp(row->tensors[i].name, names[k]) == 0;
        if (problem->given[i] != wanted) return false;
    }
    for (int i = 0; i < row->option_count; i++)
        if ((problem->option[i] != 0.0) != (strcmp(row->options[i].name, "delta_softplus") == 0)) return false;
    return op_size(&problem->sizes, "groups") == 1;
}

bool bench_compare_yardstick(const bench_problem *problem, const rill_options *options, bool quick,
                             bench_result *result, failure *why)
{
    rill_context *context;
    bench_call made;
    rill_info info = {.isa = ""};
    double seconds[2];
    if (!has_yardstick(problem)) return failure_set(why, "there is no yardstick for %s", problem->text);
    if (!open_call(problem, options, 1, &context, &made, why)) return false;
    rill_context_info(context, &info);
    yardstick_body body = {.run = bench_rates_of(info.isa)->selective_scan};
    yardstick_scan *plain = &body.plain;
    bool good = open_yardstick(&made, plain, why);
    bench_work works[] = {bench_call_work(&made), {run_yardstick, NULL, &body}};
    good = good && bench_time_turns(quick ? 3 : 20, works, 2, seconds, why);
    if (good) {
        result->yardstick_ratio = seconds[1] / seconds[0];
        result->yardstick_seconds = seconds[1];
        result->yardstick_error =
            relative_difference(plain->y, data_of(&made, "y"), plain->batch * plain->length * plain->channels);
    }
    close_yardstick(plain);
    close_call(context, &made);
    return good;
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
    if (!open_call(problem, options, 1, &context[0], &made[0], why)) return false;
    bool good = open_call(problem, options, threads, &context[1], &made[1], why);
    if (good) {
        good = time_threads(&made[0], &made[1], threads, quick ? 3 : 20, result, why);
        close_call(context[1], &made[1]);
    }
    close_call(context[0], &made[0]);
    return good;
}
