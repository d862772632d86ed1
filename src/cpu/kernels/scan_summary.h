/* The summary of rows, as it grows row by row: see scan_summary.c. */
#ifndef RL_CPU_SCAN_SUMMARY_H
#define RL_CPU_SCAN_SUMMARY_H

#include "scan.h"
#include "scan_step.h"
#include "table.h"

#if RL_REAL_BITS == 64

/* At most the number's magnitude where it counts, that of its larger part. */
RL_INLINE vreal magnitude(vreal x, bool is_complex)
{
    vreal size = (vreal)magnitude_bits(x);
    if (!is_complex) return size;
    vreal other = __builtin_shufflevector(size, size, SWAPPED_PARTS);
    return if_greater(size, other, size, other);
}

typedef struct running {
    vreal decay, fresh, least;
} running;

RL_INLINE running start_summary(double decay_scale, bool is_complex)
{
    running r = {.decay = splat(decay_scale), .least = splat(decay_scale)};
    if (is_complex)
        for (int lane = 1; lane < LANES; lane += 2) r.decay[lane] = 0;
    return r;
}

RL_INLINE running add_row(running r, vreal a, vreal input, bool back, bool is_complex)
{
    r.decay = times(back ? conjugate(a, is_complex) : a, r.decay, is_complex);
    r.least = at_most(r.least, magnitude(r.decay, is_complex));
    r.fresh = back ? step_back(a, input + r.fresh, is_complex) : step_forward(a, input, r.fresh, is_complex);
    return r;
}

/* A product that came near 0 asks for a second look at the decays. */
RL_INLINE void end_summary(const rl_scan_summary *s, running r)
{
    store_any(s->decay, r.decay);
    store_any(s->fresh, r.fresh);
    store_any(s->least, r.least);
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        store_any(s->reset, (vreal){0});
    else
        RL_NAME(rl_scan_look_again)(s);
}

/* The same where no decay is 0, or what it drops is finite; the end shows if not. */
RL_INLINE running add_plain_row(running r, vreal a, vreal input, bool back)
{
    r.decay = r.decay * a;
    r.least = at_most(r.least, magnitude(r.decay, false));
    r.fresh = back ? a * (input + r.fresh) : fma_(a, r.fresh, input);
    return r;
}

RL_INLINE void end_plain_summary(const rl_scan_summary *s, running r)
{
    if (all_at_most(splat(RL_LEAST_DECAY), r.least))
        end_summary(s, r);
    else
        RL_NAME(rl_scan_summarise)(s);
}

#endif
#endif
