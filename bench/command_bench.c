/* rill bench: times shapes beside the machine's own ceilings. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "bench.h"
#include "ceilings.h"
#include "commands.h"
#include "compare.h"
#include "device.h"
#include "inputs.h"
#include "output.h"
#include "report.h"
#include "targets.h"
#include "timing.h"

static const char usage[] =
    "usage: rill bench [--backend auto|cpu|cuda|reference|loop] [--isa ISA] [--threads N] [--reproducible]\n"
    "                  [--json FILE] [--commit TEXT] [--list] [--quick] [[--shape] NAME|PROBLEM|FILE]...\n\n"
    "Measures the machine's ceilings, then the time of each shape, its floor by those ceilings, and their ratio.  A\n"
    "PROBLEM is what a line of the output shows, perhaps with more keys:\n\n"
    "    \"selective_scan:f32:32x4096x256x16:delta_softplus,D mode=graph\"\n"
    "    \"scan:f32:32x4096x256:time_contiguous,in_place compare=triad,nt-triad\"\n\n"
    "Without any the named shapes of the backend run; --list prints them; --quick takes fewer samples.\n";

typedef struct bench_choice {
    target_choice target;
    const char *json, *commit;
    bool list, quick, help;
    bench_problem *problems;
    int count;
    const char **sources; /* the words that named the problems */
    int source_count;
} bench_choice;

static bool take_problem(bench_choice *choice, const char *what, failure *why)
{
    choice->sources[choice->source_count++] = what;
    return bench_find_shapes(what, &choice->problems, &choice->count, why);
}

static bool parse_word(int option, bench_choice *choice, char **argv, failure *why)
{
    switch (option) {
    case 'b':
        return target_parse_backend(&choice->target, optarg, why);
    case 'i':
        return target_parse_isa(&choice->target, optarg, why);
    case 't':
        return target_parse_threads(&choice->target, optarg, why);
    case 's':
        return take_problem(choice, optarg, why);
    case 'r':
        choice->target.options.reproducible = true;
        return true;
    case 'j':
        return command_take(&choice->json, "--json", why);
    case 'c':
        return command_take(&choice->commit, "--commit", why);
    case 'l':
        choice->list = true;
        return true;
    case 'q':
        choice->quick = true;
        return true;
    case 'h':
        choice->help = true;
        return true;
    default:
        return command_bad_option(option, argv, why);
    }
}

static bool parse(int argc, char **argv, bench_choice *choice, failure *why)
{
    static const struct option options[] = {
        {"backend", required_argument, NULL, 'b'},
        {"isa", required_argument, NULL, 'i'},
        {"threads", required_argument, NULL, 't'},
        {"shape", required_argument, NULL, 's'},
        {"reproducible", no_argument, NULL, 'r'},
        {"json", required_argument, NULL, 'j'},
        {"commit", required_argument, NULL, 'c'},
        {"list", no_argument, NULL, 'l'},
        {"quick", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    opterr = 0;
    choice->sources = calloc((size_t)argc, sizeof *choice->sources);
    if (!choice->sources) return failure_set(why, "out of memory");
    while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1)
        if (!parse_word(option, choice, argv, why)) return false;
    for (; optind < argc; optind++)
        if (!take_problem(choice, argv[optind], why)) return false;
    return true;
}

static bool list_shapes(failure *why)
{
    bench_problem *known = NULL;
    int count = 0;
    bool good = bench_known_shapes(&known, &count, why);
    for (int i = 0; good && i < count; i++)
        printf("%-36s %-5s %s\n", known[i].name, known[i].on_cuda ? "cuda" : "cpu", known[i].text);
    free(known);
    return good;
}

/* The named shapes of the backend, when none was asked for; an operator that it lacks is told and passed over. */
static bool choose_default(bench_choice *choice, rill_context *context, failure *why)
{
    bool cuda = rill_context_backend(context) == RILL_BACKEND_CUDA;
    if (choice->count) return true;
    if (!bench_known_shapes(&choice->problems, &choice->count, why)) return false;
    int kept = 0;
    for (int i = 0; i < choice->count; i++) {
        const bench_problem *problem = &choice->problems[i];
        bool here = cuda ? problem->on_cuda : problem->on_cpu;
        if (!here || (choice->quick && !problem->quick)) continue;
        if (op_available(problem->operation, context))
            choice->problems[kept++] = *problem;
        else
            printf("%s: this backend does not have %s\n", problem->name, problem->operation->name);
    }
    choice->count = kept;
    return true;
}

/* What a shape alone cannot tell: whether this backend can compute and measure it. */
static bool check_problem(const bench_problem *problem, rill_context *context, failure *why)
{
    rill_backend backend = rill_context_backend(context);
    if (problem->mode == BENCH_GRAPH && backend != RILL_BACKEND_CUDA)
        return failure_set(why, "mode=graph is for the cuda backend");
    if (problem->yardstick && backend == RILL_BACKEND_CPU && !bench_has_yardstick(problem))
        return failure_set(why, "there is no yardstick for it, expected none in compare=");
    return bench_call_check(problem, context, why);
}

/* All of them before the first is measured. */
static bool check_problems(const bench_choice *choice, rill_context *context, failure *why)
{
    failure inner;
    for (int i = 0; i < choice->count; i++)
        if (!check_problem(&choice->problems[i], context, &inner))
            return failure_set(why, "%s: %s", choice->problems[i].text, inner.text);
    return true;
}

static bool time_problem(const bench_choice *choice, rill_context *context, bench_device *device,
                         const bench_problem *problem, bench_result *result, failure *why)
{
    bench_call made;
    if (!bench_call_open(&made, problem, context, why)) return false;
    bench_work work = bench_call_work(&made);
    bool good;
    if (device && problem->mode != BENCH_EAGER)
        good = bench_device_time(device, problem->mode, choice->quick, &work, &result->time, why);
    else
        good = bench_time_host(context, problem->mode, choice->quick, &work, &result->time, why);
    good = good && bench_call_sound(&made, why);
    bench_call_close(&made);
    return good;
}

static bool compare(const bench_choice *choice, const bench_report *report, const bench_problem *problem,
                    bench_result *result, failure *why)
{
    const rill_options *options = &choice->target.options;
    if (problem->yardstick && !bench_compare_yardstick(problem, options, choice->quick, result, why)) return false;
    bool triads = problem->triad[BENCH_ORDINARY] || problem->triad[BENCH_STREAMING];
    if (triads && !bench_compare_triad(problem, options, report->threads, choice->quick, result, why)) return false;
    if (!problem->threads || report->threads < 2) return true;
    return bench_compare_threads(problem, options, report->threads, choice->quick, result, why);
}

static bool run_problems(const bench_choice *choice, rill_context *context, bench_device *device,
                         bench_report *report, failure *why)
{
    bench_report_print_head(report);
    for (int i = 0; i < choice->count; i++) {
        const bench_problem *problem = &choice->problems[i];
        bench_result *result = &report->results[report->count];
        failure inner;
        *result = (bench_result){.problem = *problem, .floor = bench_find_floor(problem, &report->ceilings)};
        bool cpu = rill_context_backend(context) == RILL_BACKEND_CPU;
        if (!time_problem(choice, context, device, problem, result, &inner) ||
            (cpu && !compare(choice, report, problem, result, &inner)))
            return failure_set(why, "%s: %s", problem->text, inner.text);
        report->count++;
        bench_report_print(report, result);
    }
    return true;
}

static bool run_on(bench_choice *choice, rill_context *context, bench_device *device, output *json, failure *why)
{
    bench_report report;
    if (!choose_default(choice, context, why) || !check_problems(choice, context, why)) return false;
    bench_report_begin(&report, context, target_name_of(context), choice->commit);
    bool good = device ? bench_device_ceilings(device, choice->quick, &report.ceilings, why)
                       : bench_cpu_ceilings(report.threads, choice->quick, &report.ceilings, why);
    if (!good) return false;
    report.results = calloc((size_t)choice->count + 1, sizeof *report.results);
    if (!report.results) return failure_set(why, "out of memory");
    good = run_problems(choice, context, device, &report, why);
    if (good && json) good = bench_report_write(&report, json, why);
    free(report.results);
    return good;
}

static bool run_all(bench_choice *choice, output *json, failure *why)
{
    rill_context *context;
    bench_device *device = NULL;
    if (rill_context_create(&choice->target.options, &context) != RILL_OK)
        return failure_set(why, "%s", rill_last_error(NULL));
    bool cuda = rill_context_backend(context) == RILL_BACKEND_CUDA;
    bool good = !cuda || bench_device_open(context, &device, why);
    good = good && run_on(choice, context, device, json, why);
    rill_context_destroy(context);
    bench_device_close(device);
    return good;
}

/* The report is opened before the work, and is none of the files that the shapes came from. */
static bool run_into(bench_choice *choice, failure *why)
{
    if (!choice->json) return run_all(choice, NULL, why);
    output json;
    failure inner;
    if (!output_open(&json, choice->json, &inner))
        return failure_set(why, "%.200s: %.256s", choice->json, inner.text);
    bool good = true;
    for (int i = 0; good && i < choice->source_count; i++)
        if (output_is(&json, choice->sources[i]))
            good = failure_set(why, "%.256s holds the shapes, expected another file for --json", choice->json);
    good = good && run_all(choice, &json, why);
    return output_close(&json, good, why);
}

int command_bench(int argc, char **argv)
{
    bench_choice choice = {0};
    failure why;
    bool good = parse(argc, argv, &choice, &why);
    if (good && !choice.help) good = choice.list ? list_shapes(&why) : run_into(&choice, &why);
    free(choice.problems);
    free(choice.sources);
    if (!good) return command_fail("bench", &why);
    return choice.help ? command_usage(usage, 1) : 0;
}
