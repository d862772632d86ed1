/*
 * Linear attention of more elements than an int counts (HARD_INPUTS, row 7): a reset 64 steps before the end makes
 * the last rows, and their gradients, those of a run of their own.  In full on a GPU, where the tensors lie on the
 * device; elsewhere the same of a few steps, for the test's own sake.
 *
 *     large_attention [--only TARGET]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_calls.h"
#include "available.h"
#include "large.h"
#include "strided.h"
#include "venues.h"

enum { HEADS = 16, SIZE = 128, LAST = 64, BLOCK = 1024 };

static rill_context *context;
static int64_t length;

/* A tensor by time where the venue has it: drawn for a block of steps, which is repeated; the last steps as given. */
static large make_long(const rill_tensor *last, bool other)
{
    const int64_t row = last->shape[2] * (last->rank == 4 ? last->shape[3] : 1);
    attention drawn = attention_make(RILL_BF16, (attention_sizes){1, BLOCK, 1, 1, row, 1, 0});
    large made = large_make(last->dtype, length * row, false);
    const rill_tensor *from_drawn = other ? &drawn.forward.k : &drawn.forward.q;
    rill_tensor to = made.view, block = rill_tensor_1d(from_drawn->data, RILL_BF16, BLOCK * row);
    for (int64_t t = 0; t < length; t += BLOCK) {
        int64_t steps = length - t < BLOCK ? length - t : BLOCK;
        rill_tensor part = view_narrow(to, 0, t * row, steps * row), from = view_narrow(block, 0, 0, steps * row);
        large_put(&part, &from);
    }
    rill_tensor end = view_narrow(to, 0, (length - LAST) * row, LAST * row);
    rill_tensor from = rill_tensor_1d(last->data, last->dtype, LAST * row);
    large_put(&end, &from);
    attention_free(&drawn);
    made.view = rill_tensor_view(to.device, to.data, last->dtype, last->rank,
                                 (int64_t[]){1, length, last->shape[2], last->shape[3]}, NULL);
    return made;
}

/* Log gates near 0, and a reset where the last steps begin. */
static large make_gates(const rill_tensor *last)
{
    large made = large_make(RILL_BF16, length * HEADS, false);
    rill_tensor host = view_alloc(RILL_BF16, 3, (int64_t[]){1, length, HEADS});
    view_fill(&host, -0.0625);
    rill_tensor end = view_narrow(host, 1, length - LAST, LAST);
    view_copy(&end, last);
    rill_tensor from = rill_tensor_1d(host.data, RILL_BF16, length * HEADS);
    large_put(&made.view, &from);
    free(host.data);
    made.view = rill_tensor_3d_on(made.view.device, made.view.data, RILL_BF16, 1, length, HEADS);
    return made;
}

/* An output by time, and the way back of its last steps. */
static large make_room(const rill_tensor *last)
{
    large made = large_make(last->dtype, length * HEADS * SIZE, false);
    made.view = rill_tensor_4d_on(made.view.device, made.view.data, last->dtype, 1, length, HEADS, SIZE);
    return made;
}

static void fetch_last(const rill_tensor *last, const large *from)
{
    rill_tensor end = view_narrow(from->view, 1, length - LAST, LAST);
    large_put(last, &end);
}

static void run(const op *row, const void *args)
{
    rill_status status = row->run(context, args);
    if (status == RILL_OK) status = rill_synchronize(context);
    if (status != RILL_OK) fail_msg("%s: %s", row->name, rill_last_error(context));
}

static void last_rows(void **unused)
{
    const op *forward = op_find("linear_attention"), *backward = forward->backward;
    attention last = attention_make(RILL_BF16, (attention_sizes){1, LAST, HEADS, HEADS, SIZE, SIZE, 0});
    rill_linear_attention_args *a = &last.forward;
    rill_linear_attention_backward_args *b = &last.backward;
    (void)unused;
    view_fill(&a->gate, -0.0625);
    for (int64_t h = 0; h < HEADS; h++) view_store(&a->gate, (int64_t[]){0, 0, h}, -INFINITY);
    a->gate_is_log = true, a->scale = 1.0 / SIZE;
    a->beta = a->S_init = a->S_final = b->dS_final = b->dgate = (rill_tensor){0};
    attention_share(&last);
    large q = make_long(&a->q, false), k = make_long(&a->k, true), v = make_long(&a->v, false),
          gate = make_gates(&a->gate);
    large y = make_room(&a->y), dy = make_long(&b->dy, true);
    run(forward, &(rill_linear_attention_args){.q = q.view,
                                               .k = k.view,
                                               .v = v.view,
                                               .gate = gate.view,
                                               .y = y.view,
                                               .gate_is_log = true,
                                               .scale = a->scale});
    fetch_last(&a->y, &y);
    assert_true(call_is_right(forward, a, NULL));
    large dk = make_room(&b->dk), dv = make_room(&b->dv), *dq = &y;
    run(backward, &(rill_linear_attention_backward_args){.q = q.view,
                                                         .k = k.view,
                                                         .v = v.view,
                                                         .gate = gate.view,
                                                         .dy = dy.view,
                                                         .dq = dq->view,
                                                         .dk = dk.view,
                                                         .dv = dv.view,
                                                         .gate_is_log = true,
                                                         .scale = a->scale});
    fetch_last(&b->dq, dq), fetch_last(&b->dk, &dk), fetch_last(&b->dv, &dv);
    assert_true(call_is_right(backward, b, NULL));
    large *const all[] = {&q, &k, &v, &gate, &y, &dy, &dk, &dv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) large_free(all[i]);
    attention_free(&last);
}

int main(int count, char **words)
{
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(last_rows)};
    int failed = 0, tested = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const venue *v = venue_table; v->name; v++) {
        bool full = v->backend == RILL_BACKEND_CUDA;
        if (!venue_selected(v, only) || full != v->device_tensors) continue;
        context = venue_open(v, 0, false);
        if (!context) continue;
        length = full ? (1 << 20) + LAST : 1500 + LAST;
        large_on(v, context);
        if (op_available(op_find("linear_attention"), context)) {
            failed += cmocka_run_group_tests_name(v->name, tests, NULL, NULL);
            tested++;
        }
        rill_context_destroy(context);
    }
    return tested == 0 ? 77 : failed != 0;
}
