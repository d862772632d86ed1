/*
 * What rows do to a state, found without it: the product of the decays and the state that a walk from zero leaves.
 * Both hide what happened on the way, so the least running product is kept too, and whether a decay was 0: the caller
 * judges by them whether the two may stand for the walk (scan_fold.c).
 */
#include "scan.h"
#include "scan_step.h"
#include "table.h"

#if RL_REAL_BITS == 64

typedef float vfloat_loose __attribute__((vector_size(RL_VECTOR_BYTES / 2), aligned(4), may_alias));

RL_INLINE vreal load_row(const void *rows, int64_t index, bool narrow)
{
    if (!narrow) return load_any((const double *)rows + index);
    return __builtin_convertvector(*(const vfloat_loose *)((const float *)rows + index), vreal);
}

/* At most the number's magnitude where it counts, that of its larger part. */
RL_INLINE vreal magnitude(vreal x, bool is_complex)
{
    vreal size = (vreal)magnitude_bits(x);
    if (!is_complex) return size;
    vreal other = __builtin_shufflevector(size, size, SWAPPED_PARTS);
    return if_greater(size, other, size, other);
}

/* At least the magnitude: |re| + |im|. */
RL_INLINE vreal magnitude_bound(vreal x, bool is_complex)
{
    vreal size = (vreal)magnitude_bits(x);
    return is_complex ? size + __builtin_shufflevector(size, size, SWAPPED_PARTS) : size;
}

RL_INLINE void find_largest(const rl_scan_summary *s, bool is_complex)
{
    vreal largest = {0};
    for (int64_t t = 0; t < s->rows; t++) {
        vreal bound = magnitude_bound(load_row(s->a, t * s->pitch, s->narrow), is_complex);
        largest = if_greater(bound, largest, bound, largest);
    }
    store_any(s->largest, largest);
}

RL_INLINE void summarise(const rl_scan_summary *s, bool back, bool is_complex, bool narrow)
{
    const vreal fresh_scale = splat(RL_FRESH_SCALE(narrow));
    vreal decay = splat(RL_DECAY_SCALE(narrow)), fresh = {0}, least = decay;
    if (is_complex)
        for (int lane = 1; lane < LANES; lane += 2) decay[lane] = 0;
    vint reset = {0};
    for (int64_t t = 0; t < s->rows; t++) {
        vreal a = load_row(s->a, t * s->pitch, narrow), input = load_row(s->input, t * s->pitch, narrow);
        if (narrow) input *= fresh_scale;
        decay = times(back ? conjugate(a, is_complex) : a, decay, is_complex);
        vreal size = magnitude(decay, is_complex);
        least = at_most(least, size);
        reset |= is_zero(a, is_complex);
        fresh = back ? step_back(a, input + fresh, is_complex) : step_forward(a, input, fresh, is_complex);
    }
    store_any(s->decay, decay);
    store_any(s->fresh, fresh);
    store_any(s->least, least);
    store_any(s->reset, choose(reset, splat(1), splat(0)));
    if (all_at_most(splat(RL_LEAST_DECAY), choose(reset, splat(1), least))) return;
    if (is_complex)
        find_largest(s, true);
    else
        find_largest(s, false);
}

RL_INLINE void summarise_numbers(const rl_scan_summary *s, bool back, bool is_complex)
{
    if (s->narrow)
        summarise(s, back, is_complex, true);
    else
        summarise(s, back, is_complex, false);
}

void RL_NAME(rl_scan_summarise)(const rl_scan_summary *s)
{
    if (s->rule.back && s->rule.is_complex)
        summarise_numbers(s, true, true);
    else if (s->rule.back)
        summarise_numbers(s, true, false);
    else if (s->rule.is_complex)
        summarise_numbers(s, false, true);
    else
        summarise_numbers(s, false, false);
}

#endif
