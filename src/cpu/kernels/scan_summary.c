/*
 * What rows do to a state, found without it: the product of the decays and the state that a walk from zero leaves.
 * Both hide what happened on the way, so the least running product is kept too, and whether a decay was 0: the caller
 * judges by them whether the two may stand for the walk (scan_fold.c).
 */
#include <float.h>

#include "scan_summary.h"
#include "table.h"

#if RL_REAL_BITS == 64

typedef float vfloat_loose __attribute__((vector_size(RL_VECTOR_BYTES / 2), aligned(4), may_alias));

RL_INLINE vreal load_row(const void *rows, int64_t index, bool narrow)
{
    if (!narrow) return load_any((const double *)rows + index);
    return __builtin_convertvector(*(const vfloat_loose *)((const float *)rows + index), vreal);
}

RL_INLINE void look_again(const rl_scan_summary *s, bool is_complex)
{
    vint largest = {0}, reset = {0};
    for (int64_t t = 0; t < s->rows; t++) {
        vreal a = load_row(s->a, t * s->pitch, s->narrow);
        largest = greater_bits(largest, size_bits(a, is_complex));
        reset |= is_zero(a, is_complex);
    }
    store_any(s->largest, (vreal)largest);
    for (int lane = 0; lane < LANES && is_complex; lane++) s->largest[lane] = sqrt(s->largest[lane]);
    store_any(s->reset, choose(reset, splat(1), splat(0)));
}

void RL_NAME(rl_scan_look_again)(const rl_scan_summary *s)
{
    if (s->rule.is_complex)
        look_again(s, true);
    else
        look_again(s, false);
}

/* Answers whether it may stand. */
RL_INLINE bool summarise_plainly(const rl_scan_summary *s, bool back, bool is_complex)
{
    vint decays = {0};
    running r = start_summary(RL_DECAY_SCALE(true), is_complex);
    for (int64_t t = 0; t < s->rows; t++) {
        vreal a = load_row(s->a, t * s->pitch, true), input = load_row(s->input, t * s->pitch, true);
        r = add_plain_narrow_row(r, a, input * splat(RL_FRESH_SCALE(true)), back, is_complex);
        decays |= (vint)a;
    }
    if (!all_at_most((vreal)magnitude_bits(r.fresh.high), splat(DBL_MAX))) return false;
    end_summary(s, r, decays);
    return true;
}

RL_INLINE void summarise(const rl_scan_summary *s, bool back, bool is_complex, bool narrow)
{
    if (narrow && summarise_plainly(s, back, is_complex)) return;
    const vreal fresh_scale = splat(RL_FRESH_SCALE(narrow));
    vint decays = {0};
    running r = start_summary(RL_DECAY_SCALE(narrow), is_complex);
    for (int64_t t = 0; t < s->rows; t++) {
        vreal a = load_row(s->a, t * s->pitch, narrow), input = load_row(s->input, t * s->pitch, narrow);
        r = add_row(r, a, narrow ? input * fresh_scale : input, back, is_complex, narrow);
        decays |= (vint)a;
    }
    end_summary(s, r, decays);
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
