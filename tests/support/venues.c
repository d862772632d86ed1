#include "venues.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const venue venue_table[] = {
    {"loop", RILL_BACKEND_LOOP, RILL_ISA_AUTO, false},
    {"cpu-baseline", RILL_BACKEND_CPU, RILL_ISA_BASELINE, false},
    {"cpu-avx2", RILL_BACKEND_CPU, RILL_ISA_AVX2, false},
    {"cpu-avx512", RILL_BACKEND_CPU, RILL_ISA_AVX512, false},
    {"cuda", RILL_BACKEND_CUDA, RILL_ISA_AUTO, false},
    {"cuda-device", RILL_BACKEND_CUDA, RILL_ISA_AUTO, true},
    {NULL, RILL_BACKEND_AUTO, RILL_ISA_AUTO, false},
};

bool venue_selected(const venue *t, const char *prefix)
{
    return !prefix || strncmp(t->name, prefix, strlen(prefix)) == 0;
}

static rill_context *open_or_exit(const char *name, const rill_options *options)
{
    rill_context *context;
    rill_status status = rill_context_create(options, &context);
    if (status == RILL_OK) return context;
    if (status == RILL_UNSUPPORTED) return NULL;
    fprintf(stderr, "%s: %s: %s\n", name, rill_status_name(status), rill_last_error(NULL));
    exit(1);
}

rill_context *venue_open(const venue *t, int threads, bool reproducible)
{
    rill_options options = {.backend = t->backend, .threads = threads, .reproducible = reproducible, .isa = t->isa};
    return open_or_exit(t->name, &options);
}

rill_context *context_open(rill_backend backend)
{
    rill_context *context = open_or_exit("context", &(rill_options){.backend = backend});
    if (context) return context;
    fprintf(stderr, "context: %s\n", rill_last_error(NULL));
    exit(1);
}

int venues_main(int count, char **words, int (*run)(const venue *where, rill_context *context))
{
    static const venue reference = {"reference", RILL_BACKEND_REFERENCE, RILL_ISA_AUTO, false};
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    int failed = 0, tested = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const venue *v = &reference; v->name; v = v == &reference ? venue_table : v + 1) {
        rill_context *context = v->device_tensors || !venue_selected(v, only) ? NULL : venue_open(v, 2, false);
        int result = context ? run(v, context) : -1;
        rill_context_destroy(context);
        tested += result >= 0;
        failed += result > 0 ? result : 0;
    }
    return tested == 0 ? 77 : failed != 0;
}
