/*
 * What a selective scan's softplus and exponentials alone cost the cpu backend: its own functions, on step sizes
 * where they lie, with nothing of the recurrence but a sum that keeps them from being optimised away.  Compiled once
 * an instruction set, as the backend's kernels are.
 */
#include <stdbool.h>

#include "../../src/cpu/kernels/functions.h"
#include "rates.h"

#define JOIN2(left, right) left##_##right
#define JOIN(left, right) JOIN2(left, right)

void JOIN(yardstick_functions, BENCH_ISA)(const yardstick_scan *problem);

/* The decays of a vector's step, added up. */
RL_INLINE vreal sum_decays(const yardstick_scan *p, int64_t channel, vreal delta)
{
    const decay_rate rate = decay_rate_of(softplus_(delta + load_any(p->delta_bias + channel), true));
    vreal sum = splat(0);
    for (int64_t n = 0; n < p->states; n++) sum += exp_decay(rate, load_any(p->A + n * p->channels + channel), true);
    return sum;
}

void JOIN(yardstick_functions, BENCH_ISA)(const yardstick_scan *problem)
{
    const int64_t channels = problem->channels, whole = channels / LANES * LANES;
    for (int64_t row = 0; row < problem->batch * problem->length; row++) {
        const float *delta = problem->delta + row * channels;
        float *y = problem->y + row * channels;
        for (int64_t d = 0; d < whole; d += LANES) store_any(y + d, sum_decays(problem, d, load_any(delta + d)));
    }
}
