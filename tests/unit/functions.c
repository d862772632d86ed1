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

static vreal exp_any(vreal x)
{
    return exp_(x, 0);
}

static vreal softplus_any(vreal x)
{
    return softplus_(x, 0);
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

/* exp(δ A) of the exact product where the kernels have fma, of the rounded one where they do not. */
static wider decay_right(real delta, real A)
{
#if defined(__FMA__) || defined(__aarch64__)
    real product = delta * A, rest = (real)fma(delta, A, -product);
    wider right = WIDE(exp)((wider)product);
    return isfinite(product) && isfinite(right) ? right + right * (wider)rest : right;
#else
    return WIDE(exp)((wider)(real)(delta * A));
#endif
}

/* Decays, products of a step size and a rate of any magnitudes. */
static bool run_decays(void)
{
    const double limit = 2, range = RL_REAL_BITS == 32 ? 110 : 760;
    double worst = 0, delta_there = 0, A_there = 0;
    real delta[LANES], A[LANES];
    rng r = rng_make(12, 0);
    for (int64_t i = 0; i < 3000000; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            double x = (i + lane) % 2 ? -4 * rng_unit(&r) : (2 * rng_unit(&r) - 1) * range;
            delta[lane] = (real)ldexp(1 + rng_unit(&r), (int)rng_below(&r, 20) - 12);
            A[lane] = (real)(x / (double)delta[lane]);
        }
        vreal found = exp_decay_of(lanes_of(delta), lanes_of(A));
        for (int lane = 0; lane < LANES; lane++) {
            double error = error_of(found[lane], decay_right(delta[lane], A[lane]), 0);
            if (error <= worst) continue;
            worst = error, delta_there = (double)delta[lane], A_there = (double)A[lane];
        }
    }
    printf("exp of decays: %.3f ulp at %.17g times %.17g, limit %g\n", worst, delta_there, A_there, limit);
    return worst <= limit;
}

/* A step size of 0 or a rate of 0 is no decay at all, whatever finite number the other is; NaN stays NaN. */
static bool no_decay(void)
{
    static const double others[] = {0, -0.0, 1, -1, 1e-45, 3e38, -3e38, 1.7e38, 2.4e38};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        real other = (real)others[i];
        vreal A = exp_decay_of(splat(0), splat(other));
        vreal delta = exp_decay_of(splat(other), splat(0));
        vreal top = exp_decay_of(splat(0), splat(-LARGEST));
        vreal all = exp_decay_of(splat(LARGEST), splat(0));
        if (A[0] != 1 || delta[0] != 1 || top[0] != 1 || all[0] != 1) {
            printf("exp of decays: not 1 for 0 times %g\n", others[i]);
            return false;
        }
    }
    vreal step = exp_decay_of(splat((real)NAN), splat(-1));
    vreal rate = exp_decay_of(splat(1), splat((real)NAN));
    vreal product = exp_decay_of(splat((real)INFINITY), splat(0));
    if (isnan(step[0]) && isnan(rate[0]) && isnan(product[0])) return true;
    printf("exp of decays: a NaN is lost\n");
    return false;
}

/* Near the largest number a step size has no rate, yet its product with a tiny A is an ordinary argument. */
static bool large_step(void)
{
    const real delta = (real)0.875 * LARGEST, A = -4 / LARGEST;
    const wider right = WIDE(exp)((wider)delta * (wider)A);
    vreal found = exp_decay_of(splat(delta), splat(A));
    if (WIDE(fabs)((wider)found[0] - right) <= 4 * WIDE(ldexp)(right, -DIGITS + 1)) return true;
    printf("exp of decays: %g for a step size near the largest number, not %g\n", (double)found[0], (double)right);
    return false;
}

static bool same_bits(const char *name, vreal a, vreal b, real x)
{
    if (memcmp(&a, &b, sizeof a) == 0) return true;
    printf("%s: safe and not differ near %.17g\n", name, (double)x);
    return false;
}

/* The short way for arguments that are known to be harmless gives the same bits. */
static bool safe_is_the_same(void)
{
    rng r = rng_make(10, 0);
    real x[LANES], delta[LANES], soft[LANES];
    bool good = true;
    for (int64_t i = 0; i < 1000000 && good; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            x[lane] = (real)((2 * rng_unit(&r) - 1) * EXP_SAFE);
            delta[lane] = (real)rng_unit(&r);
            soft[lane] = (real)((2 * rng_unit(&r) - 1) * SOFTPLUS_SAFE);
        }
        decay_rate rate = decay_rate_of(lanes_of(delta));
        good = same_bits("exp", exp_(lanes_of(x), 1), exp_(lanes_of(x), 0), x[0]) &&
               same_bits("decay", exp_decay(rate, lanes_of(x), 1), exp_decay(rate, lanes_of(x), 0), x[0]) &&
               same_bits("softplus", softplus_(lanes_of(soft), 1), softplus_(lanes_of(soft), 0), soft[0]);
    }
    return good;
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
        {"exp", exp_any, exp_right, 2, false},
        {"softplus", softplus_any, softplus_right, 4, false},
        {"gate", silu_, silu_right, 4, true},
    };
    int failed = 0;
    if (!machine_has_it()) return 77;
    for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) failed += !run_sweep(&sweeps[i]);
    failed += !run_decays() + !no_decay() + !large_step() + !safe_is_the_same();
    return failed != 0;
}
