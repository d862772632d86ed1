/* Gates and states of linear attention whose values are hard. */
#include "hard_attention.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strided.h"

/* Row 1: one strong log gate among weak ones; what comes after it is as if it came first. */
static void strong_log_gate(void **unused)
{
    static const double strong[] = {-20, -1e4, -1e6, -0.1 * FLT_MAX, -INFINITY};
    (void)unused;
    for (int i = 0; i < 10; i++)
        for (int reverse = 0; reverse < 2; reverse++) {
            rill_dtype dtype = wide_types[i % 2];
            int64_t at = reverse ? 123 : 4;
            attention made = attention_make(dtype, (attention_sizes){2, 128, 1, 2, 24, 16, 0});
            attention fresh = attention_make(dtype, (attention_sizes){2, 128, 1, 2, 24, 16, 0});
            view_fill(&made.forward.gate, -0.01);
            view_fill(&fresh.forward.gate, -0.01);
            set_gate(&made, at, strong[i / 2]);
            made.forward.gate_is_log = fresh.forward.gate_is_log = true;
            made.forward.reverse = fresh.forward.reverse = reverse;
            fresh.forward.S_init = (rill_tensor){0};
            attention_share(&made);
            narrow(&fresh, reverse ? 0 : 4, 124);
            assert_true(attention_agrees(context, &made, "a strong log gate"));
            run(&fresh.forward);
            rill_tensor rows = view_narrow(made.forward.y, 1, reverse ? 0 : 4, 124);
            assert_true(views_near(&rows, &fresh.forward.y, 1e-6));
            assert_true(views_near(&made.forward.S_final, &fresh.forward.S_final, 1e-6));
            for (int64_t h = 0; h < 2; h++) {
                double gradient = view_load(&made.backward.dgate, (int64_t[]){0, at, h});
                assert_true(i / 2 == 0 ? gradient != 0 : gradient == 0);
            }
            attention_free(&made);
            attention_free(&fresh);
        }
}

/* y_t of row 2, t from 1. */
static double closed_form(double gate, int64_t t, double scale, int64_t keys)
{
    double sum = gate == 1 ? (double)t : (1 - pow(gate, (double)t)) / (1 - gate);
    return scale * (double)keys * sum;
}

/* Row 2: q = k = v = 1 and one gate, as a factor and as its logarithm. */
static void closed_forms(void **unused)
{
    static const double gates[] = {0, 0.5, 1 - 0x1p-10, 1};
    static const int64_t lengths[] = {1, 63, 64, 65, 1000};
    (void)unused;
    for (int i = 0; i < 80; i++) {
        double gate = gates[i % 4], scale = i % 3 ? 0.25 : 0;
        int64_t length = lengths[i / 4 % 5], keys = i % 3 == 1 ? 24 : 1;
        bool logarithm = i / 40;
        rill_dtype dtype = wide_types[i / 20 % 2];
        attention made = attention_make(dtype, (attention_sizes){1, length, 1, 1, keys, 3, 0});
        rill_linear_attention_args *a = &made.forward;
        view_fill(&a->q, 1), view_fill(&a->k, 1), view_fill(&a->v, 1);
        view_fill(&a->gate, logarithm ? log(gate) : gate);
        a->gate_is_log = logarithm, a->scale = scale;
        a->beta = a->S_init = (rill_tensor){0};
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "a closed form"));
        for (int64_t t = 0; t < length; t++) {
            double right = closed_form(gate, t + 1, scale == 0 ? 1 : scale, keys);
            double found = view_load(&a->y, (int64_t[]){0, t, 0, 2});
            double tolerance = dtype == RILL_F64 ? 1e-12 : logarithm ? 1e-4 : 1e-5; /* the logarithm is rounded */
            if (!(fabs(found - right) <= tolerance * right))
                fail_msg("gate %g, y_%lld is %.9g, expected %.9g", gate, (long long)t + 1, found, right);
        }
        attention_free(&made);
    }
}

/* Row 3: nothing comes in, and the state is halved: an exact power of two, denormal in the end. */
static void halved_states(void **unused)
{
    static const int64_t lengths[] = {1, 15, 33, 65, 127};
    (void)unused;
    for (int i = 0; i < 20; i++) {
        int64_t length = lengths[i % 5];
        attention made = attention_make(wide_types[i / 5 % 2], (attention_sizes){1, length, 2, 2, 24, 24, 0});
        rill_linear_attention_args *a = &made.forward;
        view_fill(&a->k, 0), view_fill(&a->S_init, 1), view_fill(&a->gate, 0.5);
        if (i / 10) a->S_final = a->S_init; /* in place */
        run(a);
        int64_t index[RILL_MAX_RANK] = {0};
        do assert_true(view_load(&a->S_final, index) == exp2((double)-length));
        while (view_next(&a->S_final, index));
        attention_free(&made);
    }
}

/* Row 9: no gate, a log gate of 0, a gate of 1. */
static void no_gate(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        attention made[3];
        rill_tensor *first[ATTENTION_OUTPUTS], *other[ATTENTION_OUTPUTS];
        for (int i = 0; i < 3; i++) {
            made[i] = attention_make(wide_types[wide], (attention_sizes){2, 130, 2, 2, 24, 16, 0});
            view_fill(&made[i].forward.gate, i == 2);
            made[i].forward.gate_is_log = i == 1;
            if (i == 0) made[i].forward.gate = (rill_tensor){0};
            attention_share(&made[i]);
            assert_true(attention_agrees(context, &made[i], "a gate of 1"));
            list_outputs(&made[0], first);
            list_outputs(&made[i], other);
            for (int k = 0; k < ATTENTION_OUTPUTS; k++)
                if (k != ATTENTION_DGATE) assert_true(views_near(other[k], first[k], wide ? 1e-13 : 2e-6));
        }
        assert_true(views_near(&made[1].backward.dgate, &made[2].backward.dgate, wide ? 1e-12 : 1e-5));
        for (int i = 0; i < 3; i++) attention_free(&made[i]);
    }
}

/* Row 13: a float32 state beside 16-bit queries is read as float32. */
static void wide_states(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++) {
        rill_dtype dtype = i % 2 ? RILL_F16 : RILL_BF16;
        bool cancels = i / 2 % 2;
        double scale = i / 4 ? 0.5 : 0;
        attention made = attention_make(dtype, (attention_sizes){1, 3, 1, 1, cancels ? 2 : 1, 1, 0});
        rill_linear_attention_args *a = &made.forward;
        rill_tensor y = view_alloc(RILL_F32, 4, a->y.shape);
        view_fill(&a->q, 1), view_fill(&a->k, 0), view_fill(&a->gate, 1), view_fill(&a->S_init, 1e5);
        if (cancels) view_store(&a->S_init, (int64_t[]){0, 0, 1, 0}, -99999);
        a->scale = scale;
        if (!cancels) a->y = y; /* else the small difference is a number of 16 bits */
        run(a);
        for (int64_t t = 0; t < 3; t++)
            assert_true(view_load(&a->y, (int64_t[]){0, t, 0, 0}) == (cancels ? 1 : 1e5) * (scale == 0 ? 1 : scale));
        free(y.data);
        attention_free(&made);
    }
}

/* The gate of a first step is not read without a state, and has no gradient then. */
static void unread_gate(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++) {
        attention made = attention_make(wide_types[i % 2], (attention_sizes){2, 70, 1, 2, 8, 8, 0});
        bool reverse = i / 2 % 2;
        int64_t first = reverse ? 69 : 0;
        made.forward.S_init = (rill_tensor){0};
        made.forward.reverse = reverse;
        made.forward.gate_is_log = i / 4;
        if (i / 4) view_fill(&made.forward.gate, -0.125);
        set_gate(&made, first, NAN);
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "a gate that is not read"));
        assert_true(view_load(&made.forward.y, (int64_t[]){0, 69 - first, 1, 7}) < INFINITY);
        assert_true(view_load(&made.backward.dgate, (int64_t[]){1, first, 1}) == 0);
        attention_free(&made);
    }
}

/* A reset drops what is not finite, forward and in the gradients; the gate's own leaves it out. */
static void resets(void **unused)
{
    static const double dropped[] = {INFINITY, -INFINITY, NAN};
    (void)unused;
    for (int i = 0; i < 12; i++) {
        attention made = attention_make(wide_types[i % 2], (attention_sizes){1, 140, 1, 2, 24, 16, 0});
        bool logarithm = i / 6;
        if (logarithm) view_fill(&made.forward.gate, -0.125);
        set_gate(&made, 69, logarithm ? -INFINITY : 0);
        view_store(&made.forward.v, (int64_t[]){0, 40, 1, 3}, dropped[i / 2 % 3]);
        made.forward.gate_is_log = logarithm;
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "a reset"));
        for (int64_t t = 69; t < 140; t++) assert_true(isfinite(view_load(&made.forward.y, (int64_t[]){0, t, 1, 3})));
        assert_true(isfinite(view_load(&made.backward.dgate, (int64_t[]){0, 69, 1})));
        assert_true(isfinite(view_load(&made.backward.dS_init, (int64_t[]){0, 1, 0, 3})));
        assert_false(isfinite(view_load(&made.forward.y, (int64_t[]){0, 68, 1, 3})));
        attention_free(&made);
    }
}

/* Nor does a gradient that is not finite flow past one. */
static void resets_of_gradients(void **unused)
{
    static const double blocked[] = {INFINITY, -INFINITY, NAN};
    (void)unused;
    for (int i = 0; i < 12; i++) {
        attention made = attention_make(wide_types[i % 2], (attention_sizes){1, 140, 1, 2, 24, 16, 0});
        bool logarithm = i / 6;
        if (logarithm) view_fill(&made.forward.gate, -0.125);
        set_gate(&made, 69, logarithm ? -INFINITY : 0);
        view_store(&made.backward.dy, (int64_t[]){0, 100, 1, 3}, blocked[i / 2 % 3]);
        made.forward.gate_is_log = logarithm;
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "a gradient behind a reset"));
        assert_false(isfinite(view_load(&made.backward.dv, (int64_t[]){0, 69, 1, 3})));
        for (int64_t t = 0; t < 69; t++) {
            assert_true(isfinite(view_load(&made.backward.dv, (int64_t[]){0, t, 1, 3})));
            assert_true(isfinite(view_load(&made.backward.dk, (int64_t[]){0, t, 0, 5})));
            assert_true(isfinite(view_load(&made.backward.dgate, (int64_t[]){0, t, 1})));
        }
        assert_true(isfinite(view_load(&made.backward.dS_init, (int64_t[]){0, 1, 0, 3})));
        attention_free(&made);
    }
}

/* An infinity stays one in sums over keys, whatever the number of keys. */
static void infinite_inputs(void **unused)
{
    static const int64_t keys[] = {1, 5, 16, 17, 33};
    (void)unused;
    for (int i = 0; i < 20; i++) {
        attention made = attention_make(wide_types[i % 2], (attention_sizes){1, 70, 1, 1, keys[i / 4], 3, 0});
        const rill_tensor *ones[] = {&made.forward.q, &made.forward.k, &made.forward.v, &made.forward.beta,
                                     &made.backward.dy};
        for (int k = 0; k < 5; k++) view_fill(ones[k], 1);
        view_fill(&made.forward.gate, 0.5);
        made.forward.S_init = made.backward.dS_final = (rill_tensor){0};
        view_store(i / 2 % 2 ? &made.backward.dy : &made.forward.v, (int64_t[]){0, 20, 0, 1}, INFINITY);
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "an infinite input"));
        assert_true(view_load(&made.backward.dgate, (int64_t[]){0, i / 2 % 2 ? 20 : 21, 0}) == INFINITY);
        assert_true(view_load(&made.backward.dbeta, (int64_t[]){0, 20, 0}) == INFINITY);
        attention_free(&made);
    }
}

int run_value_tests(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strong_log_gate), cmocka_unit_test(closed_forms),        cmocka_unit_test(halved_states),
        cmocka_unit_test(no_gate),         cmocka_unit_test(wide_states),         cmocka_unit_test(unread_gate),
        cmocka_unit_test(resets),          cmocka_unit_test(resets_of_gradients), cmocka_unit_test(infinite_inputs)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
