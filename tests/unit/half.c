/* The 16-bit conversions: every pattern there and back, and rounding against exact arithmetic in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "half.h"

/* The value of a 16-bit pattern, from its fields. */
static double decode(uint16_t half, int exponent_bits, int fraction_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (half & 0x7fff) >> fraction_bits;
    int fraction = half & ((1 << fraction_bits) - 1);
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias);
}

static void check_pattern(uint16_t half, float found, double right, uint16_t back)
{
    if (isnan(right)) {
        assert_true(isnan(found));
        assert_true((back & 0x8000) == (half & 0x8000));
    } else {
        assert_true((double)found == right && !signbit(found) == !signbit(right));
        assert_int_equal(back, half);
    }
}

static void every_pattern(void **unused)
{
    (void)unused;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits;
        float bf16 = rl_float_from_bf16(half), f16 = rl_float_from_f16(half);
        check_pattern(half, bf16, decode(half, 8, 7), rl_bf16_from_float(bf16));
        check_pattern(half, f16, decode(half, 5, 10), rl_f16_from_float(f16));
    }
}

/* Between each pattern and the next: just below the middle, the middle, just above it. */
static void check_between(uint16_t low, int exponent_bits, int fraction_bits, uint16_t round(float))
{
    double a = decode(low, exponent_bits, fraction_bits),
           b = decode((uint16_t)(low + 1), exponent_bits, fraction_bits);
    if (isinf(b)) b = ldexp(1, 1 << (exponent_bits - 1)); /* where the next number would be */
    double middle = (a + b) / 2;
    float at = (float)middle;
    uint16_t even = low & 1 ? (uint16_t)(low + 1) : low;
    if ((double)at != middle) return; /* between bf16's own smallest subnormals */
    assert_int_equal(round(at), even);
    assert_int_equal(round(nextafterf(at, 0)), low);
    assert_int_equal(round(nextafterf(at, INFINITY)), low + 1);
    assert_int_equal(round(-at), even | 0x8000);
    assert_int_equal(round(-nextafterf(at, INFINITY)), (low + 1) | 0x8000);
}

static void every_middle(void **unused)
{
    (void)unused;
    for (uint16_t low = 0; low < 0x7f80; low++) check_between(low, 8, 7, rl_bf16_from_float);
    for (uint16_t low = 0; low < 0x7c00; low++) check_between(low, 5, 10, rl_f16_from_float);
}

static void edges(void **unused)
{
    (void)unused;
    assert_int_equal(rl_f16_from_float(65519.996f), 0x7bff);
    assert_int_equal(rl_f16_from_float(65520), 0x7c00);
    assert_int_equal(rl_f16_from_float(1e30f), 0x7c00);
    assert_int_equal(rl_f16_from_float(-INFINITY), 0xfc00);
    assert_int_equal(rl_f16_from_float(0x1p-25f), 0);
    assert_int_equal(rl_f16_from_float(0x1.000002p-25f), 1);
    assert_int_equal(rl_f16_from_float(0x1p-149f), 0);
    assert_int_equal(rl_f16_from_float(-0.0f), 0x8000);
    assert_int_equal(rl_bf16_from_float(3.4e38f), 0x7f80);
    assert_int_equal(rl_bf16_from_float(INFINITY), 0x7f80);
    assert_int_equal(rl_bf16_from_float(rl_float_from_bits(0x7f800001)), 0x7fc0); /* a signalling NaN */
    assert_int_equal(rl_bf16_from_float(rl_float_from_bits(0xffffffff)), 0xffff);
    assert_true(isnan(rl_float_from_f16(rl_f16_from_float(rl_float_from_bits(0x7f800001)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern),
        cmocka_unit_test(every_middle),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
