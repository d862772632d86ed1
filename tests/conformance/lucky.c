/*
 * One long channel of float64 or complex128 on which the plain loop is lucky: under a constant decay next to 1 its
 * rounding errors come in pairs that cancel, or nearly, and SPEC's bound, which allows three times what is left of
 * them, is narrow.  Whoever splits time must not have errors of its own that repeat from part to part.  Outputs and
 * the final state are judged apart, with one thread and with two.
 *
 *     lucky [--only VENUE]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "rng.h"
#include "strided.h"
#include "venues.h"

enum { LENGTH = 300007 };

/* Inputs keep their sign for `period` steps; `noise` is what share of their size varies. */
typedef struct lucky_case {
    const char *name;
    int slowness; /* the decay is 1 - 2^-slowness */
    int64_t period;
    double size, noise, init;
} lucky_case;

static const lucky_case cases[] = {
    {"signs by turns", 20, 1, 1e25, 0, 0.7},   {"turns of a register's steps", 26, 64, 0.3, 0, 0},
    {"turns of noise", 20, 4096, 0.5, 1, 0.7}, {"turns of noise, slower", 30, 4096, 0.5, 1, 0.7},
    {"one sign", 29, LENGTH, 0.5, 1, 0.7},     {"a state alone", 24, 1, 0, 0, 0.7},
};

typedef struct outputs {
    rill_tensor h, final;
} outputs;

static outputs run(rill_context *context, rill_dtype dtype, const lucky_case *c)
{
    rng r = rng_make(1, (uint64_t)c->slowness);
    outputs out = {view_alloc(dtype, 3, (int64_t[]){1, LENGTH, 1}), view_alloc(dtype, 2, (int64_t[]){1, 1})};
    rill_tensor a = view_alloc(dtype, 3, (int64_t[]){1, 1, 1}), b = view_alloc(dtype, 3, out.h.shape);
    rill_tensor init = view_alloc(dtype, 2, (int64_t[]){1, 1}), parts = view_parts(b);
    view_fill(&a, 1 - ldexp(1, -c->slowness));
    view_fill(&init, c->init);
    int64_t index[RILL_MAX_RANK] = {0};
    do {
        double value = c->size * (1 + c->noise * (2 * rng_unit(&r) - 1));
        view_store(&parts, index, index[1] / c->period % 2 ? -value : value);
    } while (view_next(&parts, index));
    a.shape[1] = LENGTH;
    memset(a.stride, 0, sizeof a.stride);
    rill_scan_args args = {.a = a, .b = b, .h_init = init, .h = out.h, .h_final = out.final};
    rill_status status = rill_scan(context, &args);
    if (status != RILL_OK) {
        printf("%s: %s\n", rill_status_name(status), rill_last_error(context));
        exit(1);
    }
    free(a.data), free(b.data), free(init.data);
    return out;
}

static int run_case(rill_context *const judges[2], rill_dtype dtype, const lucky_case *c, const char *only,
                    int *tested)
{
    outputs ref = run(judges[0], dtype, c), loop = run(judges[1], dtype, c);
    int failed = 0;
    for (const venue *v = venue_table; v->name; v++)
        for (int threads = 1; threads <= 2; threads++) {
            if (v->device_tensors || !venue_selected(v, only)) continue;
            rill_context *context = venue_open(v, threads, false);
            if (!context) continue;
            ++*tested;
            outputs out = run(context, dtype, c);
            bool right = slice_agrees(&out.h, &ref.h, &loop.h, false) &&
                         slice_agrees(&out.final, &ref.final, &loop.final, false);
            if (!right) printf("%s: %s, %s, threads %d\n", v->name, c->name, rill_dtype_name(dtype), threads);
            failed += !right;
            free(out.h.data), free(out.final.data);
            rill_context_destroy(context);
        }
    free(ref.h.data), free(ref.final.data), free(loop.h.data), free(loop.final.data);
    return failed;
}

int main(int count, char **words)
{
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    rill_context *judges[2] = {context_open(RILL_BACKEND_REFERENCE), context_open(RILL_BACKEND_LOOP)};
    int failed = 0, tested = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        failed += run_case(judges, RILL_F64, &cases[i], only, &tested);
        failed += run_case(judges, RILL_C128, &cases[i], only, &tested);
    }
    rill_context_destroy(judges[0]);
    rill_context_destroy(judges[1]);
    printf("%d failed\n", failed);
    return tested == 0 ? 77 : failed != 0;
}
