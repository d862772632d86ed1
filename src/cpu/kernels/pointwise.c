/* What surrounds the recurrence, element by element: the decay's rates, the step size, the skip and the gate. */
#include <float.h>

#include "functions.h"
#include "table.h"

#define REAL_MAX (RL_REAL_BITS == 32 ? (real)FLT_MAX : (real)DBL_MAX)

void RL_NAME(rl_prepare_A)(void *A_memory, void *bound_memory, int64_t states, bool negate_exp)
{
    vreal *A = A_memory, *bound = bound_memory;
    for (int64_t n = 0; n < states; n += RL_STATE_BLOCK) {
        int64_t end = n + RL_STATE_BLOCK < states ? n + RL_STATE_BLOCK : states;
        vint largest = {0};
        for (int64_t i = n; i < end; i++) {
            vreal a = negate_exp ? -exp_(A[i]) : A[i];
            A[i] = at_most(at_least(a, splat(-REAL_MAX)), splat(REAL_MAX));
            largest = greater_bits(largest, magnitude_bits(A[i]));
        }
        bound[n / RL_STATE_BLOCK] = (vreal)largest;
    }
}

RL_INLINE vreal prepare(const rl_step_rule *rule, vreal delta, bool softplus)
{
    if (rule->bias) delta += *(const vreal *)rule->bias;
    if (softplus) delta = softplus_(delta);
    return at_most(at_least(delta, splat((real)rule->low)), splat((real)rule->high));
}

void RL_NAME(rl_prepare_step)(void *delta_memory, void *input_memory, void *bound, const void *x_memory, int64_t rows,
                              const rl_step_rule *rule)
{
    vreal *delta = delta_memory, *input = input_memory;
    const vreal *x = x_memory;
    vint largest = {0};
    if (rule->softplus)
        for (int64_t t = 0; t < rows; t++) delta[t] = prepare(rule, delta[t], true);
    else
        for (int64_t t = 0; t < rows; t++) delta[t] = prepare(rule, delta[t], false);
    for (int64_t t = 0; t < rows; t++) {
        input[t] = delta[t] * x[t];
        largest = greater_bits(largest, magnitude_bits(delta[t]));
    }
    *(vreal *)bound = (vreal)largest;
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
