/*
 * The inputs on which scans have failed elsewhere (HARD_INPUTS), each with its right value, on every backend and
 * instruction set, forward and through the gradients, in both layouts, whole, cut in two and in small pieces; and
 * long sequences with the hard part where a cut of time may fall.  Rows 13 and 14 are in large_scan.c.
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
#include "measure.h"
#include "rng.h"
#include "scan_runs.h"
#include "strided.h"
#include "venues.h"

/* Steps of one channel, of a few, of many; of some that a GPU shares out over time. */
enum { LONG = 100003, MIDDLE = 20011, SHORT = 2003, SHARED = 8204 };

/* Set for each group of tests. */
static rill_context *context;

static void run(const rill_scan_args *args)
{
    rill_status status = rill_scan(context, args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

static void run_back(const rill_scan_backward_args *args)
{
    rill_status status = rill_scan_backward(context, args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

/* Every row, in this way, both directions; all failures are printed. */
static int run_rows(scan_way way, int64_t length)
{
    int failed = 0, number = 0;
    for (const scan_row *row = scan_rows; row->name; row++, number++) {
        if (op_type_is_complex(way.dtype) && !row->finite) continue;
        if (way.dtype == RILL_BF16 && !row->exact) continue;
        if (way.dtype == RILL_F64 && row->one_call && way.piece) continue;
        way.length = row->length ? row->length : length;
        for (int backward = 0; backward < 2; backward++) {
            way.backward = backward;
            way.reverse = (number + backward + (int)way.channels) % 3 == 0;
            failed += !scan_way_run(context, row, &way);
        }
    }
    return failed;
}

static void whole(void **unused)
{
    int failed = 0;
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        rill_dtype dtype = wide ? RILL_F64 : RILL_F32;
        failed += run_rows((scan_way){.dtype = dtype, .channels = 1}, LONG);
        for (int time_last = 0; time_last < 2; time_last++) {
            failed += run_rows((scan_way){.dtype = dtype, .channels = 3, .time_last = time_last}, MIDDLE);
            failed += run_rows((scan_way){.dtype = dtype, .channels = 40, .time_last = time_last}, SHORT);
        }
    }
    assert_int_equal(failed, 0);
}

static void other_types(void **unused)
{
    static const rill_dtype types[] = {RILL_BF16, RILL_C64, RILL_C128};
    int failed = 0;
    (void)unused;
    for (int i = 0; i < 3; i++) {
        failed += run_rows((scan_way){.dtype = types[i], .channels = 1}, MIDDLE);
        failed += run_rows((scan_way){.dtype = types[i], .channels = 3, .time_last = i % 2}, SHORT);
        failed += run_rows((scan_way){.dtype = types[i], .channels = 40, .time_last = i % 2 == 0}, 600);
    }
    assert_int_equal(failed, 0);
}

static void some_channels(void **unused)
{
    int failed = 0;
    (void)unused;
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 20}, SHARED - 1);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 6, .time_last = true}, SHARED);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 4, .in_place = true, .time_last = true}, SHARED);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 16, .piece = SHARED / 2 + 1}, SHARED);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 36, .in_place = true}, SHARED);
    assert_int_equal(failed, 0);
}

static void in_two(void **unused)
{
    int failed = 0;
    (void)unused;
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 1, .piece = LONG / 2 + 1}, LONG);
    failed += run_rows((scan_way){.dtype = RILL_F64, .channels = 3, .piece = MIDDLE / 2, .time_last = true}, MIDDLE);
    for (int64_t piece = 3; piece < 200; piece = piece * 2 + 1)
        failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 6, .piece = piece}, 400);
    assert_int_equal(failed, 0);
}

static void in_place(void **unused)
{
    int failed = 0;
    (void)unused;
    failed += run_rows((scan_way){.dtype = RILL_F64, .channels = 1, .in_place = true}, MIDDLE);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 1, .in_place = true}, MIDDLE);
    failed += run_rows((scan_way){.dtype = RILL_F64, .channels = 3, .in_place = true}, MIDDLE);
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 40, .in_place = true, .time_last = true}, SHORT);
    assert_int_equal(failed, 0);
}

static void step_by_step(void **unused)
{
    int failed = 0;
    (void)unused;
    failed += run_rows((scan_way){.dtype = RILL_F32, .channels = 1, .piece = 1}, 400);
    failed += run_rows((scan_way){.dtype = RILL_F64, .channels = 3, .piece = 1}, 400);
    failed += run_rows((scan_way){.dtype = RILL_C64, .channels = 40, .piece = 1, .time_last = true}, 60);
    assert_int_equal(failed, 0);
}

/* Row 9: an eighth of a turn a step, and the whole turns of a long sequence. */
static void turns(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++)
        for (int64_t length = 8; length <= 80008; length *= 10001)
            for (int64_t channels = 1; channels <= 3; channels += 2) {
                rill_dtype dtype = wide ? RILL_C128 : RILL_C64;
                rill_tensor a = view_alloc(dtype, 3, (int64_t[]){1, 1, 1}), zero = view_alloc(dtype, 3, a.shape);
                rill_tensor init = view_alloc(dtype, 2, (int64_t[]){1, channels});
                rill_tensor h = view_alloc(dtype, 3, (int64_t[]){1, length, channels});
                rill_tensor turn = view_parts(a), out = view_parts(h);
                view_fill(&init, 1);
                view_store(&turn, (int64_t[]){0, 0, 0, 0}, sqrt(0.5));
                view_store(&turn, (int64_t[]){0, 0, 0, 1}, sqrt(0.5));
                a.shape[1] = zero.shape[1] = length, a.shape[2] = zero.shape[2] = channels;
                memset(a.stride, 0, sizeof a.stride);
                memset(zero.stride, 0, sizeof zero.stride);
                run(&(rill_scan_args){.a = a, .b = zero, .h_init = init, .h = h});
                /* The decay as stored is off the circle, and from its angle, by half a unit in the last place. */
                double close = (wide ? 4e-16 : 2e-7) * (double)length;
                for (int64_t t = 7; t < length; t += 8)
                    for (int64_t d = 0; d < channels; d++) {
                        double re = view_load(&out, (int64_t[]){0, t, d, 0});
                        double im = view_load(&out, (int64_t[]){0, t, d, 1});
                        if (!(fabs(re - 1) <= close && fabs(im) <= close))
                            fail_msg("h_%lld is %.9g + %.9g i", (long long)t + 1, re, im);
                    }
                free(a.data), free(zero.data), free(init.data), free(h.data);
            }
}

typedef struct three_steps {
    rill_tensor a, b, h, h_init, dh, da, db, dh_init, carry;
} three_steps;

static void put3(const rill_tensor *tensor, const double *values, bool reverse)
{
    for (int t = 0; t < 3; t++) set3(tensor, 0, reverse ? 2 - t : t, 0, values[t]);
}

static void check3(const char *name, const rill_tensor *tensor, const double *right, bool reverse, double tolerance)
{
    for (int t = 0; t < 3; t++) {
        double found = get3(tensor, 0, reverse ? 2 - t : t, 0);
        if (!near(found, right[t], tolerance)) fail_msg("%s_%d is %.9g, expected %.9g", name, t + 1, found, right[t]);
    }
}

static three_steps make_three(rill_dtype dtype, double init, bool reverse)
{
    int64_t shape[] = {1, 3, 1};
    rill_dtype wide = op_default_type(OP_STATE, dtype);
    three_steps s = {.a = view_alloc(dtype, 3, shape), .b = view_alloc(dtype, 3, shape)};
    s.h = view_alloc(dtype, 3, shape), s.dh = view_alloc(dtype, 3, shape);
    s.da = view_alloc(dtype, 3, shape), s.db = view_alloc(dtype, 3, shape);
    s.h_init = view_alloc(wide, 2, shape), s.dh_init = view_alloc(wide, 2, (int64_t[]){1, 1});
    s.carry = view_alloc(wide, 2, (int64_t[]){1, 1});
    s.h_init.shape[1] = 1;
    put3(&s.a, (const double[]){0.5, 0.25, 0.8}, reverse);
    put3(&s.b, (const double[]){1, 2, 3}, reverse);
    view_fill(&s.dh, 1);
    set3(&s.h_init, 0, 0, 0, init);
    return s;
}

static void free_three(three_steps *s)
{
    rill_tensor *all[] = {&s->a, &s->b, &s->h, &s->h_init, &s->dh, &s->da, &s->db, &s->dh_init, &s->carry};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]->data);
}

/* The gradients in pieces of the last `count` steps first, h_init of a later piece being h one step before. */
static void three_back(three_steps *s, int64_t piece, bool reverse)
{
    for (int64_t end = 3; end > 0; end -= piece) {
        int64_t begin = end > piece ? end - piece : 0, count = end - begin, at = reverse ? 3 - end : begin;
        rill_scan_backward_args args = {.reverse = reverse, .h_init = s->h_init, .dh_init = s->dh_init};
        args.a = view_narrow(s->a, 1, at, count), args.h = view_narrow(s->h, 1, at, count);
        args.dh = view_narrow(s->dh, 1, at, count);
        args.da = view_narrow(s->da, 1, at, count), args.db = view_narrow(s->db, 1, at, count);
        if (begin > 0) {
            rill_tensor before = view_narrow(s->h, 1, reverse ? at + count : at - 1, 1);
            args.h_init = rill_tensor_2d(before.data, before.dtype, 1, 1);
        }
        if (end < 3) args.dh_final = s->carry;
        run_back(&args);
        rill_tensor swap = s->carry;
        s->carry = s->dh_init;
        s->dh_init = swap;
    }
}

/* Row 10: the gradients by hand, also in pieces and reversed. */
static void gradients(void **unused)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16, RILL_C64, RILL_C128};
    (void)unused;
    for (int i = 0; i < 6; i++)
        for (int variant = 0; variant < 12; variant++) {
            bool reverse = variant % 2;
            double init = variant / 2 % 2 ? 2 : 0, tolerance = measure_tolerance(types[i], true);
            double first = 1 + init / 2, second = 2 + first / 4;
            three_steps s = make_three(types[i], init, reverse);
            run(&(rill_scan_args){.a = s.a, .b = s.b, .h_init = s.h_init, .h = s.h, .reverse = reverse});
            check3("h", &s.h, (const double[]){first, second, 3 + 0.8 * second}, reverse, tolerance);
            three_back(&s, 1 + variant / 4, reverse);
            check3("db", &s.db, (const double[]){1.45, 1.8, 1}, reverse, tolerance);
            check3("da", &s.da, (const double[]){1.45 * init, 1.8 * first, second}, reverse, tolerance);
            assert_true(near(get3(&s.carry, 0, 0, 0), 0.725, tolerance));
            free_three(&s);
        }
}

/* Row 3 seen by the gradients: nothing flows past a reset, and its decay has no gradient where it drops no number. */
static void gradient_of_a_reset(void **unused)
{
    static const double dropped[] = {INFINITY, -INFINITY, NAN, 5};
    (void)unused;
    for (int i = 0; i < 8; i++) {
        three_steps s = make_three(i % 2 ? RILL_F64 : RILL_F32, 7, false);
        put3(&s.a, (const double[]){0.5, 0, 0.5}, false);
        put3(&s.h, (const double[]){dropped[i / 2], 2, 4}, false);
        put3(&s.dh, (const double[]){1, NAN, 1}, false);
        three_back(&s, 3, false);
        assert_true(get3(&s.db, 0, 0, 0) == 1 && isnan(get3(&s.db, 0, 1, 0)) && get3(&s.db, 0, 2, 0) == 1);
        assert_true(get3(&s.da, 0, 0, 0) == 7 && get3(&s.da, 0, 2, 0) == 2);
        double decay = get3(&s.da, 0, 1, 0);
        assert_true(i / 2 == 3 ? isnan(decay) : decay == 0);
        assert_true(get3(&s.carry, 0, 0, 0) == 0.5);
        free_three(&s);
    }
}

/* Row 11: offsets 0, 0, 5, 5, 9. */
static void packed(void **unused)
{
    static const int64_t offsets[] = {0, 0, 5, 5, 9};
    static const double right[] = {1, 2, 3, 4, 5, 1, 2, 3, 4}, back[] = {5, 4, 3, 2, 1, 4, 3, 2, 1};
    static const double finals[] = {7.3, 5, -0.0, 4};
    (void)unused;
    for (int i = 0; i < 12; i++) {
        rill_dtype dtype = (const rill_dtype[]){RILL_F64, RILL_F32, RILL_C64}[i / 4];
        bool reverse = i % 2, given = i / 2 % 2;
        rill_tensor ones = view_alloc(dtype, 3, (int64_t[]){1, 9, 1}), h = view_alloc(dtype, 3, ones.shape);
        rill_tensor init = view_alloc(dtype, 2, (int64_t[]){4, 1}), final = view_alloc(dtype, 2, init.shape);
        view_fill(&ones, 1);
        set3(&init, 0, 0, 0, 7.3);
        set3(&init, 2, 0, 0, -0.0);
        rill_scan_args args = {.a = ones, .b = ones, .h = h, .h_final = final, .reverse = reverse};
        args.offsets = rill_tensor_1d(offsets, RILL_I64, 5);
        if (given) args.h_init = init;
        run(&args);
        for (int t = 0; t < 9; t++) assert_true(get3(&h, 0, t, 0) == (reverse ? back : right)[t]);
        for (int s = 0; s < 4; s++)
            assert_true(get3(&final, s, 0, 0) == (s % 2 || given ? s % 2 ? finals[s] : get3(&init, s, 0, 0) : 0));
        rill_scan_backward_args gradients = {.a = ones, .h = h, .dh = ones, .db = h, .reverse = reverse};
        gradients.h = (rill_tensor){0};
        gradients.offsets = args.offsets;
        gradients.h_init = gradients.dh_final = init;
        gradients.dh_init = final;
        run_back(&gradients);
        for (int t = 0; t < 9; t++) assert_true(get3(&h, 0, t, 0) == (reverse ? right : back)[t]);
        for (int s = 0; s < 4; s++) assert_true(get3(&final, s, 0, 0) == (s % 2 ? finals[s] : get3(&init, s, 0, 0)));
        assert_true(signbit(get3(&final, 2, 0, 0)));
        free(ones.data), free(h.data), free(init.data), free(final.data);
    }
}

/* The decay of a first step is not read without a state. */
static void unread_decay(void **unused)
{
    (void)unused;
    for (int64_t length = 1; length <= 40001; length *= 200)
        for (int reverse = 0; reverse < 2; reverse++) {
            rill_tensor a = view_alloc(RILL_F32, 3, (int64_t[]){1, length, 1}), b = view_alloc(RILL_F32, 3, a.shape);
            int64_t first = reverse ? length - 1 : 0;
            view_fill(&a, 0.5);
            view_fill(&b, 1);
            set3(&a, 0, first, 0, NAN);
            rill_tensor h = view_alloc(RILL_F32, 3, a.shape), da = view_alloc(RILL_F32, 3, a.shape);
            run(&(rill_scan_args){.a = a, .b = b, .h = h, .reverse = reverse});
            for (int64_t t = 0; t < length; t++)
                assert_true(near(get3(&h, 0, reverse ? length - 1 - t : t, 0), 2 - exp2((double)-t), 2e-6));
            run_back(&(rill_scan_backward_args){.a = a, .h = b, .dh = b, .da = da, .db = h, .reverse = reverse});
            for (int64_t t = 0; t < length; t++) {
                double right = 2 - exp2((double)-t);
                assert_true(near(get3(&h, 0, reverse ? t : length - 1 - t, 0), right, 1e-5));
                assert_true(near(get3(&da, 0, reverse ? t : length - 1 - t, 0), t == length - 1 ? 0 : right, 1e-5));
            }
            free(a.data), free(b.data), free(h.data), free(da.data);
        }
}

static int run_venue(const venue *where, rill_context *opened)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),        cmocka_unit_test(other_types),         cmocka_unit_test(in_two),
        cmocka_unit_test(in_place),     cmocka_unit_test(step_by_step),        cmocka_unit_test(turns),
        cmocka_unit_test(gradients),    cmocka_unit_test(gradient_of_a_reset), cmocka_unit_test(packed),
        cmocka_unit_test(unread_decay), cmocka_unit_test(some_channels),
    };
    context = opened;
    return cmocka_run_group_tests_name(where->name, tests, NULL, NULL);
}

int main(int count, char **words)
{
    return venues_main(count, words, run_venue);
}
