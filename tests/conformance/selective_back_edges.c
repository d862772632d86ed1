/* The edges of the selective gradients: where a function has two pieces, where nothing flows, what is not read. */
#include "hard_selective_back.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_calls.h"
#include "available.h"
#include "strided.h"

/* Row 4: the slope of softplus, seen as ddelta of one step. */
static void softplus_slopes(void **unused)
{
    static const double raw[] = {-6.9072552, -20, 100, 20.5, 19.5, 0, -88, -104};
    (void)unused;
    for (int wide = 0; wide < 2; wide++)
        for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++) {
            hard_back back = hard_back_make(wide_types[wide], (hard_sizes){1, 1, 1, 1, 1});
            back.args.delta_softplus = true;
            set3(&back.args.delta, 0, 0, 0, raw[i]);
            double given = get3(&back.args.delta, 0, 0, 0), right = given > 20 ? 1 : exp(given) / (1 + exp(given));
            run_back(&back);
            double found = get3(&back.args.ddelta, 0, 0, 0), least = wide ? 0 : 0x1p-126;
            if (!(fabs(found - right) <= (wide ? 1e-12 : 1e-5) * right + least))
                fail_msg("the slope of softplus(%.9g) is %.9g, expected %.9g", given, found, right);
            hard_back_free(&back);
        }
}

/* Row 10: raw 2 with softplus, limits 0 and .1: nothing flows to the step size, not even from a NaN. */
static void clamped(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        hard_back back = hard_back_make(wide_types[i % 2], (hard_sizes){1, 2, 1, 1, 1});
        rill_selective_scan_backward_args *a = &back.args;
        a->delta_bias = view_alloc_like(&a->A, a->A.dtype), a->ddelta_bias = view_alloc_like(&a->A, a->A.dtype);
        a->delta_bias.rank = a->ddelta_bias.rank = 1;
        view_fill(&a->delta_bias, 0), view_fill(&a->ddelta_bias, NAN), view_fill(&a->delta, 2);
        a->delta_softplus = true;
        a->delta_max = 0.1;
        if (i >= 2) set3(&a->dy, 0, 1, 0, NAN);
        run_back(&back);
        for (int64_t t = 0; t < 2; t++) assert_true(get3(&a->ddelta, 0, t, 0) == 0);
        assert_true(get3(&a->ddelta_bias, 0, 0, 0) == 0);
        if (i < 2) {
            check_at(&a->dA, 0, 0, 0, 0.1 * exp2(-0.1) * 0.1);
            check_at(&a->dx, 0, 0, 0, 0.1 * (1 + exp2(-0.1)));
        }
        free(a->delta_bias.data), free(a->ddelta_bias.data);
        hard_back_free(&back);
    }
}

/* On a limit, in the type that it is computed in, a step size is not clamped: .1 in float32 is not .1 in float64. */
static void on_a_limit(void **unused)
{
    static const double limits[] = {0.1, 0.3, 0.7};
    (void)unused;
    for (int i = 0; i < 12; i++) {
        hard_back back = hard_back_make(wide_types[i % 2], (hard_sizes){1, 3, 1, 1, 1});
        double limit = limits[i / 2 % 3], *which = i < 6 ? &back.args.delta_max : &back.args.delta_min;
        *which = limit;
        view_fill(&back.args.delta, limit);
        run_back(&back);
        check_at(&back.args.ddelta, 0, 0, 0, 1 + exp2(-limit) + exp2(-2 * limit));
        view_fill(&back.args.delta, i < 6 ? nextafterf((float)limit, 9) : nextafterf((float)limit, -9));
        run_back(&back);
        for (int64_t t = 0; t < 3; t++) assert_true(get3(&back.args.ddelta, 0, t, 0) == 0);
        hard_back_free(&back);
    }
}

/* Row 11: of an infinite A no gradient, and no NaN from it. */
static void infinite_decay(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        hard_back back = hard_back_make(wide_types[i % 2], (hard_sizes){1, 6, 1, 1, 1});
        bool still = i < 2; /* a step size of 0 leaves the state alone; one of 1 forgets it */
        view_fill(&back.args.h_init, 3);
        view_fill(&back.args.A, -INFINITY);
        view_fill(&back.args.delta, !still);
        run_back(&back);
        for (int64_t t = 0; t < 6; t++) {
            assert_true(get3(&back.args.dx, 0, t, 0) == !still && get3(&back.args.dB, 0, t, 0) == !still);
            assert_true(get3(&back.args.dC, 0, t, 0) == (still ? 3 : 1));
            assert_false(isnan(get3(&back.args.ddelta, 0, t, 0)));
            if (!still) assert_true(get3(&back.args.ddelta, 0, t, 0) == 1);
        }
        assert_true(get3(&back.args.dA, 0, 0, 0) == 0);
        assert_true(get3(&back.args.dh_init, 0, 0, 0) == (still ? 6 : 0));
        hard_back_free(&back);
    }
}

/* Without h_init the first step has no decay: A is then not read by it. */
static void unread_decay(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        hard_back back = hard_back_make(wide_types[i % 2], (hard_sizes){1, 1, 1, 1, 1}), call = back;
        call.args.reverse = i / 2;
        call.args.h_init = call.args.dh_init = (rill_tensor){0};
        view_fill(&call.args.A, NAN);
        run_back(&call);
        check_at(&call.args.dx, 0, 0, 0, 1);
        check_at(&call.args.ddelta, 0, 0, 0, 1);
        assert_true(get3(&call.args.dA, 0, 0, 0) == 0);
        hard_back_free(&back);
    }
}

/* Of no steps, or of nothing that comes from above, every gradient is 0. */
static void nothing_from_above(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        hard_back back = hard_back_make(wide_types[i % 2], (hard_sizes){2, i / 2 ? 0 : 5, 3, 4, 1}), call = back;
        rill_tensor *const all[] = {&call.args.dx, &call.args.ddelta, &call.args.dA,
                                    &call.args.dB, &call.args.dC,     &call.args.dh_init};
        if (i < 2) call.args.dy = (rill_tensor){0};
        run_back(&call);
        for (int k = 0; k < 6; k++) {
            int64_t index[RILL_MAX_RANK] = {0};
            if (view_count(all[k]) == 0) continue;
            do assert_true(view_load(all[k], index) == 0);
            while (view_next(all[k], index));
        }
        hard_back_free(&back);
    }
}

enum { WIDTH = 3, STATES = 2, STEPS = 4, LAYER_TENSORS = 13 };

/* A layer whose weights are all .25 and A_log 0, with a clamp where limit is not 0. */
static rill_selective_layer_backward_args make_layer(rill_dtype dtype, double limit, rill_tensor *memory)
{
    static const int64_t shapes[LAYER_TENSORS][3] = {
        {1, STEPS, WIDTH}, {WIDTH, WIDTH}, {STATES, WIDTH}, {STATES, WIDTH}, {WIDTH, STATES}, {WIDTH},
        {1, STEPS, WIDTH}, /* outputs: */
        {1, STEPS, WIDTH}, {WIDTH, WIDTH}, {STATES, WIDTH}, {STATES, WIDTH}, {WIDTH, STATES}, {WIDTH}};
    for (int i = 0; i < LAYER_TENSORS; i++) {
        memory[i] = view_alloc(dtype, shapes[i][2] ? 3 : shapes[i][1] ? 2 : 1, shapes[i]);
        view_fill(&memory[i], i == 0 || i == 6 ? 1 : i == 4 ? 0 : i < 6 ? 0.25 : NAN);
    }
    return (rill_selective_layer_backward_args){.x = memory[0],
                                                .W_delta = memory[1],
                                                .W_B = memory[2],
                                                .W_C = memory[3],
                                                .A_log = memory[4],
                                                .b_delta = memory[5],
                                                .dy = memory[6],
                                                .dx = memory[7],
                                                .dW_delta = memory[8],
                                                .dW_B = memory[9],
                                                .dW_C = memory[10],
                                                .dA_log = memory[11],
                                                .db_delta = memory[12],
                                                .delta_max = limit};
}

/* Of the layer: a clamp that always acts leaves nothing for W_delta; an A_log too large for exp has no gradient. */
static void layer_edges(void **unused)
{
    (void)unused;
    if (!op_available(op_find("selective_layer_backward"), context)) return;
    for (int i = 0; i < 4; i++) {
        rill_tensor memory[LAYER_TENSORS];
        rill_selective_layer_backward_args args = make_layer(wide_types[i % 2], i / 2 ? 0.01 : 0, memory);
        set3(&args.A_log, 1, 1, 0, 1000);
        rill_status status = rill_selective_layer_backward(context, &args);
        if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
        for (int64_t d = 0; d < WIDTH; d++) {
            for (int64_t j = 0; j < WIDTH; j++) assert_int_equal(get3(&args.dW_delta, d, j, 0) == 0, i / 2);
            assert_int_equal(get3(&args.db_delta, d, 0, 0) == 0, i / 2);
            for (int64_t n = 0; n < STATES; n++)
                assert_true(d == 1 && n == 1 ? get3(&args.dA_log, d, n, 0) == 0 : get3(&args.dA_log, d, n, 0) < 0);
            for (int64_t t = 0; t < STEPS; t++) assert_true(get3(&args.dx, 0, t, d) > 0);
        }
        for (int k = 0; k < LAYER_TENSORS; k++) free(memory[k].data);
    }
}

/* A small gradient, and behind it a large one of which little is left there: but more than the small one is. */
static void faded_gradients(void **unused)
{
    static const rill_dtype types[] = {RILL_F32, RILL_BF16};
    enum { LENGTH = 6000, CHANNELS = 16 };
    (void)unused;
    for (int i = 0; i < 2; i++) {
        hard_back back = hard_back_make(types[i], (hard_sizes){1, LENGTH, CHANNELS, 8, 1});
        rill_selective_scan_backward_args *a = &back.args;
        a->delta_softplus = true;
        view_fill(&a->delta, 0.5), view_fill(&a->A, -0.7), view_fill(&a->dy, 0);
        for (int64_t d = 0; d < CHANNELS; d++) {
            set3(&a->dy, 0, 53 + 16 * d % 64, d, 0x1p-30);
            set3(&a->dy, 0, 90 + 16 * d % 64, d, 8192);
        }
        assert_true(call_agrees(context, op_find("selective_scan_backward"), a, NULL));
        hard_back_free(&back);
    }
}

int run_edge_tests(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(softplus_slopes), cmocka_unit_test(clamped),
                                       cmocka_unit_test(on_a_limit),      cmocka_unit_test(infinite_decay),
                                       cmocka_unit_test(unread_decay),    cmocka_unit_test(nothing_from_above),
                                       cmocka_unit_test(layer_edges),     cmocka_unit_test(faded_gradients)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
