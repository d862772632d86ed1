/* One step of the S6 recurrence for one channel, backwards; the gradients of the two selective operators run it. */
#ifndef RL_REFERENCE_S6_BACK_H
#define RL_REFERENCE_S6_BACK_H

#include "room.h"
#include "s6.h"

/* A channel's step: what it reads.  A tensor that is not given has its flag false. */
typedef struct channel_step {
    int64_t states;
    const real *A, *B, *C;      /* [states] A in the finite range */
    const real *before, *after; /* [states] the states around the step; before is NULL where there is none */
    real x, delta, D, z, dy;    /* delta as it acts: after bias, softplus and clamp */
    bool has_D, has_z, has_dy;
} channel_step;

/* Its gradients: x, delta and z of this step alone; to the others, [states] but for D, the step adds. */
typedef struct channel_gradients {
    real x, delta, z;
    real *D, *A, *B, *C;
    real *G; /* comes as what the later steps leave to h_t, goes as what reaches the state before */
} channel_gradients;

/* The slope of z σ(z). */
static inline real silu_slope(real value)
{
    real sigma = 1 / (1 + exp(-value));
    return sigma * (1 + value * (1 - sigma));
}

/* Through y = (C h + D x) z σ(z); answers the gradient of the sum in brackets. */
static inline real through_gate(const channel_step *s, channel_gradients *g)
{
    real sum = 0;
    if (!s->has_dy) return 0;
    if (!s->has_z) return s->dy;
    for (int64_t n = 0; n < s->states; n++) sum += s->C[n] * s->after[n];
    if (s->has_D) sum += s->D * s->x;
    g->z = s->dy * sum * silu_slope(s->z);
    return s->dy * silu(s->z);
}

static inline void step_back(const channel_step *s, channel_gradients *g)
{
    real along_B = 0, du;
    g->x = g->delta = g->z = 0;
    du = through_gate(s, g);
    for (int64_t n = 0; n < s->states; n++) {
        real decay = s->before ? exp(s->delta * s->A[n]) : 0, held = s->before ? decay * s->before[n] : 0,
             G = g->G[n];
        if (s->has_dy) {
            G += du * s->C[n];
            g->C[n] += du * s->after[n];
        }
        g->B[n] += G * (s->delta * s->x);
        along_B += G * s->B[n];
        g->delta += G * (s->before ? s->A[n] * held + s->B[n] * s->x : s->B[n] * s->x);
        if (s->before) g->A[n] += G * (s->delta * held);
        g->G[n] = s->before ? decay * G : 0;
    }
    g->x = s->delta * along_B;
    if (!s->has_D || !s->has_dy) return;
    g->x += du * s->D;
    *g->D += du * s->x;
}

/* A step size as it acts, and its slope by what is stored. */
typedef struct step_size {
    real value, slope;
    bool clamped; /* then nothing flows, whatever comes */
} step_size;

/* In the type that the data is accumulated in, so that a wider `real` does not clamp what lies on a limit there. */
static inline bool is_clamped(real value, double low, double high, rill_dtype data)
{
    if (data == RILL_F64) return (double)value < low || (double)value > high;
    return (float)value < (float)low || (float)value > (float)high;
}

static inline step_size step_size_of(real raw, bool has_softplus, double low, double high, rill_dtype data)
{
    real value = has_softplus ? softplus(raw) : raw, slope = 1;
    if (has_softplus && !(raw > 20)) slope = exp(raw) / (1 + exp(raw));
    return (step_size){clamp(value, low, high), slope, is_clamped(value, low, high, data)};
}

static inline real through_step_size(step_size step, real gradient)
{
    return step.clamped ? 0 : step.slope * gradient;
}

static inline bool in_finite_range(real value, rill_dtype data)
{
    return !(fabs(value) > (data == RILL_F64 ? (real)DBL_MAX : (real)FLT_MAX));
}

static inline void clear(real *numbers, int64_t count)
{
    for (int64_t at = 0; at < count; at++) numbers[at] = 0;
}

static inline void copy_numbers(real *to, const real *from, int64_t count)
{
    for (int64_t at = 0; at < count; at++) to[at] = from[at];
}

static inline int64_t longest_sequence(const rill_tensor *offsets, int64_t sequences, int64_t length)
{
    int64_t longest = 0;
    for (int64_t sequence = 0; sequence < sequences; sequence++) {
        span s = sequence_span(offsets, sequence, length);
        if (s.end - s.begin > longest) longest = s.end - s.begin;
    }
    return longest;
}

/* The steps between two states that are kept: the least whose square is no less than the steps. */
static inline int64_t stretch_of(int64_t steps)
{
    int64_t stretch = 1;
    while (stretch * stretch < steps) stretch++;
    return stretch;
}

#endif
