/* rill check: computes case files on every backend and compares with the right values. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "available.h"
#include "casefile.h"
#include "commands.h"
#include "solution.h"
#include "targets.h"
#include "verify.h"

static const char usage[] =
    "usage: rill check [--backend auto|cpu|cuda|reference|loop] [--isa auto|baseline|avx2|avx512]\n"
    "                  [--threads N] [--reproducible] CASE...\n\n"
    "Computes each case on every backend and instruction set that this machine has (or on those chosen) and\n"
    "compares slice by slice with the file's expect.NAME, or with the reference where the file has none.  A file "
    "with\n"
    "upstream gradients (dOUTPUT) is run backward too, and each gradient dNAME compared with expect.dNAME.  A line "
    "a\n"
    "tensor: relative error, the worst slice's error over its bound, PASS or FAIL.  Exit status 1 on a miss.\n";

/* The contexts of one invocation; NULL where a target was not chosen or is not available. */
typedef struct tally {
    rill_context *context[TARGETS];
    bool asked; /* for one backend */
    int passed, failed;
} tally;

static bool parse(int argc, char **argv, target_choice *choice, bool *help, failure *why)
{
    static const struct option options[] = {
        {"backend", required_argument, NULL, 'b'}, {"isa", required_argument, NULL, 'i'},
        {"threads", required_argument, NULL, 't'}, {"reproducible", no_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;
    opterr = 0;
    while (good && (option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (option) {
        case 'b':
            good = target_parse_backend(choice, optarg, why);
            break;
        case 'i':
            good = target_parse_isa(choice, optarg, why);
            break;
        case 't':
            good = target_parse_threads(choice, optarg, why);
            break;
        case 'r':
            choice->options.reproducible = true;
            break;
        case 'h':
            *help = true;
            break;
        default:
            good = command_bad_option(option, argv, why);
        }
    }
    if (good && !*help && optind == argc) good = failure_set(why, "expected at least one case file");
    return good;
}

/* What this machine lacks is told and passed over; what this build lacks is passed over in silence. */
static bool open_targets(tally *all, const target_choice *choice, failure *why)
{
    int opened = 0;
    failure missing[TARGETS] = {{""}};
    for (int i = 0; i < TARGETS; i++) {
        const target *which = &target_table[i];
        if (!target_chosen(which, choice)) continue;
        rill_status status = target_open(which, choice, &all->context[i]);
        opened += status == RILL_OK;
        if (status == RILL_OK) continue;
        failure_set(&missing[i], "%s is not available: %s", which->name, rill_last_error(NULL));
        *why = missing[i];
        if (status != RILL_UNSUPPORTED) return failure_set(why, "%s: %s", which->name, rill_last_error(NULL));
    }
    for (int i = 0; opened && i < TARGETS; i++)
        if (*missing[i].text && target_built(&target_table[i])) printf("%s\n", missing[i].text);
    return opened > 0;
}

/* A line begins with the file's name without folder and extension, then the backend. */
static void print_place(const char *path, const char *where)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    int length = dot && strcmp(dot, ".safetensors") == 0 ? (int)(dot - name) : (int)strlen(name);
    printf("%-*.*s  %-12s ", 31, length, name, where);
}

/* The shape is the one in which the tensor was compared: that of a stretched input, not of all its elements. */
static void print_line(tally *all, const char *path, const char *where, const outcome *out, const measure *result)
{
    char shape[160] = "";
    size_t used = 0;
    const rill_tensor *view = out->input ? out->input : out->view;
    for (int axis = 0; axis < view->rank; axis++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, axis ? "," : "", view->shape[axis]);
    print_place(path, where);
    printf("%-8s %-4s [%s]  error %.2e  %.3g of the bound  %s", out->tensor->name, rill_dtype_name(out->view->dtype),
           shape, result->relative_error, result->worst, result->passed ? "PASS" : "FAIL");
    if (!result->passed) {
        printf("  (%" PRId64 " of %" PRId64 " slices, worst at [", result->failed, result->slices);
        for (int axis = 0; axis < view->rank; axis++)
            printf("%s%" PRId64, axis ? "," : "", result->worst_index[axis]);
        printf("]; %" PRId64 " special values differ)", result->special_mismatches);
    }
    printf("\n");
    all->passed += result->passed;
    all->failed += !result->passed;
}

static void check_reference(tally *all, const char *path, const judge *right)
{
    outcome list[SOLUTION_MAX_OUTCOMES];
    int count = solution_list(&right->ref, list);
    for (int i = 0; i < count; i++) {
        bool known;
        const char *name = list[i].tensor->name;
        measure result = judge_reference(right, &list[i], &known);
        if (known) {
            print_line(all, path, "reference", &list[i], &result);
        } else {
            print_place(path, "reference");
            printf("%-8s is the judge: the file has no expect.%s\n", name, name);
        }
    }
}

/* An operator that a backend lacks is told and passed over. */
static bool passed_over(const tally *all, const char *path, const op *row, int which)
{
    if (op_available(row, all->context[which])) return false;
    print_place(path, target_table[which].name);
    printf("%s: this backend does not have it, not checked\n", row->name);
    return true;
}

/*
 * What is there is judged, also where the gradients then cannot be computed.  The one backend that was asked for must
 * have the case's own operator.
 */
static bool check_target(tally *all, const char *path, const judge *right, int which, failure *why)
{
    const casefile *from = right->from;
    solution made;
    if (!all->asked && passed_over(all, path, from->operation, which)) return true;
    if (!solution_open(&made, from, all->context[which], false, why)) return false;
    bool gradients = from->gradient_args && !passed_over(all, path, from->operation->backward, which);
    bool good = !gradients || solution_add_gradients(&made, all->context[which], why);
    outcome list[SOLUTION_MAX_OUTCOMES];
    int count = solution_list(&made, list);
    for (int i = 0; i < count; i++) {
        measure result = judge_outcome(right, &list[i]);
        print_line(all, path, target_table[which].name, &list[i], &result);
    }
    solution_close(&made);
    return good;
}

/* Complaints name the file, and the backend where it is one backend's. */
static void complain(tally *all, const char *path, const char *where, const failure *why)
{
    failure whole;
    failure_set(&whole, "%s%s%s", where, *where ? ": " : "", why->text);
    command_fail(path, &whole);
    all->failed++;
}

static void check_case(tally *all, const char *path)
{
    failure why;
    casefile from;
    judge right;
    if (!casefile_read(path, &from, &why)) {
        complain(all, path, "", &why);
        return;
    }
    if (judge_open(&right, &from, &why)) {
        for (int i = 0; i < TARGETS; i++) {
            if (!all->context[i]) continue;
            if (target_table[i].backend == RILL_BACKEND_REFERENCE)
                check_reference(all, path, &right);
            else if (!check_target(all, path, &right, i, &why))
                complain(all, path, target_table[i].name, &why);
        }
        judge_close(&right);
    } else {
        complain(all, path, "", &why);
    }
    casefile_close(&from);
}

int command_check(int argc, char **argv)
{
    target_choice choice = {0};
    bool help = false;
    failure why;
    if (!parse(argc, argv, &choice, &help, &why)) return command_fail("check", &why);
    if (help) return command_usage(usage, 1);
    tally all = {.asked = choice.backend_given && choice.options.backend != RILL_BACKEND_AUTO};
    bool opened = open_targets(&all, &choice, &why);
    for (int i = optind; opened && i < argc; i++) check_case(&all, argv[i]);
    for (int i = 0; i < TARGETS; i++) rill_context_destroy(all.context[i]);
    if (!opened) return command_fail("check", &why);
    printf("%d passed, %d failed\n", all.passed, all.failed);
    return all.failed ? 1 : 0;
}
