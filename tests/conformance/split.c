/*
 * The split law: [0, L) at once, cut in two, and step by step with the exit state over the entry state give the same
 * result; bit for bit where states are kept in the type that they are computed in (the reference with f64 states, the
 * loop), within the bound on the others.  Gradients of parameters are sums over time: the parts' are added up, and
 * the sums agree within the tolerance.
 *
 *     split [--only TARGET] [--seed N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calls.h"
#include "measure.h"
#include "strided.h"
#include "words.h"

enum { CASES = 270 };

/* The gradients of parameters: what the pieces make of each, and their sum so far; by tensor, absent where not one.
 */
typedef struct sums {
    rill_tensor piece[OP_MAX_TENSORS], whole[OP_MAX_TENSORS];
} sums;

/* The elements of one step, without the time axis. */
static rill_tensor step_of(const op_tensor *t, rill_tensor view, int64_t step)
{
    int time = op_tensor_axis(t, "length");
    rill_tensor at = view_narrow(view, time, step, 1);
    for (int k = time; k + 1 < RILL_MAX_RANK; k++) at.shape[k] = at.shape[k + 1], at.stride[k] = at.stride[k + 1];
    at.rank = t->rank - 1;
    return at;
}

/* The operator whose gradients this one computes. */
static const op *forward_of(const op *backward)
{
    const op *const *row = op_table;
    while ((*row)->backward != backward) row++;
    return *row;
}

/* What the forward operator makes of steps [start, start + count), with the call's own inputs, in `state`. */
static bool run_forward(rill_context *context, const call *made, const rill_tensor *state, int64_t start,
                        int64_t count)
{
    const test_case *c = made->c;
    const op *forward = forward_of(c->op);
    args_room args, own;
    rill_tensor unused = {0};
    call_args(made, &own);
    memset(&args, 0, sizeof args);
    for (int i = 0; i < forward->tensor_count; i++) {
        const op_tensor *t = &forward->tensors[i], *same = op_tensor_find(c->op, t->name);
        if (same) *op_args_tensor(t, &args) = *op_args_tensor(same, &own);
        if (t->role != OP_OUTPUT) continue;
        int64_t shape[RILL_MAX_RANK];
        for (int k = 0; k < t->rank; k++) shape[k] = op_size(&c->sizes, t->axes[k]);
        *op_args_tensor(t, &args) = unused = view_alloc(c->activations, t->rank, shape);
    }
    *op_args_tensor(op_tensor_find(forward, forward->state.output), &args) = *state;
    for (int k = 0; k < forward->option_count; k++) {
        const op_option *to = &forward->options[k], *from = op_option_find(c->op, to->name);
        memcpy(args.bytes + to->offset, own.bytes + from->offset,
               to->type == OP_BOOL ? sizeof(bool) : sizeof(double));
    }
    args_narrow(forward, &args, "length", start, count);
    bool good = args_run(context, forward, &args);
    free(unused.data);
    return good;
}

/*
 * The state with which a later piece of a gradient's call begins: an input by time one step before (h_init of a later
 * piece is h there), or where there is none what the forward operator makes of the steps before.  Where the call has
 * no such input, nothing reads the state: any view of its shape is one.  Memory for it is at *room.
 */
static bool resume(rill_context *context, const call *made, args_room *args, const rill_tensor *carry, int64_t start,
                   int64_t count, rill_tensor *room)
{
    const test_case *c = made->c;
    if (!c->rules->resumes[0]) return true;
    int64_t length = op_size(&c->sizes, "length");
    bool reverse = case_option(c, "reverse");
    int64_t before = reverse ? start + count : start - 1, end = start + count;
    if (before < 0 || before >= length) return true; /* the call's own */
    rill_tensor *state = op_args_tensor(op_tensor_find(c->op, c->rules->resumes[0]), args);
    if (!c->rules->resumes[1]) {
        *room = *state = view_alloc_like(carry, made->wide ? op_wide_type(c->activations) : case_wide(c));
        return reverse ? run_forward(context, made, room, end, length - end)
                       : run_forward(context, made, room, 0, start);
    }
    int by_time = case_tensor_index(c, c->rules->resumes[1]);
    *state = made->tensor[by_time].data ? step_of(&c->op->tensors[by_time], made->tensor[by_time], before) : *carry;
    return true;
}

/* Pieces are kept in the accumulation type, so that each rounds nothing more. */
static sums sums_open(const call *made)
{
    const test_case *c = made->c;
    sums s = {.piece = {{0}}};
    for (int i = 0; i < c->op->tensor_count; i++) {
        const rill_tensor *t = &made->tensor[i];
        if (!t->data || !is_sum(&c->op->tensors[i])) continue;
        s.piece[i] = view_alloc_like(t, made->wide ? op_wide_type(c->activations) : case_wide(c));
        s.whole[i] = view_alloc_like(t, RILL_F64);
        view_fill(&s.whole[i], 0);
    }
    return s;
}

static void sums_add(const sums *s)
{
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        int64_t index[RILL_MAX_RANK] = {0};
        if (!s->piece[i].data || view_count(&s->piece[i]) == 0) continue;
        do view_store(&s->whole[i], index, view_load(&s->whole[i], index) + view_load(&s->piece[i], index));
        while (view_next(&s->piece[i], index));
    }
}

/* Into the call's own tensors. */
static void sums_close(sums *s, const call *made)
{
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        int64_t index[RILL_MAX_RANK] = {0};
        if (s->piece[i].data && view_count(&s->piece[i]) > 0) do
                view_store(&made->tensor[i], index, view_load(&s->whole[i], index));
            while (view_next(&s->piece[i], index));
        free(s->piece[i].data);
        free(s->whole[i].data);
    }
}

/* One piece [start, start + count): states enter from and leave to the carries, which swap after each piece. */
static bool run_piece(rill_context *context, const call *made, rill_tensor carry[2][2], const sums *parameters,
                      int64_t start, int64_t count, bool first, bool last)
{
    const test_case *c = made->c;
    bool may_alias = !c->rules->resumes[0];
    args_room args;
    rill_tensor room = {0};
    int entry, exit;
    call_args(made, &args);
    args_narrow(c->op, &args, "length", start, count);
    for (int i = 0; state_pair(c, i, &entry, &exit); i++) {
        if (!first || made->tensor[entry].data) *op_args_tensor(&c->op->tensors[entry], &args) = carry[i][0];
        if (!last || made->tensor[exit].data)
            *op_args_tensor(&c->op->tensors[exit], &args) = carry[i][may_alias ? 0 : 1];
    }
    for (int i = 0; i < c->op->tensor_count; i++)
        if (parameters->piece[i].data) *op_args_tensor(&c->op->tensors[i], &args) = parameters->piece[i];
    bool good = resume(context, made, &args, &carry[0][0], start, count, &room) && args_run(context, c->op, &args);
    free(room.data);
    if (!good) return false;
    sums_add(parameters);
    for (int i = 0; state_pair(c, i, &entry, &exit) && !may_alias; i++) {
        rill_tensor swap = carry[i][0];
        carry[i][0] = carry[i][1];
        carry[i][1] = swap;
    }
    return true;
}

/* Runs the call in pieces of at most `size` steps, in the order in which it walks; its outputs end in made. */
static bool run_split(rill_context *context, const call *made, int64_t size)
{
    const test_case *c = made->c;
    int64_t length = op_size(&c->sizes, "length"), pieces = (length + size - 1) / size;
    rill_tensor carry[2][2] = {{{0}}};
    sums parameters = sums_open(made);
    int entry, exit;
    bool good = true;
    for (int i = 0; state_pair(c, i, &entry, &exit); i++)
        for (int k = 0; k < 2; k++) {
            rill_dtype dtype = made->wide ? op_wide_type(c->activations) : c->tensors[exit].dtype;
            carry[i][k] = view_alloc(dtype, c->op->tensors[exit].rank, c->tensors[exit].shape);
            if (made->tensor[entry].data) view_copy(&carry[i][k], &made->tensor[entry]);
        }
    for (int64_t p = 0; p < pieces && good; p++) {
        int64_t start = (runs_backwards(c) ? pieces - 1 - p : p) * size;
        int64_t count = start + size > length ? length - start : size;
        good = run_piece(context, made, carry, &parameters, start, count, p == 0, p == pieces - 1);
    }
    for (int i = 0; state_pair(c, i, &entry, &exit); i++) {
        if (made->tensor[exit].data) view_copy(&made->tensor[exit], &carry[i][0]);
        for (int k = 0; k < 2; k++) free(carry[i][k].data);
    }
    sums_close(&parameters, made);
    return good;
}

/* The parts' sums are added in another order than the whole one's: as near as the tolerance has them. */
static bool same_sums(const call *whole, const call *parts)
{
    const test_case *c = whole->c;
    bool good = true;
    for (int i = 0; i < c->op->tensor_count && good; i++) {
        if (!whole->tensor[i].data || !is_sum(&c->op->tensors[i])) continue;
        measure m = measure_compare(&c->op->tensors[i], &parts->tensor[i],
                                    &(measure_against){.right = &whole->tensor[i]}, NULL, 1, case_tolerance(c, i));
        if (!m.passed) printf("%s in parts: error over bound %.3g\n", c->op->tensors[i].name, m.worst);
        good = m.passed;
    }
    return good;
}

static bool same_bits(rill_context *context, const test_case *c, bool wide, int64_t size)
{
    args_room args;
    call whole = call_make(c, wide), parts = call_make(c, wide);
    call_args(&whole, &args);
    bool good = args_run(context, c->op, &args) && run_split(context, &parts, size) &&
                calls_same_outputs(&whole, &parts, "whole and parts", false) && same_sums(&whole, &parts);
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
                                    op_size(&c->sizes, "sequences"), case_tolerance(c, i));
        if (!m.passed) printf("%s in parts: error over bound %.3g\n", c->op->tensors[i].name, m.worst);
        good = m.passed;
    }
    call_free(&parts);
    return good;
}

/*
 * A case whose states enter and leave in the accumulation type, so that a cut rounds nothing more.  An exit that
 * needs another tensor is sometimes left out, with what it needs: only the pieces have it then.
 */
static test_case draw(uint64_t seed, draw_turn turn, rill_dtype activations)
{
    uint64_t number = turn.number;
    draw_limits limits = {.cost = 2e5, .plain = true, .packed = -1, .activations = activations, .later = turn.later};
    limits.complex = number % 4 == 1;
    test_case c = case_draw(seed, number, &limits);
    int entry, exit;
    for (int i = 0; state_pair(&c, i, &entry, &exit); i++) {
        if (!c.rules->resumes[0] || number % 3) case_give(&c, exit);
        c.tensors[entry].dtype = c.tensors[exit].dtype = case_wide(&c);
    }
    return c;
}

static bool check_number(const judges *j, const venue *t, uint64_t seed, draw_turn turn)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    rng r = rng_make(seed + 1, turn.number);
    bool exact = !t || t->backend == RILL_BACKEND_LOOP;
    test_case c = draw(seed, turn, exact ? RILL_F32 : types[rng_below(&r, 4)]);
    int64_t length = op_size(&c.sizes, "length"), sizes[2] = {1, 1 + rng_below(&r, length > 0 ? length : 1)};
    rill_context *context = t ? venue_open(t, c.threads, c.reproducible) : j->reference;
    judged right = {0};
    bool has = op_available(c.op, context), good = !has || exact || judge_case(j, &c, &right);
    if (length > 80) sizes[0] = 7; /* a call a step costs too much: a few steps a call */
    for (int i = 0; i < 2 && good && has; i++) {
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
        failed += !check_number(&j, NULL, given.seed, draw_turn_of(number));
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 1, false) : NULL;
        rill_context_destroy(probe);
        for (uint64_t number = 0; number < CASES && probe; number++)
            failed += !check_number(&j, t, given.seed, draw_turn_of(number));
        tested += probe != NULL;
    }
    judges_close(&j);
    printf("%d backends, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
