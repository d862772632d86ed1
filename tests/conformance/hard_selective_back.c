/*
 * The gradients of the inputs on which selective scans have failed elsewhere (HARD_INPUTS), each with its right
 * value, on every backend and instruction set that has them.  By default one sequence, one channel, one state, one
 * group, A = -ln 2, h_init = 0, all else 1 and the loss the sum of y, so that of L steps
 *
 *     h_t = 2 - 2^(1-t)      G_t = 2 - 2^(t-L)      dx = dB = G      dC = h
 *     ddelta_t = G_t (1 - ln 2 h_{t-1} / 2)      dA = sum of G_t h_{t-1} / 2      dh_init = G_1 / 2
 */
#include "hard_selective_back.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_calls.h"
#include "available.h"
#include "strided.h"
#include "venues.h"

rill_context *context;

const rill_dtype wide_types[2] = {RILL_F32, RILL_F64};

void run_back(const hard_back *back)
{
    rill_status status = rill_selective_scan_backward(context, &back->args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

void check_at(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, double right)
{
    double tolerance = tensor->dtype == RILL_F64 ? 1e-12 : 1e-5;
    double found = get3(tensor, i0, i1, i2);
    if (!near(found, right, tolerance))
        fail_msg("[%d, %d, %d] is %.17g, expected %.17g", (int)i0, (int)i1, (int)i2, found, right);
}

static double h_of(int64_t t)
{
    return t == 0 ? 0 : 2 - exp2((double)(1 - t));
}

static double G_of(int64_t t, int64_t length)
{
    return 2 - exp2((double)(t - length));
}

static double dA_of(int64_t length)
{
    double sum = 0;
    for (int64_t t = 1; t <= length; t++) sum += G_of(t, length) * h_of(t - 1) / 2;
    return sum;
}

/* The steps [start, start + length) of a tensor as a sequence of their own, of `states` equal states. */
static void check_sequence(const rill_selective_scan_backward_args *a, int64_t start, int64_t length, int64_t d,
                           double states)
{
    for (int64_t t = 1; t <= length; t++) {
        double G = G_of(t, length);
        check_at(&a->dx, 0, start + t - 1, d, states * G);
        check_at(&a->ddelta, 0, start + t - 1, d, states * G * (1 - log(2) * h_of(t - 1) / 2));
    }
}

/* Row 1: L = 7 at once, and cut as 3 + 4 with the state and its gradient handed over. */
static void cut_in_two(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++)
        for (int cut = 0; cut < 2; cut++) {
            hard_back back = hard_back_make(wide_types[wide], (hard_sizes){1, 7, 1, 1, 1}), part = back;
            rill_selective_scan_backward_args *p = &part.args;
            rill_tensor *const by_time[] = {&p->x,  &p->delta,  &p->B,  &p->C, &p->dy,
                                            &p->dx, &p->ddelta, &p->dB, &p->dC};
            double dA = 0, dh_init = 0;
            for (int piece = cut; piece >= 0; piece--) {
                part = back;
                for (int i = 0; i < 9 && cut; i++)
                    *by_time[i] = view_narrow(*by_time[i], 1, piece ? 3 : 0, piece ? 4 : 3);
                view_fill(&p->h_init, piece ? 1.75 : 0);
                rill_tensor handed = view_alloc_like(&p->h_init, p->h_init.dtype);
                view_fill(&handed, dh_init);
                if (piece < cut) p->dh_final = handed;
                run_back(&part);
                dA += get3(&p->dA, 0, 0, 0);
                dh_init = get3(&p->dh_init, 0, 0, 0);
                free(handed.data);
            }
            check_sequence(&back.args, 0, 7, 0, 1);
            for (int64_t t = 1; t <= 7; t++) {
                check_at(&back.args.dB, 0, t - 1, 0, G_of(t, 7));
                check_at(&back.args.dC, 0, t - 1, 0, h_of(t));
            }
            assert_true(near(dA, dA_of(7), wide ? 1e-12 : 1e-5));
            assert_true(near(dh_init, G_of(1, 7) / 2, wide ? 1e-12 : 1e-5));
            hard_back_free(&back);
        }
}

/* Row 2: packed lengths 1, 2, 0, 2; the gradient that enters an empty sequence leaves it. */
static void packed_with_an_empty_one(void **unused)
{
    static const int64_t offsets[] = {0, 1, 3, 3, 5}, states[] = {4, 1, 1};
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_back back = hard_back_make(wide_types[wide], (hard_sizes){1, 5, 1, 1, 1});
        rill_selective_scan_backward_args *a = &back.args;
        free(a->h_init.data), free(a->dh_init.data);
        a->h_init = view_alloc(a->A.dtype, 3, states), a->dh_init = view_alloc(a->A.dtype, 3, states);
        a->dh_final = view_alloc(a->A.dtype, 3, states);
        view_fill(&a->h_init, 0), view_fill(&a->dh_init, NAN), view_fill(&a->dh_final, 0);
        set3(&a->dh_final, 2, 0, 0, 7.3);
        a->offsets = rill_tensor_1d(offsets, RILL_I64, 5);
        run_back(&back);
        for (int s = 0; s < 4; s++) {
            int64_t length = offsets[s + 1] - offsets[s];
            check_sequence(a, offsets[s], length, 0, 1);
            if (length > 0) check_at(&a->dh_init, s, 0, 0, G_of(1, length) / 2);
        }
        assert_true(get3(&a->dh_init, 2, 0, 0) == get3(&a->dh_final, 2, 0, 0));
        check_at(&a->dA, 0, 0, 0, 2 * dA_of(2));
        free(a->dh_final.data);
        hard_back_free(&back);
    }
}

/* Row 3: L = 2. */
static void two_steps(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_back back = hard_back_make(wide_types[wide], (hard_sizes){1, 2, 1, 1, 1});
        run_back(&back);
        check_at(&back.args.dA, 0, 0, 0, 0.5);
        check_at(&back.args.ddelta, 0, 0, 0, 1.5);
        check_at(&back.args.ddelta, 0, 1, 0, 1 - log(2) / 2);
        assert_true(near(get3(&back.args.ddelta, 0, 1, 0), 0.653426410, 1e-7));
        check_at(&back.args.dx, 0, 0, 0, 1.5);
        check_at(&back.args.dB, 0, 0, 0, 1.5);
        check_at(&back.args.dC, 0, 0, 0, 1);
        check_at(&back.args.dC, 0, 1, 0, 1.5);
        check_at(&back.args.dh_init, 0, 0, 0, 0.75);
        hard_back_free(&back);
    }
}

/* Rows 5 and 6: slow decays over 20000 steps, and strong ones. */
static void slow_and_strong_decays(void **unused)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16};
    (void)unused;
    for (int i = 0; i < 8; i++) {
        hard_back back = hard_back_make(types[i / 2], (hard_sizes){1, i % 2 ? 64 : 20000, 1, 1, 1});
        view_fill(&back.args.A, i % 2 ? -16 : -1);
        view_fill(&back.args.delta, i % 2 ? 0.1 : 1e-3);
        assert_true(call_agrees(context, op_find("selective_scan_backward"), &back.args, NULL));
        hard_back_free(&back);
    }
}

/* Row 7: an exponential that underflows is 0, and so is what flows through it. */
static void huge_step(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        hard_back back = hard_back_make(wide_types[wide], (hard_sizes){1, 40, 1, 1, 1});
        view_fill(&back.args.A, -1);
        view_fill(&back.args.delta, 1000);
        run_back(&back);
        for (int64_t t = 0; t < 40; t++) {
            assert_true(get3(&back.args.dx, 0, t, 0) == 1000 && get3(&back.args.dB, 0, t, 0) == 1000);
            assert_true(get3(&back.args.dC, 0, t, 0) == 1000 && get3(&back.args.ddelta, 0, t, 0) == 1);
        }
        assert_true(get3(&back.args.dA, 0, 0, 0) == 0 && get3(&back.args.dh_init, 0, 0, 0) == 0);
        hard_back_free(&back);
    }
}

/* Row 8: D = 4, G = 2, B = (1, 10): a group's gradients are its channels' sums. */
static void groups(void **unused)
{
    static const double factor[] = {1, 10};
    (void)unused;
    hard_back back = hard_back_make(RILL_F32, (hard_sizes){1, 2, 4, 1, 2});
    for (int t = 0; t < 2; t++) set3(&back.args.B, 0, t, 1, 10);
    run_back(&back);
    for (int64_t t = 1; t <= 2; t++) {
        for (int d = 0; d < 4; d++) check_at(&back.args.dx, 0, t - 1, d, factor[d / 2] * G_of(t, 2));
        for (int g = 0; g < 2; g++) {
            check_at(&back.args.dB, 0, t - 1, g, 2 * G_of(t, 2));
            check_at(&back.args.dC, 0, t - 1, g, 2 * factor[g] * h_of(t));
        }
    }
    for (int d = 0; d < 4; d++) check_at(&back.args.dA, d, 0, 0, factor[d / 2] * 0.5);
    hard_back_free(&back);
    back = hard_back_make(RILL_F32, (hard_sizes){1, 2, 5, 1, 2});
    assert_int_equal(rill_selective_scan_backward(context, &back.args), RILL_INVALID_SHAPE);
    assert_string_equal(rill_last_error(context), "B: axis 2 is 2, expected a divisor of 5 (channels of x)");
    hard_back_free(&back);
}

static void check_all(hard_sizes s)
{
    hard_back back = hard_back_make(RILL_F32, s);
    run_back(&back);
    for (int64_t d = 0; d < s.channels; d++) check_sequence(&back.args, 0, s.length, d, (double)s.states);
    for (int64_t t = 1; t <= s.length; t++) {
        double channels = (double)s.channels;
        for (int64_t n = 0; n < s.states; n++) {
            const int64_t at[] = {0, t - 1, 0, n};
            assert_true(near(view_load(&back.args.dB, at), channels * G_of(t, s.length), 1e-5));
            assert_true(near(view_load(&back.args.dC, at), channels * h_of(t), 1e-5));
        }
    }
    for (int64_t d = 0; d < s.channels; d++)
        for (int64_t n = 0; n < s.states; n++) check_at(&back.args.dA, d, n, 0, dA_of(s.length));
    hard_back_free(&back);
}

/* Row 9: any number of states and channels. */
static void many_states(void **unused)
{
    static const int64_t states[] = {1, 3, 17, 96, 256, 257, 300};
    (void)unused;
    for (int i = 0; i < 7; i++) {
        check_all((hard_sizes){1, 9, 1, states[i], 1});
        check_all((hard_sizes){1, 5, 19, states[i], 1});
    }
    check_all((hard_sizes){1, 3, 4096, 1, 1});
    hard_back back = hard_back_make(RILL_F32, (hard_sizes){1, 2, 70000, 3, 1});
    assert_true(call_agrees(context, op_find("selective_scan_backward"), &back.args, NULL));
    hard_back_free(&back);
}

static int run_rows(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_in_two),  cmocka_unit_test(packed_with_an_empty_one),
        cmocka_unit_test(two_steps),   cmocka_unit_test(slow_and_strong_decays),
        cmocka_unit_test(huge_step),   cmocka_unit_test(groups),
        cmocka_unit_test(many_states),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

/* -1 where the operators are not there. */
static int run_venue(const venue *where, rill_context *opened)
{
    context = opened;
    bool has = op_available(op_find("selective_scan_backward"), context);
    if (!has) printf("%s: does not have the gradients, not tested\n", where->name);
    if (!has) return -1;
    return run_rows(where->name) + run_edge_tests(where->name) + run_view_tests(where->name) +
           run_walk_tests(where->name);
}

int main(int count, char **words)
{
    return venues_main(count, words, run_venue);
}
