/* rill run: computes a case file's operator, prints a line an output, writes the outputs. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "call.h"
#include "casefile.h"
#include "commands.h"
#include "measure.h"
#include "output.h"
#include "safetensors.h"
#include "targets.h"

static const char usage[] =
    "usage: rill run CASE [-o OUT] [--backend auto|cpu|cuda|reference|loop] [--isa auto|baseline|avx2|avx512]\n"
    "                [--threads N] [--reproducible]\n\n"
    "Computes the operator of a case file (safetensors with metadata op, dtype and options), prints a line an\n"
    "output, and with -o writes the outputs to a safetensors file.\n";

typedef struct run_choice {
    target_choice target;
    const char *output;
    bool help;
} run_choice;

static bool parse(int argc, char **argv, run_choice *choice, failure *why)
{
    static const struct option options[] = {
        {"backend", required_argument, NULL, 'b'},
        {"isa", required_argument, NULL, 'i'},
        {"threads", required_argument, NULL, 't'},
        {"reproducible", no_argument, NULL, 'r'},
        {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;
    opterr = 0;
    while (good && (option = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        switch (option) {
        case 'b':
            good = target_parse_backend(&choice->target, optarg, why);
            break;
        case 'i':
            good = target_parse_isa(&choice->target, optarg, why);
            break;
        case 't':
            good = target_parse_threads(&choice->target, optarg, why);
            break;
        case 'r':
            choice->target.options.reproducible = true;
            break;
        case 'o':
            good = command_take(&choice->output, "--output", why);
            break;
        case 'h':
            choice->help = true;
            break;
        default:
            good = command_bad_option(option, argv, why);
        }
    }
    if (good && !choice->help && optind + 1 != argc)
        good = failure_set(why, "expected one case file, found %d", argc - optind);
    return good;
}

static double norm(const rill_tensor *tensor)
{
    int64_t index[RILL_MAX_RANK] = {0}, elements = 1;
    for (int axis = 0; axis < tensor->rank; axis++) elements *= tensor->shape[axis];
    long double sum = 0.0L;
    for (int64_t i = 0; i < elements; i++) {
        long double value = (long double)measure_load(tensor, index);
        sum += value * value;
        for (int axis = tensor->rank - 1; axis >= 0 && ++index[axis] == tensor->shape[axis]; axis--) index[axis] = 0;
    }
    return (double)sqrtl(sum);
}

static void print_outputs(const call *made)
{
    for (int i = 0; i < made->operation->tensor_count; i++) {
        const op_tensor *tensor = &made->operation->tensors[i];
        if (!op_is_output(tensor)) continue;
        const rill_tensor *view = op_args_tensor(tensor, made->args);
        printf("%-8s %-4s [", tensor->name, rill_dtype_name(view->dtype));
        for (int axis = 0; axis < view->rank; axis++) printf("%s%" PRId64, axis ? "," : "", view->shape[axis]);
        printf("]  norm %.9g\n", norm(view));
    }
}

static bool write_outputs(const call *made, const casefile *from, const char *backend, output *to, failure *why)
{
    stored_tensor stored[OP_MAX_TENSORS] = {0};
    size_t count = 0;
    for (int i = 0; i < made->operation->tensor_count; i++) {
        const op_tensor *tensor = &made->operation->tensors[i];
        if (!op_is_output(tensor)) continue;
        stored[count++] = (stored_tensor){.name = tensor->name, .view = *op_args_tensor(tensor, made->args)};
    }
    const metadata_entry metadata[] = {
        {"op", made->operation->name}, {"dtype", rill_dtype_name(from->activations)},
        {"options", from->options},    {"complex", ""},
        {"backend", backend},          {NULL, NULL},
    };
    return output_begin(to, why) && safetensors_write(to->file, stored, count, metadata, why);
}

/* Writes to `to` unless that is NULL; an error of its own is named by its path in *where. */
static bool compute(const run_choice *choice, const casefile *from, output *to, const char **where, failure *why)
{
    rill_context *context;
    if (rill_context_create(&choice->target.options, &context) != RILL_OK)
        return failure_set(why, "%s", rill_last_error(NULL));
    const char *backend = target_name_of(context);
    call made;
    bool good = call_open(&made, from->operation, from->args, &from->sizes, from->activations, false, why);
    if (good) {
        good = call_run(&made, context, why);
        if (good) {
            printf("%s on %s\n", from->operation->name, backend);
            print_outputs(&made);
        }
        if (good && to) {
            good = write_outputs(&made, from, backend, to, why);
            if (!good) *where = to->path;
        }
        call_close(&made);
    }
    rill_context_destroy(context);
    return good;
}

/* The output is opened before the work, and never the case itself, under whatever name. */
static bool compute_into(const run_choice *choice, const casefile *from, const char **where, failure *why)
{
    if (!choice->output) return compute(choice, from, NULL, where, why);
    output to;
    const char *path = *where;
    if (!output_open(&to, choice->output, why)) {
        *where = choice->output;
        return false;
    }
    bool good = true;
    if (output_is(&to, path)) good = failure_set(why, "is the case itself, expected another file for -o");
    good = good && compute(choice, from, &to, where, why);
    bool closed = output_close(&to, good, why);
    if (good && !closed) *where = choice->output;
    return closed;
}

int command_run(int argc, char **argv)
{
    run_choice choice = {0};
    failure why;
    if (!parse(argc, argv, &choice, &why)) return command_fail("run", &why);
    if (choice.help) return command_usage(usage, 1);
    const char *path = argv[optind];
    casefile from;
    if (!casefile_read(path, &from, &why)) return command_fail(path, &why);
    bool good = compute_into(&choice, &from, &path, &why);
    casefile_close(&from);
    return good ? 0 : command_fail(path, &why);
}
