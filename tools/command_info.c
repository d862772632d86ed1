/* rill info: what this build and this machine have. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <rill/rill.h>

#include "commands.h"
#include "targets.h"

static const char usage[] = "usage: rill info\n\nLists the backends and instruction sets of this build and whether "
                            "this machine runs them.\n";

static void print_target(const target *which, rill_context *context)
{
    rill_info info;
    if (rill_context_info(context, &info) != RILL_OK) {
        printf("%-14s %s\n", which->name, rill_last_error(context));
        return;
    }
    printf("%-14s available", which->name);
    if (info.device && *info.device) printf(", %s with %d multiprocessors", info.device, (int)info.device_sms);
    if (info.threads) printf(", %d thread%s", (int)info.threads, info.threads == 1 ? "" : "s");
    if (info.blas && *info.blas) printf(", %s", info.blas);
    printf("\n");
}

int command_info(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return command_usage(usage, 1);
    if (argc != 1) {
        failure why;
        failure_set(&why, "'%s' is not expected", argv[1]);
        return command_fail("info", &why);
    }
    printf("rill %d.%d.%d\n", RILL_VERSION_MAJOR, RILL_VERSION_MINOR, RILL_VERSION_PATCH);
    rill_context *context;
    if (rill_context_create(NULL, &context) == RILL_OK) {
        printf("%-14s %s\n", "default", target_name_of(context));
        rill_context_destroy(context);
    } else {
        printf("%-14s none: %s\n", "default", rill_last_error(NULL));
    }
    for (int i = 0; i < TARGETS; i++) {
        const target *which = &target_table[i];
        if (target_open(which, &(target_choice){0}, &context) == RILL_OK) {
            print_target(which, context);
            rill_context_destroy(context);
        } else {
            printf("%-14s not available: %s\n", which->name, rill_last_error(NULL));
        }
    }
    return 0;
}
