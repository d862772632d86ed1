/*
 * The split law: [0, L) at once, cut in two, and step by step with the exit state over the entry state give the same
 * result; bit for bit where states are kept in the type that they are computed in (the reference with f64 states, the
 * loop), within the bound on the others.
 *
 *     split [--only TARGET] [--seed N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "measure.h"
#include "strided.h"
#include "words.h"

enum { CASES = 60 };

/* One piece [start, start + count): states enter from and leave to `carry`, but for the first piece's own entry. */
static bool run_piece(rill_context *context, const call *made, rill_tensor *carry, int64_t start, int64_t count,
                      bool first)
{
    const test_case *c = made->c;
    args_room args;
    int init, final;
    call_args(made, &args);
    args_narrow(c->op, &args, "length", start, count);
    for (int i = 0; state_pair(c, i, &init, &final); i++) {
        *op_args_tensor(&c->op->tensors[final], &args) = carry[i];
        if (!first || made->tensor[init].data) *op_args_tensor(&c->op->tensors[init], &args) = carry[i];
    }
    return args_run(context, c->op, &args);
}

/* Runs the call in pieces of at most `size` steps, in the order of time; its outputs end in made. */
static bool run_split(rill_context *context, const call *made, int64_t size)
{
    const test_case *c = made->c;
    int64_t length = op_size(&c->sizes, "length"), pieces = (length + size - 1) / size;
    rill_tensor carry[4] = {0};
    int init, final;
    bool good = true;
    for (int i = 0; state_pair(c, i, &init, &final); i++) {
        carry[i] = view_alloc_like(&made->tensor[final], made->tensor[final].dtype);
        if (made->tensor[init].data) view_copy(&carry[i], &made->tensor[init]);
    }
    for (int64_t p = 0; p < pieces && good; p++) {
        int64_t start = (case_option(c, "reverse") ? pieces - 1 - p : p) * size;
        int64_t count = start + size > length ? length - start : size;
        good = run_piece(context, made, carry, start, count, p == 0);
    }
    for (int i = 0; state_pair(c, i, &init, &final); i++) {
        view_copy(&made->tensor[final], &carry[i]);
        free(carry[i].data);
    }
    return good;
}

static bool same_bits(rill_context *context, const test_case *c, bool wide, int64_t size)
{
    args_room args;
    call whole = call_make(c, wide), parts = call_make(c, wide);
    call_args(&whole, &args);
    bool good = args_run(context, c->op, &args) && run_split(context, &parts, size) &&
                calls_same_outputs(&whole, &parts, "whole and parts");
    call_free(&whole);
    call_free(&parts);
    return good;
}

static bool within_bound(rill_context *context, const test_case *c, const judged *right, int64_t size)
{
    call parts = call_make(c, false);
    bool good = run_split(context, &parts, size);
    for (int i = 0; i < c->op->tensor_count && good; i++) {
        if (!parts.tensor[i].data || !op_is_output(&c->op->tensors[i])) continue;
        measure_against against = {&right->ref[i], &right->ref[i], &right->loop[i]};
        measure m = measure_compare(&c->op->tensors[i], &parts.tensor[i], &against, NULL,
                                    op_size(&c->sizes, "sequences"), measure_tolerance(c->activations, false));
        if (!m.passed) printf("%s in parts: error over bound %.3g\n", c->op->tensors[i].name, m.worst);
        good = m.passed;
    }
    call_free(&parts);
    return good;
}

/* A case whose states enter and leave in the accumulation type, so that a cut rounds nothing more. */
static test_case draw(uint64_t seed, uint64_t number, rill_dtype activations)
{
    draw_limits limits = {.cost = 2e5, .plain = true, .packed = -1, .activations = activations};
    test_case c = case_draw(seed, number, &limits);
    int init, final;
    for (int i = 0; state_pair(&c, i, &init, &final); i++) {
        c.tensors[final].given = true;
        c.tensors[init].dtype = c.tensors[final].dtype = activations == RILL_F64 ? RILL_F64 : RILL_F32;
    }
    return c;
}

static bool check_number(const judges *j, const venue *t, uint64_t seed, uint64_t number)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    rng r = rng_make(seed + 1, number);
    bool exact = !t || t->backend == RILL_BACKEND_LOOP;
    test_case c = draw(seed, number, exact ? RILL_F32 : types[rng_below(&r, 4)]);
    int64_t length = op_size(&c.sizes, "length"), sizes[2] = {1, 1 + rng_below(&r, length > 0 ? length : 1)};
    rill_context *context = t ? venue_open(t, c.threads, c.reproducible) : j->reference;
    judged right = {0};
    bool good = exact || judge_case(j, &c, &right);
    if (length > 80) sizes[0] = 7; /* a call a step costs too much: a few steps a call */
    for (int i = 0; i < 2 && good; i++) {
        good = exact ? same_bits(context, &c, !t, sizes[i]) : within_bound(context, &c, &right, sizes[i]);
        if (good) continue;
        printf("FAILED on %s in pieces of %lld: ", t ? t->name : "reference", (long long)sizes[i]);
        case_print(&c);
    }
    if (t) rill_context_destroy(context);
    judged_free(&right);
    return good;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 7);
    int failed = 0, tested = 0;
    judges j = judges_open();
    bool reference = venue_selected(&(venue){.name = "reference"}, given.only);
    tested += reference;
    for (uint64_t number = 0; number < CASES && reference; number++)
        failed += !check_number(&j, NULL, given.seed, number);
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 1, false) : NULL;
        rill_context_destroy(probe);
        for (uint64_t number = 0; number < CASES && probe; number++)
            failed += !check_number(&j, t, given.seed, number);
        tested += probe != NULL;
    }
    judges_close(&j);
    printf("%d backends, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
