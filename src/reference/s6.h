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

/*
 * A in the finite range of the type that the data is accumulated in (not of `real`, which may be wider), so that a
 * step size of 0 leaves the state alone; NaN passes through.
 */
static inline real finite_range(real value, rill_dtype data)
{
    const real top = data == RILL_F64 ? (real)DBL_MAX : (real)FLT_MAX;
    return value < -top ? -top : value > top ? top : value;
}

/* The state that leaves; where no step was taken it is the one that came, bit for bit: a NaN keeps its payload. */
static inline void hand_on(const rill_tensor *h_final, const rill_tensor *h_init, int64_t sequence, int64_t d,
                           int64_t n, bool stepped, real h)
{
    if (!stepped && h_init->data && h_init->dtype == h_final->dtype)
        memmove(element(h_final, sequence, d, n, 0), element(h_init, sequence, d, n, 0),
                rill_dtype_size(h_final->dtype));
    else
        store(h_final, sequence, d, n, 0, h);
}

static inline real silu(real value)
{
    return value * (1 / (1 + exp(-value)));
}

/* h = exp(δ A) h + (δ x) B.  Without a state before it (the first step of a sequence that has none) just (δ x) B. */
static inline real advance(real h, bool has_state, real delta, real A, real B, real x)
{
    real input = delta * x * B;
    return has_state ? exp(delta * A) * h + input : input;
}

#endif
