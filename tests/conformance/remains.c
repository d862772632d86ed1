/*
 * One channel whose state cancels, wholly or in one part of a complex number, and what remains is all that there is:
 * no step of the plain loop rounds.  Whoever splits time must not have dropped it as next to nothing, nor have left
 * rounding errors of what is gone.  Outputs and the state that leaves are judged apart, forward and backward, with
 * one thread, with two, and reproducibly.
 *
 *     remains [--only VENUE]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "rng.h"
#include "strided.h"
#include "venues.h"

enum { LENGTH = 36001, PLACES = 9, BETWEEN = 63 * 64 };

/* Real decays, and both parts of the inputs, in the order of the recurrence; the decays are 1, the inputs 0. */
typedef struct channel {
    double a[LENGTH], b[LENGTH][2];
    bool is_wide;
    rng noise;
} channel;

/* Holds what is there, `size` in both parts or the first, through decays below 1 up to step `end`. */
static void hold(channel *c, int64_t end, double size, double other)
{
    for (int64_t t = end - 60; t < end; t++) {
        double low = ldexp(rng_unit(&c->noise), 20), unit = c->is_wide ? 0x1p-50 : 0x1p-24;
        double off = floor(c->is_wide ? low / 0x1p9 : low) * unit;
        c->a[t] = 1 - off;
        c->b[t][0] = size * off, c->b[t][1] = other * off;
    }
}

/* The second part fades to 2^-62 before the first comes, and is left alone when that goes. */
static void fade(channel *c, int64_t at)
{
    c->b[0][1] = 1;
    for (int64_t t = at - 63; t < at - 1; t++) c->a[t] = 0.5;
    c->b[at - 1][0] = 1;
    c->b[at + 200][0] = -1;
}

/* The first part becomes tiny beside the second, then the second goes. */
static void shrink(channel *c, int64_t at)
{
    c->b[0][0] = c->b[0][1] = 1024;
    hold(c, at - 3, 1024, 1024);
    c->b[at - 3][0] = -1024;
    c->b[at - 2][0] = c->is_wide ? 0x1p-100 : 0x1p-40;
    c->b[at + 200][1] = -1024;
}

/* 1, 0, a large number, 0, 1. */
static void spike(channel *c, int64_t at)
{
    at += at / BETWEEN % 5;
    c->b[0][0] = 1;
    hold(c, at - 4, 1, 0);
    c->b[at - 4][0] = -1;
    c->b[at - 3][0] = c->is_wide ? 0x1p110 : 0x1p40;
    c->b[at - 2][0] = -c->b[at - 3][0];
    c->b[at - 1][0] = 1;
}

/* The same, and then growth away from a fixed point. */
static void spike_that_grows(channel *c, int64_t at)
{
    spike(c, at);
    for (int64_t t = at + 300; t < at + 400; t++) c->a[t] = 2, c->b[t][0] = -1;
}

static void sum(channel *c, int64_t at)
{
    at -= at / BETWEEN % 5;
    c->b[at][0] = c->is_wide ? 0x1p54 : 0x1p25;
    c->b[at + 1][0] = -c->b[at][0];
    c->b[at + 2][0] = 1;
}

/* A burst fades by 2^-64 over 512 steps, lies below a 1, and is what remains of it. */
static void burst(channel *c, int64_t at)
{
    at = at / 4096 * 4096;
    if (at == 0) return;
    c->b[at - 514][0] = 0x1p18;
    for (int64_t t = at - 512; t < at - 458; t++) c->a[t] = 0.5;
    for (int64_t t = at - 20; t < at - 10; t++) c->a[t] = 0.5;
    c->b[at - 2][0] = 1;
    c->b[at + 5][0] = -1;
}

static const struct {
    const char *name;
    void (*make)(channel *c, int64_t at);
} cases[] = {
    {"fade", fade}, {"shrink", shrink}, {"spike", spike}, {"spike that grows", spike_that_grows},
    {"sum", sum},   {"burst", burst},
};

typedef struct problem {
    rill_dtype dtype;
    bool back;
    rill_tensor a, b, zero; /* backward: b is the gradient of h */
} problem;

/* Backward in reverse order, each decay one step later. */
static problem make_problem(const channel *c, rill_dtype dtype, bool back)
{
    problem p = {.dtype = dtype, .back = back, .a = view_alloc(dtype, 3, (int64_t[]){1, LENGTH, 1})};
    p.b = view_alloc(dtype, 3, p.a.shape);
    p.zero = view_alloc(dtype, 2, (int64_t[]){1, 1});
    rill_tensor a = view_parts(p.a), b = view_parts(p.b);
    const bool is_complex = a.rank == 4;
    view_fill(&p.a, 1);
    for (int64_t t = 0; t < LENGTH; t++) {
        int64_t at[] = {0, back ? LENGTH - 1 - t : t, 0, 0};
        for (int part = 0; part <= is_complex; part++) at[3] = part, view_store(&b, at, c->b[t][part]);
        at[1] += back, at[3] = 0;
        if (at[1] < LENGTH) view_store(&a, at, c->a[t]);
    }
    return p;
}

typedef struct outputs {
    rill_tensor states, last;
} outputs;

static outputs run(rill_context *context, const problem *p)
{
    outputs out = {view_alloc(p->dtype, 3, p->a.shape), view_alloc(p->dtype, 2, p->zero.shape)};
    rill_scan_args forward = {.a = p->a, .b = p->b, .h_init = p->zero, .h = out.states, .h_final = out.last};
    rill_scan_backward_args backward = {
        .a = p->a, .dh = p->b, .h_init = p->zero, .db = out.states, .dh_init = out.last};
    rill_status status = p->back ? rill_scan_backward(context, &backward) : rill_scan(context, &forward);
    if (status != RILL_OK) {
        printf("%s: %s\n", rill_status_name(status), rill_last_error(context));
        exit(1);
    }
    return out;
}

static void free_outputs(outputs *out)
{
    free(out->states.data), free(out->last.data);
}

typedef struct ways {
    rill_context *contexts[32];
    const char *names[32];
    int count;
} ways;

static ways open_ways(const char *only)
{
    ways w = {.count = 0};
    for (const venue *v = venue_table; v->name; v++)
        for (int way = 0; way < 3 && w.count < 32; way++) {
            if (v->device_tensors || !venue_selected(v, only)) continue;
            rill_context *context = venue_open(v, way == 1 ? 2 : 1, way == 2);
            if (!context) continue;
            w.names[w.count] = v->name;
            w.contexts[w.count++] = context;
        }
    return w;
}

static int run_case(rill_context *const judges[2], const ways *w, const problem *p, const char *name, int64_t at)
{
    outputs ref = run(judges[0], p), loop = run(judges[1], p);
    int failed = 0;
    for (int i = 0; i < w->count; i++) {
        outputs out = run(w->contexts[i], p);
        bool right = slice_agrees(&out.states, &ref.states, &loop.states, p->back) &&
                     slice_agrees(&out.last, &ref.last, &loop.last, p->back);
        if (!right)
            printf("%s (way %d): %s at %lld, %s%s\n", w->names[i], i % 3, name, (long long)at,
                   rill_dtype_name(p->dtype), p->back ? ", backward" : "");
        failed += !right;
        free_outputs(&out);
    }
    free_outputs(&ref);
    free_outputs(&loop);
    return failed;
}

static int run_place(rill_context *const judges[2], const ways *w, size_t index, int64_t at)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_C64, RILL_C128};
    static channel c;
    int failed = 0;
    for (int i = 0; i < 8; i++) {
        rill_dtype dtype = types[i / 2];
        memset(&c, 0, sizeof c);
        for (int64_t t = 0; t < LENGTH; t++) c.a[t] = 1;
        c.is_wide = dtype == RILL_F64 || dtype == RILL_C128;
        c.noise = rng_make(1, (uint64_t)at);
        cases[index].make(&c, at);
        problem p = make_problem(&c, dtype, i % 2);
        failed += run_case(judges, w, &p, cases[index].name, at);
        free(p.a.data), free(p.b.data), free(p.zero.data);
    }
    return failed;
}

int main(int count, char **words)
{
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    rill_context *judges[2] = {context_open(RILL_BACKEND_REFERENCE), context_open(RILL_BACKEND_LOOP)};
    ways w = open_ways(only);
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t place = 1; place < PLACES; place++) failed += run_place(judges, &w, i, place * BETWEEN);
    for (int i = 0; i < w.count; i++) rill_context_destroy(w.contexts[i]);
    rill_context_destroy(judges[0]);
    rill_context_destroy(judges[1]);
    printf("%d failed\n", failed);
    return w.count == 0 ? 77 : failed != 0;
}
