#include "targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const target target_table[TARGETS] = {
    {"reference", RILL_BACKEND_REFERENCE, RILL_ISA_AUTO},  {"loop", RILL_BACKEND_LOOP, RILL_ISA_AUTO},
    {"cpu/baseline", RILL_BACKEND_CPU, RILL_ISA_BASELINE}, {"cpu/avx2", RILL_BACKEND_CPU, RILL_ISA_AVX2},
    {"cpu/avx512", RILL_BACKEND_CPU, RILL_ISA_AVX512},     {"cuda", RILL_BACKEND_CUDA, RILL_ISA_AUTO},
};

typedef struct word {
    const char *text;
    int value;
} word;

static const word backends[] = {
    {"auto", RILL_BACKEND_AUTO},           {"cpu", RILL_BACKEND_CPU},   {"cuda", RILL_BACKEND_CUDA},
    {"reference", RILL_BACKEND_REFERENCE}, {"loop", RILL_BACKEND_LOOP}, {NULL, 0},
};

static const word isas[] = {
    {"auto", RILL_ISA_AUTO},
    {"baseline", RILL_ISA_BASELINE},
    {"avx2", RILL_ISA_AVX2},
    {"avx512", RILL_ISA_AVX512},
    {NULL, 0},
};

bool target_built(const target *which)
{
    if (which->backend == RILL_BACKEND_CUDA) return TARGETS_CUDA;
    bool x86 = which->isa == RILL_ISA_AVX2 || which->isa == RILL_ISA_AVX512;
    return !x86 || TARGETS_X86;
}

bool target_chosen(const target *which, const target_choice *choice)
{
    if (choice->backend_given && choice->options.backend != RILL_BACKEND_AUTO &&
        which->backend != choice->options.backend)
        return false;
    bool any_isa = !choice->isa_given || choice->options.isa == RILL_ISA_AUTO;
    return any_isa || which->backend != RILL_BACKEND_CPU || which->isa == choice->options.isa;
}

rill_status target_open(const target *which, const target_choice *choice, rill_context **context)
{
    rill_options options = choice->options;
    options.backend = which->backend;
    options.isa = which->isa;
    return rill_context_create(&options, context);
}

static const word *find(const word *words, const char *text)
{
    for (; words->text; words++)
        if (strcmp(words->text, text) == 0) return words;
    return NULL;
}

/* Marks an option as given. */
static bool once(bool *given, const char *name, failure *why)
{
    if (*given) return failure_set(why, "'%s' is given twice", name);
    return *given = true;
}

bool target_parse_backend(target_choice *choice, const char *text, failure *why)
{
    const word *found = find(backends, text);
    if (!found) return failure_set(why, "backend '%s' is none of auto, cpu, cuda, reference, loop", text);
    choice->options.backend = (rill_backend)found->value;
    return once(&choice->backend_given, "--backend", why);
}

bool target_parse_isa(target_choice *choice, const char *text, failure *why)
{
    const word *found = find(isas, text);
    if (!found) return failure_set(why, "isa '%s' is none of auto, baseline, avx2, avx512", text);
    choice->options.isa = (rill_isa)found->value;
    return once(&choice->isa_given, "--isa", why);
}

/* Which numbers are right is the library's to say. */
bool target_parse_threads(target_choice *choice, const char *text, failure *why)
{
    char *end;
    errno = 0;
    long threads = strtol(text, &end, 10);
    if (errno || end == text || *end || threads < INT32_MIN || threads > INT32_MAX)
        return failure_set(why, "threads '%s' is not a whole number", text);
    choice->options.threads = (int32_t)threads;
    return once(&choice->threads_given, "--threads", why);
}

const char *target_name_of(rill_context *context)
{
    rill_info info;
    if (rill_context_info(context, &info) != RILL_OK) return "?";
    for (int i = 0; i < TARGETS; i++) {
        const target *which = &target_table[i];
        if (which->backend != info.backend) continue;
        const char *isa = strchr(which->name, '/');
        if (!isa || (info.isa && strcmp(isa + 1, info.isa) == 0)) return which->name;
    }
    return info.backend_name;
}
