/*
 * The yardstick of linear attention on the cpu: the loop that a careful programmer writes first, a head at a time
 * with its state in memory, vectorised over values by the compiler.  Compiled as the other yardstick beside it.
 */
#include <math.h>
#include <string.h>

#include "rates.h"

#define JOIN2(left, right) left##_##right
#define JOIN(left, right) JOIN2(left, right)

void JOIN(yardstick_linear_attention, BENCH_ISA)(const yardstick_attention *problem);

static void step(const yardstick_attention *p, const float *restrict q, const float *restrict k,
                 const float *restrict v, float gate, float *restrict y, float *restrict state)
{
    const int64_t values = p->values;
    memset(y, 0, (size_t)values * sizeof *y);
    for (int64_t n = 0; n < p->keys; n++) {
        float *restrict S = state + n * values, key = k[n], query = q[n];
#pragma omp simd
        for (int64_t m = 0; m < values; m++) {
            S[m] = gate * S[m] + key * v[m];
            y[m] += query * S[m];
        }
    }
}

void JOIN(yardstick_linear_attention, BENCH_ISA)(const yardstick_attention *problem)
{
    const yardstick_attention *p = problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++) {
            memset(p->state, 0, (size_t)(p->keys * p->values) * sizeof *p->state);
            for (int64_t t = 0; t < p->length; t++) {
                int64_t at = (b * p->length + t) * p->heads + h;
                step(p, p->q + at * p->keys, p->k + at * p->keys, p->v + at * p->values, expf(p->gate[at]),
                     p->y + at * p->values, p->state);
            }
        }
}
