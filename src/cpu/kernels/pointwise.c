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
 * A step size goes through two passes: in one loop its long chain of dependent operations would leave the machine
 * waiting, in short loops many rows overlap.  The first takes exp(-|value|) as if that were safe (functions.h), and
 * is mended where it was not.
 */
RL_INLINE vint soften(vreal *soft, vreal *value, rl_rows delta, vreal bias, int64_t rows, rl_rows ahead)
{
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) {
        fetch_row(ahead, t);
        value[t] = row_of(delta, t) + bias;
        largest = greater_bits(largest, magnitude_bits(value[t]));
        soft[t] = exp_of_minus(value[t], true);
    }
    if (!all_at_most((vreal)largest, splat(SOFTPLUS_SAFE)))
        for (int64_t t = 0; t < rows; t++) soft[t] = exp_of_minus(value[t], false);
    return largest;
}

RL_INLINE vint add_bias(vreal *value, rl_rows delta, vreal bias, int64_t rows, rl_rows ahead)
{
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) {
        fetch_row(ahead, t);
        value[t] = row_of(delta, t) + bias;
        largest = greater_bits(largest, magnitude_bits(value[t]));
    }
    return largest;
}

/* The second pass; steps->input holds exp(-|value|) where there is a softplus. */
RL_INLINE void rate_steps(const rl_steps *steps, rl_rows x, int64_t rows, const rl_step_rule *rule, bool softplus,
                          rl_rows one, rl_rows other)
{
    const vreal low = splat((real)rule->low), high = splat((real)rule->high);
    vreal *rate = steps->rate, *rest = steps->rate_rest, *input = steps->input;
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) {
        fetch_row(one, t);
        fetch_row(other, t);
        vreal size = softplus ? softplus_from(rate[t], input[t]) : rate[t];
        vreal clamped = at_most(at_least(size, low), high);
        decay_rate of = decay_rate_of(clamped);
        input[t] = clamped * row_of(x, t);
        rate[t] = of.upper;
        rest[t] = of.rest;
        largest = greater_bits(largest, magnitude_bits(clamped));
    }
    *(vreal *)steps->bound = (vreal)largest;
}

/* The same where rl_recur must take a tile's δ itself. */
static void pass_on(const rl_steps *steps, rl_rows x, int64_t rows, const rl_step_rule *rule)
{
    const vreal low = splat((real)rule->low), high = splat((real)rule->high);
    vreal *rate = steps->rate, *input = steps->input;
    for (int64_t t = 0; t < rows; t++) {
        vreal size = rule->softplus ? softplus_from(rate[t], input[t]) : rate[t];
        rate[t] = at_most(at_least(size, low), high);
        input[t] = rate[t] * row_of(x, t);
    }
    *(vreal *)steps->bound = splat(INFINITY);
}

void RL_NAME(rl_prepare_step)(const rl_steps *steps, rl_rows delta, rl_rows x, int64_t rows, const rl_step_rule *rule)
{
    vreal bias = rule->bias ? *(const vreal *)rule->bias : splat((real)-0.0); /* -0 changes nothing */
    rl_rows ahead[RL_STEP_FETCHES];
    for (int i = 0; i < RL_STEP_FETCHES; i++) ahead[i] = fetch_of(rule->ahead ? rule->ahead + i : NULL, steps->rate);
    vint largest = rule->softplus ? soften(steps->input, steps->rate, delta, bias, rows, ahead[0])
                                  : add_bias(steps->rate, delta, bias, rows, ahead[0]);

    /* A step size is at most a little larger than its raw value, or a limit of the clamp. */
    if (!all_at_most((vreal)largest, splat(DELTA_LARGE / 2)) || rule->low > (double)DELTA_LARGE ||
        rule->high < -(double)DELTA_LARGE)
        pass_on(steps, x, rows, rule);
    else if (rule->softplus)
        rate_steps(steps, x, rows, rule, true, ahead[1], ahead[2]);
    else
        rate_steps(steps, x, rows, rule, false, ahead[1], ahead[2]);
}

void RL_NAME(rl_add)(void *to_memory, const void *from_memory, int64_t rows)
{
    vreal *to = to_memory;
    const vreal *from = from_memory;
    for (int64_t t = 0; t < rows; t++) to[t] += from[t];
}

void RL_NAME(rl_finish)(rl_rows to, const void *sum_memory, rl_rows x, const void *D, rl_rows z, int64_t rows)
{
    const vreal *sum = sum_memory, skip = D ? *(const vreal *)D : splat(0);
    for (int64_t t = 0; t < rows; t++) {
        vreal y = D ? fma_(skip, row_of(x, t), sum[t]) : sum[t];
        if (z.data) y *= silu_(row_of(z, t));
        store_any(to.data + t * to.step, y);
    }
}
