/* The cpu backend beside a plain loop that reads the same memory: one thread each, by turns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "rates.h"

/* The plain loop in the instruction set that the context uses. */
typedef struct yardstick {
    const bench_rates *rates;
    yardstick_scan scan;
    yardstick_attention attention;
    float *room[3];
    const float *y;
    int64_t count; /* of y */
} yardstick;

static const float *data_of(const bench_call *made, const char *name)
{
    return op_args_tensor(op_tensor_find(made->problem->operation, name), made->args)->data;
}

static int64_t size_of(const bench_call *made, const char *axis)
{
    return op_size(&made->problem->sizes, axis);
}

static float *take(yardstick *made, int which, int64_t count)
{
    return made->room[which] = malloc((size_t)count * sizeof(float));
}

/* Only A is turned round. */
static bool open_scan(const bench_call *made, yardstick *own)
{
    yardstick_scan *p = &own->scan;
    const int64_t channels = size_of(made, "channels"), states = size_of(made, "states");
    own->count = size_of(made, "batch") * size_of(made, "length") * channels;
    float *turned = take(own, 0, channels * states), *y = take(own, 1, own->count);
    float *room = take(own, 2, (states + 3) * channels);
    if (!turned || !y || !room) return false;
    *p = (yardstick_scan){.batch = size_of(made, "batch"),
                          .length = size_of(made, "length"),
                          .channels = channels,
                          .states = states,
                          .x = data_of(made, "x"),
                          .delta = data_of(made, "delta"),
                          .A = turned,
                          .B = data_of(made, "B"),
                          .C = data_of(made, "C"),
                          .D = data_of(made, "D"),
                          .delta_bias = data_of(made, "delta_bias"),
                          .y = y,
                          .room = room};
    own->y = y;
    const float *A = data_of(made, "A");
    for (int64_t d = 0; d < channels; d++)
        for (int64_t n = 0; n < states; n++) turned[n * channels + d] = A[d * states + n];
    return true;
}

static bool run_scan(void *data, failure *why)
{
    (void)why;
    const yardstick *own = data;
    own->rates->selective_scan(&own->scan);
    return true;
}

static bool run_functions(void *data, failure *why)
{
    (void)why;
    const yardstick *own = data;
    own->rates->functions(&own->scan);
    return true;
}

static bool open_attention(const bench_call *made, yardstick *own)
{
    const int64_t heads = size_of(made, "heads"), keys = size_of(made, "keys"), values = size_of(made, "values");
    own->count = size_of(made, "batch") * size_of(made, "length") * heads * values;
    float *y = take(own, 0, own->count), *state = take(own, 1, keys * values);
    if (!y || !state) return false;
    own->attention = (yardstick_attention){.batch = size_of(made, "batch"),
                                           .length = size_of(made, "length"),
                                           .heads = heads,
                                           .keys = keys,
                                           .values = values,
                                           .q = data_of(made, "q"),
                                           .k = data_of(made, "k"),
                                           .v = data_of(made, "v"),
                                           .gate = data_of(made, "gate"),
                                           .y = y,
                                           .state = state};
    own->y = y;
    return true;
}

static bool run_attention(void *data, failure *why)
{
    (void)why;
    const yardstick *own = data;
    own->rates->linear_attention(&own->attention);
    return true;
}

/* The shapes that have one: all required tensors, these optional ones, this option alone, and two sizes alike. */
typedef struct yardstick_kind {
    const char *operation, *optional[2], *option, *axis, *same; /* same: an axis; NULL: 1 */
    bool (*open)(const bench_call *made, yardstick *own);
    bench_body *run, *functions; /* alone; NULL: not compared */
} yardstick_kind;

static const yardstick_kind kinds[] = {
    {"selective_scan", {"D", "delta_bias"}, "delta_softplus", "groups", NULL, open_scan, run_scan, run_functions},
    {"linear_attention",
     {"gate", "gate"},
     "gate_is_log",
     "query_heads",
     "heads",
     open_attention,
     run_attention,
     NULL},
};

static bool fits(const yardstick_kind *kind, const bench_problem *problem)
{
    const op *row = problem->operation;
    if (strcmp(row->name, kind->operation) != 0 || problem->dtype != RILL_F32) return false;
    if (problem->time_contiguous || problem->in_place) return false;
    for (int i = 0; i < row->tensor_count; i++) {
        bool wanted = row->tensors[i].role == OP_INPUT || row->tensors[i].role == OP_OUTPUT;
        for (int k = 0; k < 2; k++) wanted = wanted || strcmp(row->tensors[i].name, kind->optional[k]) == 0;
        if (problem->given[i] != wanted) return false;
    }
    for (int i = 0; i < row->option_count; i++)
        if ((problem->option[i] != 0.0) != (strcmp(row->options[i].name, kind->option) == 0)) return false;
    return op_size(&problem->sizes, kind->axis) == (kind->same ? op_size(&problem->sizes, kind->same) : 1);
}

static const yardstick_kind *kind_of(const bench_problem *problem)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (fits(&kinds[i], problem)) return &kinds[i];
    return NULL;
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

bool bench_has_yardstick(const bench_problem *problem)
{
    return kind_of(problem) != NULL;
}

/* Few states: what the loop costs beside its functions says more there than a plain loop. */
enum { FEW_STATES = 8 };

static bool compare_functions(const yardstick_kind *kind, bench_call *made, yardstick *own, bool quick,
                              bench_result *result, failure *why)
{
    double seconds[2];
    bench_work works[] = {bench_call_work(made), {kind->functions, NULL, own}};
    if (!kind->functions || size_of(made, "states") >= FEW_STATES) return true;
    if (!bench_time_turns(quick ? 3 : 20, works, 2, seconds, why)) return false;
    result->functions_ratio = seconds[0] / seconds[1];
    result->functions_seconds = seconds[1];
    return true;
}

bool bench_compare_yardstick(const bench_problem *problem, const rill_options *options, bool quick,
                             bench_result *result, failure *why)
{
    rill_context *context;
    bench_call made;
    rill_info info = {.isa = ""};
    double seconds[2];
    const yardstick_kind *kind = kind_of(problem);
    if (!bench_compare_open(problem, options, 1, &context, &made, why)) return false;
    rill_context_info(context, &info);
    yardstick own = {.rates = bench_rates_of(info.isa)};
    bool good = kind->open(&made, &own) ? true : failure_set(why, "out of memory");
    bench_work works[] = {bench_call_work(&made), {kind->run, NULL, &own}};
    good = good && bench_time_turns(quick ? 3 : 20, works, 2, seconds, why);
    if (good) {
        result->yardstick_ratio = seconds[1] / seconds[0];
        result->yardstick_seconds = seconds[1];
        result->yardstick_error = relative_difference(own.y, data_of(&made, "y"), own.count);
        good = compare_functions(kind, &made, &own, quick, result, why);
    }
    for (int i = 0; i < 3; i++) free(own.room[i]);
    bench_compare_close(context, &made);
    return good;
}
