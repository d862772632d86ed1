/*
 * Long sequences on the cpu, whose time is cut into tiles and pieces: inputs on which products of decays overflow,
 * vanish or cancel while the states do not, in every instruction set, with bits that do not depend on threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rill/rill.h>

enum { LENGTH = 70001, MOST_CHANNELS = 3 };

static double a[LENGTH * MOST_CHANNELS], b[LENGTH * MOST_CHANNELS], h[LENGTH * MOST_CHANNELS],
    other[LENGTH * MOST_CHANNELS];

static const int thread_counts[] = {1, 2, 3, 16, 64};

static rill_context *open_cpu(int threads, rill_isa isa, bool reproducible)
{
    rill_context *context = NULL;
    rill_options options = {
        .backend = RILL_BACKEND_CPU, .threads = threads, .isa = isa, .reproducible = reproducible};
    return rill_context_create(&options, &context) == RILL_OK ? context : NULL;
}

static rill_context *open_loop(void)
{
    rill_context *context = NULL;
    assert_int_equal(rill_context_create(&(rill_options){.backend = RILL_BACKEND_LOOP}, &context), RILL_OK);
    return context;
}

static void run(rill_context *context, int64_t channels, double start, double *to)
{
    double init[MOST_CHANNELS] = {start, start, start};
    rill_scan_args args = {.a = rill_tensor_3d(a, RILL_F64, 1, LENGTH, channels),
                           .b = rill_tensor_3d(b, RILL_F64, 1, LENGTH, channels),
                           .h_init = rill_tensor_2d(init, RILL_F64, 1, channels),
                           .h = rill_tensor_3d(to, RILL_F64, 1, LENGTH, channels)};
    assert_int_equal(rill_scan(context, &args), RILL_OK);
}

/* h of these decays and inputs, the same in all channels, is the loop's to the last bit; all states are exact. */
static void expect_loop(double start)
{
    for (int64_t channels = 1; channels <= MOST_CHANNELS; channels += 2) {
        for (int64_t i = LENGTH * channels - 1; i >= 0; i--) a[i] = a[i / channels], b[i] = b[i / channels];
        rill_context *loop = open_loop();
        run(loop, channels, start, other);
        rill_context_destroy(loop);
        for (int isa = RILL_ISA_BASELINE; isa <= RILL_ISA_AVX512; isa++)
            for (int threads = 1; threads <= 3; threads++) {
                rill_context *context = open_cpu(threads, (rill_isa)isa, threads == 3);
                if (!context) continue; /* a machine without this instruction set */
                run(context, channels, start, h);
                rill_context_destroy(context);
                for (int64_t i = 0; i < LENGTH * channels; i++)
                    if (isnan(other[i]))
                        assert_true(isnan(h[i]));
                    else
                        assert_true(h[i] == other[i]);
            }
        for (int64_t i = 0; i < LENGTH; i++) a[i] = a[i * channels], b[i] = b[i * channels];
    }
}

static void fill(double decay, double input)
{
    for (int64_t i = 0; i < LENGTH; i++) a[i] = decay, b[i] = input;
}

/* a = 2, b = -1 from 1: the state stays 1 while products grow without bound. */
static void growth_that_cancels(void **state)
{
    (void)state;
    fill(2, -1);
    expect_loop(1);
    assert_true(h[LENGTH * MOST_CHANNELS - 1] == 1);
}

/* Products vanish far below the normal range, and come back; the states of the last run are powers of two. */
static void down_and_up(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i / 1000 % 2 ? 2 : 0.5, b[i] = 0;
    expect_loop(1);
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i % 2000 < 1000 ? 0x1p40 : 0x1p-40, b[i] = i == 1000 ? 0x1p100 : 0;
    expect_loop(0);
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i % 40 < 20 ? 0x1p-60 : 0x1p60, b[i] = 0;
    expect_loop(0x1p500);
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i % 40 < 20 ? 0x1p60 : 0x1p-60, b[i] = 0;
    expect_loop(0x1p-500);
}

static void signs(void **state)
{
    (void)state;
    fill(-1, 0);
    expect_loop(1);
    assert_true(h[LENGTH * MOST_CHANNELS - 1] == -1);
}

/* Infinities and NaN reach as far as the next decay of 0, and no farther. */
static void resets(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i % 777 == 500 ? 0 : 1, b[i] = i % 777 == 100 ? INFINITY : 1;
    expect_loop(0);
    for (int64_t i = 0; i < LENGTH; i++) b[i] = i % 3000 == 2500 ? NAN : 1;
    expect_loop(INFINITY);
    for (int64_t i = 0; i < LENGTH; i++) a[i] = i % 5000 == 4000 ? INFINITY : i % 5000 == 4900 ? 0 : 0.5, b[i] = 0;
    expect_loop(0);
}

/* Random decays around 1: threads do not show in the bits, and with `reproducible` the batch does not either. */
static void same_bits(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int64_t i = 0; i < LENGTH * MOST_CHANNELS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        a[i] = 0.9 + (double)(random >> 40) * 0x1p-24 * 0.2;
        b[i] = (double)(random >> 20 & 0xfffff) * 0x1p-20 - 0.5;
    }
    for (int64_t channels = 1; channels <= MOST_CHANNELS; channels += 2)
        for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
            rill_context *context = open_cpu(thread_counts[i], RILL_ISA_AUTO, true);
            assert_non_null(context);
            run(context, channels, 1, i ? h : other);
            rill_context_destroy(context);
            if (i) assert_memory_equal(h, other, sizeof(double) * LENGTH * (size_t)channels);
        }
    rill_context *context = open_cpu(2, RILL_ISA_AUTO, true);
    rill_scan_args args = {.a = rill_tensor_3d(a, RILL_F64, MOST_CHANNELS, LENGTH, 1),
                           .b = rill_tensor_3d(b, RILL_F64, MOST_CHANNELS, LENGTH, 1),
                           .h = rill_tensor_3d(h, RILL_F64, MOST_CHANNELS, LENGTH, 1)};
    assert_int_equal(rill_scan(context, &args), RILL_OK);
    args.a = rill_tensor_3d(a + LENGTH, RILL_F64, 1, LENGTH, 1);
    args.b = rill_tensor_3d(b + LENGTH, RILL_F64, 1, LENGTH, 1);
    args.h = rill_tensor_3d(other, RILL_F64, 1, LENGTH, 1);
    assert_int_equal(rill_scan(context, &args), RILL_OK);
    rill_context_destroy(context);
    assert_memory_equal(h + LENGTH, other, sizeof(double) * LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_that_cancels),
        cmocka_unit_test(down_and_up),
        cmocka_unit_test(signs),
        cmocka_unit_test(resets),
        cmocka_unit_test(same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
