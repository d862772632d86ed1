/* What the tests walk over: every backend of this build that the machine can run, and each of its instruction sets.
 */
#ifndef TEST_VENUES_H
#define TEST_VENUES_H

#include <stdbool.h>

#include <rill/rill.h>

typedef struct venue {
    const char *name; /* "loop", "cpu-avx2", "cuda", "cuda-device" */
    rill_backend backend;
    rill_isa isa;
    bool device_tensors; /* tensors lie on the GPU; else on the host, and a cuda context stages them */
} venue;

/* All that could exist, the judge's two apart; ends in a target without a name. */
extern const venue venue_table[];

/* name starts with prefix; NULL or "" takes all. */
bool venue_selected(const venue *t, const char *prefix);

/* NULL where this build or machine lacks the target; any other failure ends the program with its message. */
rill_context *venue_open(const venue *t, int threads, bool reproducible);

/*
 * The main of a test that runs on host tensors, on the reference and every venue that `--only PREFIX` keeps, with two
 * threads: `run` answers how many of its tests failed, or -1 where there was nothing to test.  Returns the exit
 * status, 77 where nothing was tested anywhere.
 */
int venues_main(int count, char **words, int (*run)(const venue *where, rill_context *context));

/* A context of a backend with all defaults; failing ends the program. */
rill_context *context_open(rill_backend backend);

#endif
