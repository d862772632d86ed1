/*
 * Compiled once an instruction set (BENCH_ISA names it, BENCH_LANES its floats in a register).  The exponential is
 * exp(x) = 2^k p(r), k the integer nearest to x log2(e), r = x - k ln(2), p of degree 5.
 */
#include "rates.h"

#include <string.h>

#define JOIN2(left, right) left##_##right
#define JOIN(left, right) JOIN2(left, right)
#define NAMED(name) JOIN(name, BENCH_ISA)

typedef float vec __attribute__((vector_size(BENCH_LANES * 4)));
typedef int32_t ints __attribute__((vector_size(BENCH_LANES * 4)));

enum { UNROLL = 8, CHAINS = 10 };

rate_loop NAMED(bench_exponentials), NAMED(bench_state_steps), NAMED(bench_multiply_adds);

static inline vec exponential(vec x)
{
    const float shift = 0x1.8p23f; /* adding it leaves the nearest integer in the last bits */
    vec shifted = x * 0x1.715476p0f + shift, k = shifted - shift;
    vec r = x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
    vec p = r * 0x1.123p-7f + 0x1.5558p-5f;
    p = p * r + 0x1.5555p-3f;
    p = p * r + 0x1.fffffp-2f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    ints bits = (ints)p + ((ints)shifted << 23);
    return (vec)bits;
}

static float sum(const vec *values, int count)
{
    float total = 0.0f;
    for (int i = 0; i < count; i++)
        for (int lane = 0; lane < BENCH_LANES; lane++) total += values[i][lane];
    return total;
}

int64_t NAMED(bench_exponentials)(int64_t rounds, float *sink)
{
    vec x[UNROLL], total[UNROLL] = {0};
    for (int i = 0; i < UNROLL; i++) x[i] = (vec){0} - 0.5f - (float)i;
    for (int64_t round = 0; round < rounds; round++)
        for (int i = 0; i < UNROLL; i++) {
            total[i] += exponential(x[i]);
            x[i] *= 0.99999f; /* never the same twice, or the compiler works it out beforehand */
        }
    *sink = sum(total, UNROLL);
    return rounds * UNROLL * BENCH_LANES;
}

int64_t NAMED(bench_state_steps)(int64_t rounds, float *sink)
{
    vec A[UNROLL], h[UNROLL] = {0}, y = {0}, delta = (vec){0} + 0.01f, input = delta * 0.5f;
    for (int i = 0; i < UNROLL; i++) A[i] = (vec){0} - 1.0f - (float)i;
    for (int64_t round = 0; round < rounds; round++) {
        float b = 1.0f + (float)(round & 3), c = 0.5f - (float)(round & 1);
        for (int i = 0; i < UNROLL; i++) {
            h[i] = exponential(delta * A[i]) * h[i] + input * b;
            y += c * h[i];
        }
        delta += 1e-9f;
    }
    *sink = sum(&y, 1);
    return rounds * UNROLL * BENCH_LANES;
}

int64_t NAMED(bench_multiply_adds)(int64_t rounds, float *sink)
{
    vec total[CHAINS], factor = (vec){0} + 0.999f;
    for (int i = 0; i < CHAINS; i++) total[i] = (vec){0} + (float)i;
    for (int64_t round = 0; round < rounds; round++)
        for (int i = 0; i < CHAINS; i++) total[i] = total[i] * factor + 0.001f;
    *sink = sum(total, CHAINS);
    return rounds * CHAINS * BENCH_LANES;
}
