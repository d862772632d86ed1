/* rill run: computes a case file's operator and gradients, prints a line a tensor, writes the tensors. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "available.h"
#include "casefile.h"
#include "commands.h"
#include "measure.h"
#include "output.h"
#include "safetensors.h"
#include "solution.h"
#include "targets.h"

static const char usage[] =
    "usage: rill run CASE [-o OUT] [--backend auto|cpu|cuda|reference|loop] [--isa auto|baseline|avx2|avx512]\n"
    "                [--threads N] [--reproducible]\n\n"
    "Computes the operator of a case file (safetensors with metadata op, dtype and options), and with upstream\n"
    "gradients (dOUTPUT) in the file also the gradients.  Prints a line an output or gradient, and with -o writes "
    "them\n"
    "to a safetensors file.\n";

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
    int parts = measure_parts(tensor->dtype);
    for (int axis = 0; axis < tensor->rank; axis++) elements *= tensor->shape[axis];
    long double sum = 0.0L;
    for (int64_t i = 0; i < elements; i++) {
        for (int part = 0; part < parts; part++) {
            long double value = (long double)measure_load_part(tensor, index, part);
            sum += value * value;
        }
        for (int axis = tensor->rank - 1; axis >= 0 && ++index[axis] == tensor->shape[axis]; axis--) index[axis] = 0;
    }
    return (double)sqrtl(sum);
}

static void print_outcomes(const solution *made)
{
    outcome list[SOLUTION_MAX_OUTCOMES];
    int count = solution_list(made, list);
    for (int i = 0; i < count; i++) {
        const rill_tensor *view = list[i].view;
        printf("%-8s %-4s [", list[i].tensor->name, rill_dtype_name(view->dtype));
        for (int axis = 0; axis < view->rank; axis++) printf("%s%" PRId64, axis ? "," : "", view->shape[axis]);
        printf("]  norm %.9g\n", norm(view));
    }
}

static bool write_outcomes(const solution *made, const char *backend, output *to, failure *why)
{
    const casefile *from = made->from;
    outcome list[SOLUTION_MAX_OUTCOMES];
    stored_tensor stored[SOLUTION_MAX_OUTCOMES] = {0};
    char complex_names[1024] = "";
    size_t count = (size_t)solution_list(made, list), used = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = list[i].tensor->name;
        stored[i] = (stored_tensor){.name = name, .view = casefile_stored_view(list[i].view)};
        if (op_type_is_complex(list[i].view->dtype))
            used +=
                (size_t)snprintf(complex_names + used, sizeof complex_names - used, "%s%s", used ? "," : "", name);
    }
    const metadata_entry metadata[] = {
        {"op", from->operation->name}, {"dtype", rill_dtype_name(from->activations)},
        {"options", from->options},    {"complex", complex_names},
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
    solution made;
    bool good = solution_open(&made, from, context, false, why);
    if (good) {
        bool gradients = from->gradient_args && op_available(from->operation->backward, context);
        good = !gradients || solution_add_gradients(&made, context, why);
        if (good) {
            printf("%s on %s\n", from->operation->name, backend);
            print_outcomes(&made);
            if (from->gradient_args && !gradients)
                printf("%s: this backend does not have it, not computed\n", from->operation->backward->name);
        }
        if (good && to) {
            good = write_outcomes(&made, backend, to, why);
            if (!good) *where = to->path;
        }
        solution_close(&made);
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
