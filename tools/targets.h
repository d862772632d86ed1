/* Where the command computes: every backend, the cpu once an instruction set. */
#ifndef TOOLS_TARGETS_H
#define TOOLS_TARGETS_H

#include <stdbool.h>

#include <rill/rill.h>

#include "failure.h"

typedef struct target {
    const char *name; /* "cpu/avx2" */
    rill_backend backend;
    rill_isa isa;
} target;

enum { TARGETS = 6 };

extern const target target_table[TARGETS];

/* What the command line says about contexts; zero is the default of each. */
typedef struct target_choice {
    rill_options options;
    bool backend_given, isa_given, threads_given;
} target_choice;

/* Whether the target is in this build; the machine may lack it all the same. */
bool target_built(const target *which);

/* Whether a choice leaves a target in. */
bool target_chosen(const target *which, const target_choice *choice);

/* A context of the target with the choice's other options. */
rill_status target_open(const target *which, const target_choice *choice, rill_context **context);

/* The words of the command line; each may be given once. */
bool target_parse_backend(target_choice *choice, const char *text, failure *why);
bool target_parse_isa(target_choice *choice, const char *text, failure *why);
bool target_parse_threads(target_choice *choice, const char *text, failure *why);

/* The name of what a context is: "cpu/avx2", "cuda". */
const char *target_name_of(rill_context *context);

#endif
