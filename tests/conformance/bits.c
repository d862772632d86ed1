/*
 * Laws about bits, on every target: the same call gives the same bits, ten times; with `reproducible` also for any
 * number of threads, and for a sequence alone; an empty sequence hands its state on untouched.
 *
 *     bits [--only TARGET] [--seed N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calls.h"
#include "strided.h"
#include "words.h"

static const rill_dtype types[] = {RILL_F32, RILL_F32, RILL_F64, RILL_BF16, RILL_F16};

/* Sizes that make backends cut work in different ways: many channels, few, one long sequence. */
static draw_limits pinned(draw_turn turn, int packed)
{
    uint64_t number = turn.number;
    static const int64_t sizes[][4] = {
        /* batch, length, channels, states */
        {4, 65, 33, 16}, {2, 300, 130, 16}, {1, 3000, 3, 16}, {3, 1500, 1, 4}, {5, 17, 257, 3}, {2, 129, 64, 64},
    };
    static const int64_t cheap[][3] = {
        {4, 65, 33}, {2, 300, 130}, {1, 70000, 3}, {3, 40000, 1}, {5, 17, 257}, {300, 3, 20},
    };
    draw_limits limits = {.cost = 4e6, .plain = true, .packed = packed, .activations = types[number % 5]};
    limits.complex = number / 5 % 3 == 1;
    limits.op = draw_op_at(turn.later, number / 2);
    uint64_t place = number % (sizeof sizes / sizeof sizes[0]);
    const int64_t *row = plausible_find(limits.op->name)->cheap_steps ? cheap[place] : sizes[place];
    op_size_set(&limits.pinned, "batch", row[0]);
    op_size_set(&limits.pinned, "length", row[1]);
    op_size_set(&limits.pinned, "channels", row[2]);
    op_size_set(&limits.pinned, "states", sizes[place][3]);
    pin_attention(&limits, (int)place);
    return limits;
}

static bool run_whole(rill_context *context, const call *made)
{
    args_room args;
    call_clear_outputs(made);
    call_args(made, &args);
    return args_run(context, made->c->op, &args);
}

static bool repeats(const venue *t, rill_context *probe, uint64_t seed, draw_turn turn)
{
    draw_limits limits = pinned(turn, turn.number % 3 == 2 ? 1 : -1);
    test_case c = case_draw(seed, turn.number, &limits);
    if (!op_available(c.op, probe)) return true;
    rill_context *context = venue_open(t, 2, false);
    call first = call_make(&c, false), again = call_make(&c, false);
    bool good = run_whole(context, &first);
    for (int i = 1; i < 10 && good; i++)
        good = run_whole(context, &again) && calls_same_outputs(&first, &again, "the same call twice", true);
    if (!good) case_print(&c);
    call_free(&first);
    call_free(&again);
    rill_context_destroy(context);
    return good;
}

/* Sequence s of the call by itself: as a batch of one, and from a packed call also as a packed one. */
static bool run_alone(rill_context *context, const call *made, int64_t s, bool packed)
{
    const test_case *c = made->c;
    int64_t bounds[2] = {0, c->offsets[s + 1] - c->offsets[s]};
    args_room args;
    call_args(made, &args);
    args_narrow(c->op, &args, "sequences", s, 1);
    if (c->packed)
        args_narrow(c->op, &args, "length", c->offsets[s], bounds[1]);
    else
        args_narrow(c->op, &args, "batch", s, 1);
    for (int i = 0; i < c->op->tensor_count && c->packed; i++)
        if (c->op->tensors[i].kind == OP_OFFSETS)
            *op_args_tensor(&c->op->tensors[i], &args) =
                packed ? rill_tensor_1d(bounds, RILL_I64, 2) : (rill_tensor){0};
    return args_run(context, c->op, &args);
}

static bool all_alone(rill_context *context, const call *made, bool packed)
{
    bool good = true;
    call_clear_outputs(made);
    for (int64_t s = 0; s < op_size(&made->c->sizes, "sequences") && good; s++)
        good = run_alone(context, made, s, packed);
    return good;
}

static bool reproduces(const venue *t, rill_context *probe, uint64_t seed, draw_turn turn)
{
    static const int threads[] = {1, 2, 16};
    draw_limits limits = pinned(turn, turn.number % 2 ? 1 : -1);
    test_case c = case_draw(seed, turn.number, &limits);
    if (!op_available(c.op, probe)) return true;
    call first = call_make(&c, false), other = call_make(&c, false);
    bool good = true;
    for (int i = 0; i < 3 && good; i++) {
        rill_context *context = venue_open(t, threads[i], true);
        good = run_whole(context, i ? &other : &first);
        if (good && i) good = calls_same_outputs(&first, &other, "1 thread and more", true);
        good = good && all_alone(context, &other, false) &&
               calls_same_outputs(&first, &other, "sequences together and alone", false);
        if (good && c.packed)
            good = all_alone(context, &other, true) &&
                   calls_same_outputs(&first, &other, "sequences together and packed alone", false);
        rill_context_destroy(context);
    }
    if (!good) case_print(&c);
    call_free(&first);
    call_free(&other);
    return good;
}

/* Values that any arithmetic would change, or lose. */
static void fill_odd(const rill_tensor *state)
{
    static const double odd[] = {-0.0, INFINITY, -INFINITY, 1, -3, 5e-5, 0};
    int64_t index[RILL_MAX_RANK] = {0}, k = 0;
    if (view_count(state) == 0) return;
    do view_store(state, index, odd[k++ % 7]);
    while (view_next(state, index));
    char *nan = state->data;
    size_t size = rill_dtype_size(state->dtype);
    memset(nan, 0x11, size); /* a quiet NaN with a payload; of a complex number the imaginary part */
    nan[size - 1] = 0x7f;
    nan[size - 2] = (char)(state->dtype == RILL_F16 ? 0x7e : size >= 8 ? 0xf9 : 0xc1);
    if (state->dtype == RILL_F16) nan[1] = 0x7e;
}

/* Sequences without steps, in a packed call or a batch: the state that leaves is the one that came, or 0. */
static bool hands_on(const venue *t, rill_context *probe, uint64_t seed, draw_turn turn)
{
    uint64_t number = turn.number;
    draw_limits limits = {.cost = 1e5,
                          .plain = true,
                          .packed = number % 2 ? 1 : -1,
                          .activations = types[number % 5],
                          .later = turn.later};
    op_size_set(&limits.pinned, "length", 0);
    if (number % 2 == 0) op_size_set(&limits.pinned, "batch", 3);
    limits.complex = number / 5 % 3 == 1;
    test_case c = case_draw(seed, number, &limits);
    int init, final;
    if (!op_available(c.op, probe)) return true;
    bool good = state_pair(&c, 0, &init, &final);
    case_give(&c, final);
    c.tensors[init].given = number % 8 != 0;
    c.tensors[final].dtype = c.tensors[init].dtype;
    call made = call_make(&c, false);
    rill_tensor right = view_alloc_like(&made.tensor[final], made.tensor[final].dtype);
    if (made.tensor[init].data) {
        fill_odd(&made.tensor[init]);
        view_copy(&right, &made.tensor[init]);
    }
    rill_context *context = venue_open(t, 2, number % 4 == 3);
    good = good && run_whole(context, &made) && view_same(&made.tensor[final], &right, NULL);
    if (!good) {
        printf("%s differs after no step: ", c.op->tensors[final].name);
        case_print(&c);
    }
    rill_context_destroy(context);
    free(right.data);
    call_free(&made);
    return good;
}

static int check_venue(const venue *t, rill_context *probe, uint64_t seed)
{
    int failed = 0;
    for (uint64_t number = 0; number < 108; number++) failed += !repeats(t, probe, seed, draw_turn_of(number));
    for (uint64_t number = 0; number < 108; number++) failed += !reproduces(t, probe, seed, draw_turn_of(number));
    for (uint64_t number = 0; number < 180; number++) failed += !hands_on(t, probe, seed, draw_turn_of(number));
    printf("%s: %d failed\n", t->name, failed);
    return failed;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 11);
    int failed = 0, tested = 0;
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 1, false) : NULL;
        if (probe) failed += check_venue(t, probe, given.seed);
        tested += probe != NULL;
        rill_context_destroy(probe);
    }
    return tested == 0 ? 77 : failed != 0;
}
