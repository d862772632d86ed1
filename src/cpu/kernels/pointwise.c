/* What surrounds the recurrence, element by element: the decay's rates, the step size, the skip and the gate. */
#include "functions.h"
#include "table.h"

void RL_NAME(rl_prepare_A)(void *A_memory, void *bound_memory, int64_t states, bool negate_exp)
{
    vreal *A = A_memory, *bound = bound_memory;
    for (int64_t n = 0; n < states; n += RL_STATE_BLOCK) {
        int64_t end = n + RL_STATE_BLOCK < states ? n + RL_STATE_BLOCK : states;
        vint largest = {0};
        for (int64_t i = n; i < end; i++) {
            vreal a = negate_exp ? -exp_(A[i], 0) : A[i];
            A[i] = at_most(at_least(a, splat(-REAL_MAX)), splat(REAL_MAX));
            largest = greater_bits(largest, magnitude_bits(A[i]));
        }
        bound[n / RL_STATE_BLOCK] = (vreal)largest;
    }
}

/*
 * A step size goes through passes: in one loop its long chain of dependent operations would leave the machine
 * waiting, in short loops many rows overlap.  The first takes exp(-|value|) as if that were safe (functions.h), and
 * is mended where it was not.
 */
RL_INLINE vint soften(vreal *soft, const vreal *raw, vreal bias, int64_t rows)
{
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) {
        vreal value = raw[t] + bias;
        largest = greater_bits(largest, magnitude_bits(value));
        soft[t] = exp_of_minus(value, true);
    }
    if (!all_at_most((vreal)largest, splat(SOFTPLUS_SAFE)))
        for (int64_t t = 0; t < rows; t++) soft[t] = exp_of_minus(raw[t] + bias, false);
    for (int64_t t = 0; t < rows; t++) soft[t] = softplus_from(raw[t] + bias, soft[t]);
    return largest;
}

RL_INLINE vint largest_of(const vreal *raw, vreal bias, int64_t rows)
{
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) largest = greater_bits(largest, magnitude_bits(raw[t] + bias));
    return largest;
}

void RL_NAME(rl_prepare_step)(const rl_steps *steps, const void *delta_memory, const void *x_memory, int64_t rows,
                              const rl_step_rule *rule)
{
    const vreal *raw = delta_memory, *x = x_memory;
    const vreal low = splat((real)rule->low), high = splat((real)rule->high);
    vreal bias = rule->bias ? *(const vreal *)rule->bias : splat((real)-0.0); /* -0 changes nothing */
    vreal *rate = steps->rate, *rest = steps->rate_rest, *input = steps->input;
    vint largest = rule->softplus ? soften(input, raw, bias, rows) : largest_of(raw, bias, rows);
    const vreal *delta = rule->softplus ? input : raw;
    if (rule->softplus) bias = splat((real)-0.0); /* it is in already */

    /* A step size is at most a little larger than its raw value, or a limit of the clamp. */
    bool large = !all_at_most((vreal)largest, splat(DELTA_LARGE / 2)) || rule->low > (double)DELTA_LARGE ||
                 rule->high < -(double)DELTA_LARGE;
    if (large) { /* rl_recur takes such a tile's δ itself */
        for (int64_t t = 0; t < rows; t++) {
            rate[t] = at_most(at_least(delta[t] + bias, low), high);
            input[t] = rate[t] * x[t];
        }
        *(vreal *)steps->bound = splat(INFINITY);
        return;
    }
    largest = (vint){0};
    for (int64_t t = 0; t < rows; t++) {
        vreal size = at_most(at_least(delta[t] + bias, low), high);
        decay_rate of = decay_rate_of(size);
        input[t] = size * x[t];
        rate[t] = of.upper;
        rest[t] = of.rest;
        largest = greater_bits(largest, magnitude_bits(size));
    }
    *(vreal *)steps->bound = (vreal)largest;
}

void RL_NAME(rl_add)(void *to_memory, const void *from_memory, int64_t rows)
{
    vreal *to = to_memory;
    const vreal *from = from_memory;
    for (int64_t t = 0; t < rows; t++) to[t] += from[t];
}

void RL_NAME(rl_finish)(void *y_memory, const void *x_memory, const void *D, const void *z_memory, int64_t rows)
{
    vreal *y = y_memory;
    const vreal *x = x_memory, *z = z_memory;
    if (D)
        for (int64_t t = 0; t < rows; t++) y[t] = fma_(*(const vreal *)D, x[t], y[t]);
    if (z)
        for (int64_t t = 0; t < rows; t++) y[t] *= silu_(z[t]);
}
