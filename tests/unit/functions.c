/*
 * The cpu kernels' exp, softplus and gate, compiled as the kernels are for one instruction set and type: errors in
 * units of the last place over a sweep of bit patterns, denormals and special values included.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/kernels/functions.h"

#include "rng.h"

#if RL_REAL_BITS == 32
typedef double wider;
#define WIDE(name) name
enum { DIGITS = FLT_MANT_DIG, MIN_EXPONENT = FLT_MIN_EXP };
#define LARGEST FLT_MAX
#else
typedef long double wider;
#define WIDE(name) name##l
enum { DIGITS = DBL_MANT_DIG, MIN_EXPONENT = DBL_MIN_EXP };
#define LARGEST DBL_MAX
#endif

typedef struct sweep {
    const char *name;
    vreal (*function)(vreal);
    wider (*right)(wider);
    double limit;  /* in ulp */
    bool factored; /* the result is x times something that may be subnormal, whose own last place is granted */
} sweep;

static vreal exp_plain(vreal x)
{
    return exp_(x, 0);
}

static vreal exp_of_decays(vreal x)
{
    return exp_decay(decay_rate_of(x), splat(1), 0);
}

static vreal softplus_plain(vreal x)
{
    return softplus_(x, 0);
}

static vreal silu_plain(vreal x)
{
    return silu_(x);
}

static wider exp_right(wider x)
{
    return WIDE(exp)(x);
}

static wider softplus_right(wider x)
{
    return x > 20 ? x : WIDE(log1p)(WIDE(exp)(x));
}

static wider silu_right(wider x)
{
    return x / (1 + WIDE(exp)(-x));
}

/* The distance of adjacent numbers at `value`, subnormal ones too. */
static wider ulp_at(wider value)
{
    int exponent = value == 0 ? MIN_EXPONENT : WIDE(ilogb)(value) + 1;
    if (exponent < MIN_EXPONENT) exponent = MIN_EXPONENT;
    return WIDE(ldexp)(1, exponent - DIGITS);
}

static double error_of(real found, wider right, wider granted)
{
    real rounded = (real)right;
    if (isnan(right) || isnan(found)) return isnan(right) && isnan(found) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(found)) {
        /* Whichever side of the largest number it falls to must be within an ulp of it. */
        if (rounded == found) return 0;
        return isinf(right) ? INFINITY
                            : (double)(fabs((double)(right / LARGEST) - 1) < 4 * (double)ulp_at(1) ? 1 : INFINITY);
    }
    wider unit = ulp_at(right);
    return (double)(WIDE(fabs)((wider)found - right) / (unit > granted ? unit : granted));
}

static vreal lanes_of(const real *values)
{
    return load_any(values);
}

/* The worst of one vector of arguments. */
static void add_errors(const sweep *s, const real *x, double *worst, real *where)
{
    vreal found = s->function(lanes_of(x));
    for (int lane = 0; lane < LANES; lane++) {
        wider granted = s->factored ? WIDE(fabs)((wider)x[lane]) * ulp_at(0) : 0;
        double error = error_of(found[lane], s->right((wider)x[lane]), granted);
        if (!(error <= *worst)) {
            *worst = error;
            *where = x[lane];
        }
    }
}

static real special(int i)
{
    static const double values[] = {0,    -0.0,   1e-45,     -1e-45, 1e-310,  -1e-310, INFINITY,   -INFINITY,
                                    NAN,  88.72,  88.73,     -87.33, -87.34,  -103.97, -103.98,    -104,
                                    -105, 709.78, 709.79,    -708.4, -745.13, -745.14, -746,       -1e30,
                                    1e30, 20,     20.000001, -20,    1,       -1,      0.34657359, -0.34657359};
    return (real)values[i % (int)(sizeof values / sizeof values[0])];
}

/* Arguments of every magnitude, and a dense sweep where the functions are neither 0, 1 nor infinite. */
static real argument(rng *r, int64_t i)
{
    const double range = RL_REAL_BITS == 32 ? 110 : 760;
    if (i < 64) return special((int)i);
    if (i % 4 == 0) return (real)ldexp(2 * rng_unit(r) - 1, (int)rng_below(r, 40) - 32);
    if (i % 4 == 1) return (real)(-rng_unit(r) * 4);
    return (real)((2 * rng_unit(r) - 1) * range);
}

static bool run_sweep(const sweep *s)
{
    double worst = 0;
    real where = 0, x[LANES];
    rng r = rng_make(9, 0);
    for (int64_t i = 0; i < 3000000; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) x[lane] = argument(&r, i + lane);
        add_errors(s, x, &worst, &where);
    }
    printf("%s: %.3f ulp at %.17g, limit %g\n", s->name, worst, (double)where, s->limit);
    return worst <= s->limit;
}

/* The short way for arguments that are known to be harmless gives the same bits. */
static bool safe_is_the_same(void)
{
    rng r = rng_make(10, 0);
    real x[LANES];
    for (int64_t i = 0; i < 1000000; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) x[lane] = (real)((2 * rng_unit(&r) - 1) * EXP_SAFE);
        decay_rate rate = decay_rate_of(lanes_of(x));
        vreal a = exp_decay(rate, splat(1), 1), b = exp_decay(rate, splat(1), 0);
        if (memcmp(&a, &b, sizeof a) == 0) continue;
        printf("exp_decay: safe and not differ near %.17g\n", (double)x[0]);
        return false;
    }
    return true;
}

static bool machine_has_it(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return true;
#endif
}

int main(void)
{
    static const sweep sweeps[] = {
        {"exp", exp_plain, exp_right, 2, false},
        {"exp of decays", exp_of_decays, exp_right, 2, false},
        {"softplus", softplus_plain, softplus_right, 4, false},
        {"gate", silu_plain, silu_right, 4, true},
    };
    int failed = 0;
    if (!machine_has_it()) return 77;
    for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) failed += !run_sweep(&sweeps[i]);
    failed += !safe_is_the_same();
    return failed != 0;
}
