/*
 * A NaN or infinity stays where SPEC lets it go: along its own channel or head, forward in time, within its own
 * sequence.
 * Every other element of every output keeps its bits.
 *
 *     specials [--only TARGET] [--seed N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calls.h"
#include "strided.h"
#include "words.h"

/* Where a special value was put: -1 is everywhere along that axis.  Channels, or heads, are those of a range. */
typedef struct place {
    int64_t sequence, step, channel, end;
} place;

static bool mixes(const test_case *c, const char *name)
{
    for (int i = 0; i < 6 && c->rules->mixed[i]; i++)
        if (strcmp(c->rules->mixed[i], name) == 0) return true;
    return false;
}

static int64_t sequence_of_step(const test_case *c, int64_t step)
{
    int64_t s = 0;
    while (c->offsets[s + 1] <= step) s++;
    return s;
}

/* A query head is the heads that use it, a group its channels. */
static void place_channel(const test_case *c, const op_tensor *t, const int64_t *index, place *p)
{
    static const char *const axes[][2] = {
        {"channels", "channels"}, {"heads", "heads"}, {"query_heads", "heads"}, {"groups", "channels"}};
    for (int i = 0; i < 4; i++) {
        int axis = op_tensor_axis(t, axes[i][0]);
        if (axis < 0 || mixes(c, t->name)) continue;
        int64_t share = op_size(&c->sizes, axes[i][1]) / op_size(&c->sizes, axes[i][0]);
        p->channel = index[axis] * share;
        p->end = p->channel + share;
    }
}

/* The place in terms of sequences, from an index of an input. */
static place place_of(const test_case *c, const op_tensor *t, const int64_t *index)
{
    int batch = op_tensor_axis(t, "batch"), sequence = op_tensor_axis(t, "sequences"),
        time = op_tensor_axis(t, "length");
    place p = {-1, -1, -1, -1};
    place_channel(c, t, index, &p);
    if (time >= 0) p.step = index[time];
    if (batch >= 0) p.sequence = c->packed ? sequence_of_step(c, p.step) : index[batch];
    if (sequence >= 0) p.sequence = index[sequence];
    return p;
}

/* When the input reaches the output; false: never. */
static bool find_reach(const test_case *c, const char *input, const char *output, reach *when)
{
    bool ruled = false;
    for (const reach_rule *rule = c->rules->reaches; rule->input; rule++) {
        if (strcmp(rule->input, input) != 0) continue;
        ruled = true;
        *when = rule->when;
        if (strcmp(rule->output, output) == 0) return true;
    }
    *when = op_is_backward(c->op) ? REACH_UNTIL : REACH_FROM;
    return !ruled;
}

/* Whether so many steps later, in the order of the forward recurrence, is when. */
static bool is_then(reach when, int64_t later)
{
    switch (when) {
    case REACH_ALWAYS:
        return true;
    case REACH_OWN:
        return later == 0;
    case REACH_NEXT:
        return later == 1;
    case REACH_LATER:
        return later > 0;
    case REACH_FROM:
        return later >= 0;
    case REACH_EARLIER:
        return later < 0;
    case REACH_UNTIL:
        return later <= 0;
    }
    return true;
}

/* Whether the special value, of this input, may reach an element of an output. */
static bool reached(const test_case *c, const op_tensor *input, const op_tensor *t, const int64_t *index, place from)
{
    reach when;
    place p = place_of(c, t, index);
    if (from.sequence >= 0 && p.sequence >= 0 && p.sequence != from.sequence) return false;
    if (from.channel >= 0 && p.channel >= 0 && (p.end <= from.channel || p.channel >= from.end)) return false;
    if (!find_reach(c, input->name, t->name, &when)) return false;
    if (from.step < 0 || p.step < 0) return true;
    return is_then(when, case_option(c, "reverse") ? from.step - p.step : p.step - from.step);
}

static bool check_outputs(const call *clean, const call *dirty, const op_tensor *input, place from)
{
    const op *row = clean->c->op;
    for (int i = 0; i < row->tensor_count; i++) {
        int64_t index[RILL_MAX_RANK] = {0};
        if (!op_is_output(&row->tensors[i]) || !clean->tensor[i].data || view_count(&clean->tensor[i]) == 0) continue;
        do {
            if (reached(clean->c, input, &row->tensors[i], index, from) ||
                view_same_element(&clean->tensor[i], &dirty->tensor[i], index))
                continue;
            printf("%s changed from %.9g to %.9g at", row->tensors[i].name, view_load(&clean->tensor[i], index),
                   view_load(&dirty->tensor[i], index));
            for (int k = 0; k < row->tensors[i].rank; k++) printf(" %lld", (long long)index[k]);
            printf("\n");
            return false;
        } while (view_next(&clean->tensor[i], index));
    }
    return true;
}

static bool run(rill_context *context, const call *made)
{
    args_room args;
    call_args(made, &args);
    return args_run(context, made->c->op, &args);
}

/* Puts a value somewhere into one input, runs, and takes it out again. */
static bool check_input(rill_context *context, rng *r, const call *clean, const call *dirty, int input)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    const op_tensor *t = &clean->c->op->tensors[input];
    const rill_tensor *view = &dirty->tensor[input];
    int64_t index[RILL_MAX_RANK] = {0};
    for (int k = 0; k < t->rank; k++) index[k] = rng_below(r, view->shape[k]);
    rill_tensor one = *view, kept;
    for (int k = 0; k < t->rank; k++) one = view_narrow(one, k, index[k], 1);
    kept = view_alloc_like(&one, one.dtype);
    view_copy(&kept, &one);
    view_store(view, index, specials[rng_below(r, 3)]);
    bool good = run(context, dirty) && check_outputs(clean, dirty, t, place_of(clean->c, t, index));
    if (!good) {
        printf("%s at", t->name);
        for (int k = 0; k < t->rank; k++) printf(" %lld", (long long)index[k]);
        printf(" was %g: ", view_load(view, index));
        case_print(clean->c);
    }
    view_copy(&one, &kept);
    free(kept.data);
    return good;
}

static bool check_number(rill_context *context, uint64_t seed, draw_turn turn)
{
    uint64_t number = turn.number;
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    static const int64_t sizes[][4] = {{3, 70, 33, 16}, {2, 40, 130, 5}, {1, 1200, 3, 16}, {2, 33, 16, 64}};
    static const int64_t cheap[][3] = {{3, 70, 33}, {1, 40000, 2}, {1, 70000, 1}, {200, 3, 20}};
    draw_limits limits = {
        .cost = 4e6, .plain = true, .packed = number % 3 ? -1 : 1, .activations = types[number % 4]};
    limits.complex = number / 4 % 3 == 1;
    limits.op = draw_op_at(turn.later, number / 2);
    if (!op_available(limits.op, context)) return true;
    rng r = rng_make(seed, number);
    int64_t row = rng_below(&r, 4);
    const int64_t *size = plausible_find(limits.op->name)->cheap_steps ? cheap[row] : sizes[row];
    op_size_set(&limits.pinned, "batch", size[0]);
    op_size_set(&limits.pinned, "length", size[1]);
    op_size_set(&limits.pinned, "channels", size[2]);
    op_size_set(&limits.pinned, "states", sizes[row][3]);
    pin_attention(&limits, (int)row);
    test_case c = case_draw(seed, number, &limits);
    call clean = call_make(&c, false), dirty = call_make(&c, false);
    bool good = run(context, &clean);
    for (int i = 0; i < c.op->tensor_count && good; i++) {
        const op_tensor *t = &c.op->tensors[i];
        bool placed = op_tensor_axis(t, "length") >= 0 || op_tensor_axis(t, "sequences") >= 0;
        if (!op_is_output(t) && t->kind != OP_OFFSETS && dirty.tensor[i].data &&
            (placed || t->kind == OP_PARAMETER) && view_count(&dirty.tensor[i]) > 0)
            good = check_input(context, &r, &clean, &dirty, i);
    }
    call_free(&clean);
    call_free(&dirty);
    return good;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 3);
    int failed = 0, tested = 0;
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *context = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 2, false) : NULL;
        if (!context) continue;
        int before = failed;
        for (uint64_t number = 0; number < 108; number++)
            failed += !check_number(context, given.seed, draw_turn_of(number));
        printf("%s: %d failed\n", t->name, failed - before);
        rill_context_destroy(context);
        tested++;
    }
    return tested == 0 ? 77 : failed != 0;
}
