/*
 * Where a scan walks its channels step by step, its results are the plain loop's own numbers, in either direction,
 * every type and layout (a zero may have another sign): on cuda with `reproducible`, which never splits time, and on
 * cpu for many channels.
 *
 *     loop_order [--only TARGET] [--seed N]
 */
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "strided.h"
#include "words.h"

typedef struct type_pin {
    rill_dtype activations;
    bool complex;
} type_pin;

static const type_pin types[] = {{RILL_F32, false}, {RILL_BF16, false}, {RILL_F64, false},
                                 {RILL_F16, false}, {RILL_F32, true},   {RILL_F64, true}};
static const int64_t sizes[][3] = {
    /* batch, length, channels */
    {4, 65, 32}, {2, 300, 130}, {1, 700, 33}, {40, 129, 64}, {1, 2049, 65}, {300, 3, 20}, {2, 512, 8}, {1, 1200, 256},
};

enum {
    TYPES = sizeof types / sizeof types[0],
    SIZES = sizeof sizes / sizeof sizes[0],
    DRAWS = 2, /* of options and of which axis lies fastest */
    FEW = 16   /* channels: below, cpu may share one over lanes */
};

static bool run_with(rill_context *context, const call *made)
{
    args_room args;
    call_clear_outputs(made);
    call_args(made, &args);
    return args_run(context, made->c->op, &args);
}

/* Adding 0 leaves numbers alone but for the sign of zero. */
static void make_zeros_plain(const call *made)
{
    for (int i = 0; i < made->c->op->tensor_count; i++) {
        int64_t index[RILL_MAX_RANK] = {0};
        rill_tensor view = made->tensor[i];
        if (!view.data || !op_is_output(&made->c->op->tensors[i])) continue;
        if (op_type_is_complex(view.dtype)) view = view_parts(view);
        if (view_count(&view) == 0) continue;
        do view_store(&view, index, view_load(&view, index) + 0.0);
        while (view_next(&view, index));
    }
}

static bool agrees(rill_context *loop, rill_context *context, const test_case *c)
{
    call right = call_make(c, false), found = call_make(c, false);
    bool good = run_with(loop, &right) && run_with(context, &found);
    make_zeros_plain(&right);
    make_zeros_plain(&found);
    good = good && calls_same_outputs(&right, &found, "the plain loop and this", true);
    if (!good) case_print(c);
    call_free(&right);
    call_free(&found);
    return good;
}

static int check_venue(rill_context *loop, const venue *t, uint64_t seed)
{
    static const char *const operators[] = {"scan", "scan_backward"};
    rill_context *context = venue_open(t, 2, true);
    int failed = 0;
    for (uint64_t number = 0; number < 2 * TYPES * SIZES * DRAWS; number++) {
        const int64_t *size = sizes[number / 2 / TYPES % SIZES];
        const type_pin *type = &types[number / 2 % TYPES];
        draw_limits limits = {
            .cost = 1e7, .packed = 0, .plain = true, .arranged = true, .op = op_find(operators[number % 2])};
        if (strncmp(t->name, "cpu", 3) == 0 && size[2] < FEW) continue;
        limits.activations = type->activations;
        limits.complex = type->complex;
        op_size_set(&limits.pinned, "batch", size[0]);
        op_size_set(&limits.pinned, "length", size[1]);
        op_size_set(&limits.pinned, "channels", size[2]);
        test_case c = case_draw(seed, number, &limits);
        failed += !agrees(loop, context, &c);
    }
    rill_context_destroy(context);
    printf("%s: %d failed\n", t->name, failed);
    return failed;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 3);
    rill_context *loop = context_open(RILL_BACKEND_LOOP);
    int failed = 0, tested = 0;
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 1, false) : NULL;
        rill_context_destroy(probe);
        if (probe && t->backend != RILL_BACKEND_LOOP) failed += check_venue(loop, t, given.seed);
        tested += probe != NULL;
    }
    rill_context_destroy(loop);
    return tested == 0 ? 77 : failed != 0;
}
