/*
 * The yardstick of the selective scan on the cpu: the loop that a careful programmer writes first, vectorised over
 * channels by the compiler, with the vector exponential of the C library.  Compiled once an instruction set, with
 * -ffast-math, which is what makes the compiler call that exponential.
 */
#include <math.h>
#include <string.h>

#include "rates.h"

#define JOIN2(left, right) left##_##right
#define JOIN(left, right) JOIN2(left, right)

void JOIN(yardstick_selective_scan, BENCH_ISA)(const yardstick_scan *problem);

static void step(const yardstick_scan *p, const float *restrict x, const float *restrict delta,
                 const float *restrict B, const float *restrict C, float *restrict y, float *restrict h,
                 float *restrict size, float *restrict input)
{
#pragma omp simd
    for (int64_t d = 0; d < p->channels; d++) {
        float raw = delta[d] + p->delta_bias[d], soft = log1pf(expf(raw));
        size[d] = raw > 20.0f ? raw : soft;
        input[d] = size[d] * x[d];
        y[d] = p->D[d] * x[d];
    }
    for (int64_t n = 0; n < p->states; n++) {
        const float *restrict A = p->A + n * p->channels;
        float *restrict state = h + n * p->channels, b = B[n], c = C[n];
#pragma omp simd
        for (int64_t d = 0; d < p->channels; d++) {
            state[d] = expf(size[d] * A[d]) * state[d] + input[d] * b;
            y[d] += c * state[d];
        }
    }
}

void JOIN(yardstick_selective_scan, BENCH_ISA)(const yardstick_scan *problem)
{
    int64_t channels = problem->channels, states = problem->states;
    float *size = problem->room, *input = size + channels, *h = input + channels;
    for (int64_t b = 0; b < problem->batch; b++) {
        memset(h, 0, (size_t)(states * channels) * sizeof *h);
        for (int64_t t = 0; t < problem->length; t++) {
            int64_t row = b * problem->length + t;
            step(problem, problem->x + row * channels, problem->delta + row * channels, problem->B + row * states,
                 problem->C + row * states, problem->y + row * channels, h, size, input);
        }
    }
}
