/* One step of the S6 recurrence for one channel, as SPEC writes it; the two selective operators run it. */
#ifndef RL_REFERENCE_S6_H
#define RL_REFERENCE_S6_H

#include <float.h>

#include "number.h"

static inline real softplus(real value)
{
    return value > 20 ? value : log1p(exp(value));
}

/* NaN passes through. */
static inline real clamp(real value, double low, double high)
{
    if (value < (real)low) return (real)low;
    return value > (real)high ? (real)high : value;
}

/* A in the finite range of the type, so that a step size of 0 leaves the state alone; NaN passes through. */
static inline real finite_range(real value)
{
    const real top =
        sizeof(real) == sizeof(float) ? (real)3.40282346638528859812e38 : (real)1.79769313486231570815e308;
    return value < -top ? -top : value > top ? top : value;
}

static inline real silu(real value)
{
    return value * (1 / (1 + exp(-value)));
}

/* h = exp(δ A) h + δ B x.  Without a state before it (the first step of a sequence that has none) just δ B x. */
static inline real advance(real h, bool has_state, real delta, real A, real B, real x)
{
    real input = delta * B * x;
    return has_state ? exp(delta * A) * h + input : input;
}

#endif
