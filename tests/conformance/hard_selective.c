/*
 * The inputs on which selective scans have failed elsewhere, each with its right value, on every backend and
 * instruction set.  By default one sequence, one channel, one state, one group; A = -ln 2 and all else 1, so that
 * h_t = 2 - 2^(1-t).  The rows about strides are in hard_strides.c.
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

#include "hard.h"
#include "strided.h"
#include "venues.h"

/* Set for each group of tests. */
static rill_context *context;
static bool plain_loop; /* the reference or the loop: what is exact is exact there */

static const double tolerance_f32 = 2e-6, tolerance_f64 = 1e-13;

static void run(hard_scan *scan)
{
    rill_status status = rill_selective_scan(context, &scan->args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

static void check_at(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, double right)
{
    double tolerance = tensor->dtype == RILL_F64 ? tolerance_f64 : tolerance_f32;
    double found = get3(tensor, i0, i1, i2);
    if (!near(found, right, tolerance))
        fail_msg("[%d, %d, %d] is %.17g, expected %.17g", (int)i0, (int)i1, (int)i2, found, right);
}

/* Row 1: L = 7 cut as 3 + 4 with the state handed over. */
static void cut_in_two(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_scan scan = hard_make(wide ? RILL_F64 : RILL_F32, (hard_sizes){1, 7, 1, 1, 1});
        hard_scan first = scan, second = scan;
        rill_tensor *time[] = {&first.args.x,  &first.args.delta,  &first.args.B,  &first.args.C,  &first.args.y,
                               &second.args.x, &second.args.delta, &second.args.B, &second.args.C, &second.args.y};
        for (int i = 0; i < 5; i++) *time[i] = view_narrow(*time[i], 1, 0, 3);
        for (int i = 5; i < 10; i++) *time[i] = view_narrow(*time[i], 1, 3, 4);
        run(&first);
        check_at(&scan.args.h_final, 0, 0, 0, 1.75);
        if (plain_loop) assert_true(get3(&scan.args.h_final, 0, 0, 0) == 1.75);
        second.args.h_init = second.args.h_final;
        run(&second);
        check_at(&scan.args.h_final, 0, 0, 0, 1.984375);
        if (plain_loop) assert_true(get3(&scan.args.h_final, 0, 0, 0) == 1.984375);
        for (int t = 1; t <= 7; t++) check_at(&scan.args.y, 0, t - 1, 0, 2 - exp2(1 - t));
        hard_free(&scan);
    }
}

/* Row 2: packed lengths 1, 2, 0, 2. */
static void packed_with_an_empty_one(void **unused)
{
    static const int64_t offsets[] = {0, 1, 3, 3, 5};
    static const double right[] = {1, 1, 1.5, 1, 1.5}, final[] = {1, 1.5, 7.3, 1.5};
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_scan scan = hard_make(wide ? RILL_F64 : RILL_F32, (hard_sizes){1, 5, 1, 1, 1});
        free(scan.args.h_final.data);
        scan.args.h_final = view_alloc(scan.args.A.dtype, 3, (int64_t[]){4, 1, 1});
        scan.args.h_init = view_alloc(scan.args.A.dtype, 3, (int64_t[]){4, 1, 1});
        set3(&scan.args.h_init, 2, 0, 0, 7.3);
        scan.args.offsets = rill_tensor_1d(offsets, RILL_I64, 5);
        run(&scan);
        for (int t = 0; t < 5; t++) check_at(&scan.args.y, 0, t, 0, right[t]);
        for (int s = 0; s < 4; s++) check_at(&scan.args.h_final, s, 0, 0, final[s]);
        assert_true(get3(&scan.args.h_final, 2, 0, 0) == get3(&scan.args.h_init, 2, 0, 0));
        free(scan.args.h_init.data);
        hard_free(&scan);
    }
}

static double sum_of_two(hard_scan *scan)
{
    run(scan);
    return get3(&scan->args.y, 0, 0, 0) + get3(&scan->args.y, 0, 1, 0);
}

/* The derivative of y_1 + y_2 by one input, from both sides. */
static double slope(hard_scan *scan, const rill_tensor *input, const int64_t *at)
{
    const double step = 1e-6, before = view_load(input, at);
    view_store(input, at, before + step);
    double above = sum_of_two(scan);
    view_store(input, at, before - step);
    double below = sum_of_two(scan);
    view_store(input, at, before);
    return (above - below) / (2 * step);
}

/* Row 3: L = 2, loss = y_1 + y_2, its gradients by differences. */
static void slopes(void **unused)
{
    static const int64_t first[RILL_MAX_RANK] = {0}, second[RILL_MAX_RANK] = {0, 1};
    (void)unused;
    hard_scan scan = hard_make(RILL_F64, (hard_sizes){1, 2, 1, 1, 1});
    rill_selective_scan_args *a = &scan.args;
    a->h_init = view_alloc(RILL_F64, 3, (int64_t[]){1, 1, 1});
    assert_true(near(sum_of_two(&scan), 2.5, tolerance_f64));
    assert_true(near(slope(&scan, &a->A, first), 0.5, 1e-8));
    assert_true(near(slope(&scan, &a->delta, first), 1.5, 1e-8));
    assert_true(near(slope(&scan, &a->delta, second), 0.653426410, 1e-8));
    assert_true(near(slope(&scan, &a->x, first), 1.5, 1e-8));
    assert_true(near(slope(&scan, &a->B, first), 1.5, 1e-8));
    assert_true(near(slope(&scan, &a->C, first), 1, 1e-8));
    assert_true(near(slope(&scan, &a->C, second), 1.5, 1e-8));
    assert_true(near(slope(&scan, &a->h_init, first), 0.75, 1e-8));
    free(a->h_init.data);
    hard_free(&scan);
}

/* Row 4: softplus, seen as y of one step. */
static void softplus_values(void **unused)
{
    static const double raw[] = {-6.9072552, -20, 100, 20.5, 19.5, 0, -88, -104};
    (void)unused;
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++) {
        hard_scan scan = hard_make(RILL_F32, (hard_sizes){1, 1, 1, 1, 1});
        scan.args.delta_softplus = true;
        set3(&scan.args.delta, 0, 0, 0, raw[i]);
        double given = get3(&scan.args.delta, 0, 0, 0), right = given > 20 ? given : log1p(exp(given));
        run(&scan);
        double found = get3(&scan.args.y, 0, 0, 0), ulp = ldexp(1, ilogb(right) - 23);
        if (ulp < 0x1p-149) ulp = 0x1p-149;
        if (!(fabs(found - right) <= 4 * ulp)) fail_msg("softplus(%.9g) is %.9g, expected %.9g", given, found, right);
        hard_free(&scan);
    }
}

/* Row 4's own digits. */
static void softplus_digits(void **unused)
{
    (void)unused;
    hard_scan scan = hard_make(RILL_F32, (hard_sizes){1, 1, 3, 1, 1});
    scan.args.delta_softplus = true;
    set3(&scan.args.delta, 0, 0, 0, -6.9072552);
    set3(&scan.args.delta, 0, 0, 1, -20);
    set3(&scan.args.delta, 0, 0, 2, 100);
    run(&scan);
    assert_true(fabs(get3(&scan.args.y, 0, 0, 0) - 1e-3) <= 4 * 0x1p-33);
    assert_true(near(get3(&scan.args.y, 0, 0, 1), 2.06115e-9, 3e-6));
    assert_true(get3(&scan.args.y, 0, 0, 2) == 100);
    hard_free(&scan);
}

static double last_of(rill_context *where, hard_scan *scan, int64_t length)
{
    assert_int_equal(rill_selective_scan(where, &scan->args), RILL_OK);
    return get3(&scan->args.y, 0, length - 1, 0);
}

/* Row 5: A = -1, step 1e-3, L = 20000: a long sum of slow decays, judged as SPEC says. */
static void slow_decay(void **unused)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16};
    static const double tolerances[] = {1e-13, 2e-6, 4e-3, 6e-4};
    const int64_t length = 20000;
    (void)unused;
    rill_context *loop = context_open(RILL_BACKEND_LOOP);
    for (int i = 0; i < 4; i++) {
        hard_scan scan = hard_make(types[i], (hard_sizes){1, length, 1, 1, 1});
        view_fill(&scan.args.A, -1);
        view_fill(&scan.args.delta, 1e-3);
        double step = get3(&scan.args.delta, 0, 0, 0);
        double right = step * expm1(-step * (double)length) / expm1(-step);
        double rounding = fabs(last_of(loop, &scan, length) - right), found = last_of(context, &scan, length);
        assert_true(near(right, 1.0005, types[i] == RILL_F64 || types[i] == RILL_F32 ? 1e-7 : 1e-3));
        if (!(fabs(found - right) <= tolerances[i] * right + 3 * rounding))
            fail_msg("%s: %.9g, expected %.9g", rill_dtype_name(types[i]), found, right);
        hard_free(&scan);
    }
    rill_context_destroy(loop);
}

/* Row 6: A = -16, step .1. */
static void strong_decay(void **unused)
{
    (void)unused;
    hard_scan scan = hard_make(RILL_F64, (hard_sizes){1, 64, 1, 1, 1});
    view_fill(&scan.args.A, -16);
    view_fill(&scan.args.delta, 0.1);
    run(&scan);
    for (int t = 1; t <= 64; t++) check_at(&scan.args.y, 0, t - 1, 0, 0.1 * (1 - exp(-1.6 * t)) / (1 - exp(-1.6)));
    hard_free(&scan);
    scan = hard_make(RILL_F32, (hard_sizes){1, 64, 1, 1, 1});
    view_fill(&scan.args.A, -16);
    view_fill(&scan.args.delta, 0.1);
    run(&scan);
    double step = get3(&scan.args.delta, 0, 0, 0), decay = exp(-16 * step);
    for (int t = 1; t <= 64; t++) check_at(&scan.args.y, 0, t - 1, 0, step * (1 - exp(-16 * step * t)) / (1 - decay));
    hard_free(&scan);
}

/* Row 7: an exponential that underflows is 0, like any number. */
static void huge_step(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_scan scan = hard_make(wide ? RILL_F64 : RILL_F32, (hard_sizes){1, 40, 1, 1, 1});
        view_fill(&scan.args.A, -1);
        view_fill(&scan.args.delta, 1000);
        run(&scan);
        for (int t = 0; t < 40; t++) assert_true(get3(&scan.args.y, 0, t, 0) == 1000);
        hard_free(&scan);
    }
}

/* Row 8: D = 4, G = 2, B = (1, 10); and D = 5, G = 2. */
static void groups(void **unused)
{
    static const double factor[] = {1, 1, 10, 10};
    (void)unused;
    hard_scan scan = hard_make(RILL_F32, (hard_sizes){1, 2, 4, 1, 2});
    for (int t = 0; t < 2; t++) set3(&scan.args.B, 0, t, 1, 10);
    run(&scan);
    for (int d = 0; d < 4; d++) {
        check_at(&scan.args.y, 0, 0, d, factor[d]);
        check_at(&scan.args.y, 0, 1, d, 1.5 * factor[d]);
    }
    hard_free(&scan);
    scan = hard_make(RILL_F32, (hard_sizes){1, 2, 5, 1, 2});
    assert_int_equal(rill_selective_scan(context, &scan.args), RILL_INVALID_SHAPE);
    assert_string_equal(rill_last_error(context), "B: axis 2 is 2, expected a divisor of 5 (channels of x)");
    hard_free(&scan);
}

static void check_all(hard_sizes s)
{
    hard_scan scan = hard_make(RILL_F32, s);
    run(&scan);
    for (int64_t t = 0; t < s.length; t++)
        for (int64_t d = 0; d < s.channels; d++)
            check_at(&scan.args.y, 0, t, d, (double)s.states * (2 - exp2((double)-t)));
    for (int64_t d = 0; d < s.channels; d++)
        for (int64_t n = 0; n < s.states; n++)
            check_at(&scan.args.h_final, 0, d, n, 2 - exp2((double)(1 - s.length)));
    hard_free(&scan);
}

/* Row 9: any number of states and channels: N times the scalar value. */
static void many_states(void **unused)
{
    static const int64_t states[] = {1, 3, 17, 96, 256, 257, 300};
    (void)unused;
    for (int i = 0; i < 7; i++) {
        check_all((hard_sizes){1, 9, 1, states[i], 1});
        check_all((hard_sizes){1, 5, 19, states[i], 1});
    }
    check_all((hard_sizes){1, 3, 70000, 1, 1});
    check_all((hard_sizes){1, 2, 70000, 3, 1});
}

/* Row 10: raw 2 with softplus, limits 0 and .1; where the clamp acts the step size has no slope. */
static void clamped(void **unused)
{
    static const int64_t first[RILL_MAX_RANK] = {0};
    (void)unused;
    hard_scan scan = hard_make(RILL_F64, (hard_sizes){1, 2, 1, 1, 1});
    view_fill(&scan.args.delta, 2);
    scan.args.delta_softplus = true;
    scan.args.delta_max = 0.1;
    run(&scan);
    check_at(&scan.args.y, 0, 0, 0, 0.1);
    check_at(&scan.args.y, 0, 1, 0, 0.1 + 0.1 * exp2(-0.1));
    assert_true(slope(&scan, &scan.args.delta, first) == 0);
    hard_free(&scan);
}

/* Row 11: a step size of 0 leaves the state alone, whatever A is. */
static void infinite_decay(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_scan scan = hard_make(wide ? RILL_F64 : RILL_F32, (hard_sizes){1, 6, 1, 1, 1});
        scan.args.h_init = view_alloc(scan.args.A.dtype, 3, (int64_t[]){1, 1, 1});
        set3(&scan.args.h_init, 0, 0, 0, 3);
        view_fill(&scan.args.A, -INFINITY);
        view_fill(&scan.args.delta, 0);
        run(&scan);
        for (int t = 0; t < 6; t++) assert_true(get3(&scan.args.y, 0, t, 0) == 3);
        view_fill(&scan.args.delta, 1); /* and one of 1 forgets it */
        run(&scan);
        for (int t = 0; t < 6; t++) assert_true(get3(&scan.args.y, 0, t, 0) == 1);
        free(scan.args.h_init.data);
        hard_free(&scan);
    }
}

/*
 * Row 12: states that fade long before a part of a long sequence ends.  The first channel goes on; in the second x
 * stops and only 2^-64 of its states is left 256 steps later, which is then all that there is; in the third comes a
 * NaN.
 */
static void faded(void **unused)
{
    const int64_t length = 8192, channels = 32, states = 16, stop = 3840, poison = 100;
    (void)unused;
    hard_scan scan = hard_make(RILL_F32, (hard_sizes){1, length, channels, states, 1});
    scan.args.delta_softplus = true;
    view_fill(&scan.args.delta, log(expm1(1)));
    view_fill(&scan.args.A, -log(2) / 4);
    for (int64_t t = stop; t < length; t++) set3(&scan.args.x, 0, t, 1, 0);
    set3(&scan.args.x, 0, poison, 2, NAN);
    run(&scan);
    const double step = log1p(exp(get3(&scan.args.delta, 0, 0, 0))), rate = step * get3(&scan.args.A, 0, 0, 0);
    const double whole = (double)states * step / -expm1(rate);
    check_at(&scan.args.y, 0, length - 1, 0, whole);
    check_at(&scan.args.h_final, 0, 0, 0, whole / (double)states);
    for (int64_t t = stop; t < stop + 400; t++)
        assert_true(near(get3(&scan.args.y, 0, t, 1), whole * exp(rate * (double)(t + 1 - stop)), 1e-4));
    for (int64_t t = 0; t < length; t += t < 200 ? 1 : 99) {
        assert_true(isnan(get3(&scan.args.y, 0, t, 2)) == (t >= poison));
        check_at(&scan.args.y, 0, t, 3, get3(&scan.args.y, 0, t, 0));
    }
    assert_true(isnan(get3(&scan.args.h_final, 0, 2, 0)));
    hard_free(&scan);
}

static int run_venue(const venue *where, rill_context *opened)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_in_two),      cmocka_unit_test(packed_with_an_empty_one),
        cmocka_unit_test(slopes),          cmocka_unit_test(softplus_values),
        cmocka_unit_test(softplus_digits), cmocka_unit_test(slow_decay),
        cmocka_unit_test(strong_decay),    cmocka_unit_test(huge_step),
        cmocka_unit_test(groups),          cmocka_unit_test(many_states),
        cmocka_unit_test(clamped),         cmocka_unit_test(infinite_decay),
        cmocka_unit_test(faded),
    };
    context = opened;
    plain_loop = where->backend == RILL_BACKEND_REFERENCE || where->backend == RILL_BACKEND_LOOP;
    return cmocka_run_group_tests_name(where->name, tests, NULL, NULL);
}

int main(int count, char **words)
{
    return venues_main(count, words, run_venue);
}
