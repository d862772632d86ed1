/* Tiles of scan and its gradients, row by row: steps follow each other through the state alone. */
#include "scan.h"
#include "scan_step.h"
#include "scan_summary.h"
#include "table.h"

RL_INLINE void walk_forward(const rl_scan_tile *tile, bool is_complex)
{
    const vreal *a = tile->a;
    vreal *row = tile->input, h = *(const vreal *)tile->state;
    for (int64_t t = 0; t < tile->rows; t++) row[t] = h = step_forward(a[t], row[t], h, is_complex);
    *(vreal *)tile->state = h;
}

RL_INLINE void walk_back(const rl_scan_tile *tile, bool is_complex, bool wants_da)
{
    const vreal *a = tile->a;
    vreal *row = tile->input, *before = tile->before, u = *(const vreal *)tile->state;
    for (int64_t t = 0; t < tile->rows; t++) {
        vreal g = row[t] + u;
        row[t] = g;
        if (wants_da) before[t] = decay_gradient(a[t], before[t], g, is_complex);
        u = step_back(a[t], g, is_complex);
    }
    *(vreal *)tile->state = u;
}

RL_INLINE void walk(const rl_scan_tile *tile, bool is_complex)
{
    if (!tile->rule.back)
        walk_forward(tile, is_complex);
    else if (tile->before)
        walk_back(tile, is_complex, true);
    else
        walk_back(tile, is_complex, false);
}

void RL_NAME(rl_scan_walk)(const rl_scan_tile *tile)
{
    if (tile->rule.is_complex)
        walk(tile, true);
    else
        walk(tile, false);
}

#if RL_REAL_BITS == 64
/* The lane's numbers, in all lanes. */
RL_INLINE vreal spread(const void *row, int64_t lane, bool is_complex)
{
    const real *at = (const real *)row + lane;
    vreal x = splat(at[0]);
    for (int i = 1; i < LANES && is_complex; i += 2) x[i] = at[1];
    return x;
}

/* To twice the bits, the high ones in the plain loop's order. */
RL_INLINE void walk_lane(const rl_scan_tile *tile, int64_t lane, double *state, double *low, bool is_complex)
{
    const vreal *a = tile->a, *input = tile->input;
    longer s = {spread(state, 0, is_complex), spread(low, 0, is_complex)};
    for (int64_t t = 0; t < tile->rows; t++)
        s = step_longer(spread(a + t, lane, is_complex), spread(input + t, lane, is_complex), s, tile->rule.back,
                        is_complex);
    s = settled(s);
    for (int part = 0; part <= is_complex; part++) state[part] = s.high[part], low[part] = s.low[part];
}

void RL_NAME(rl_scan_walk_lane)(const rl_scan_tile *tile, int64_t lane, double *state, double *low)
{
    if (tile->rule.is_complex)
        walk_lane(tile, lane, state, low, true);
    else
        walk_lane(tile, lane, state, low, false);
}
#else
static void walk_real_lane(const rl_scan_tile *tile, int64_t lane, double *state)
{
    const real *a = (const real *)tile->a + lane, *input = (const real *)tile->input + lane;
    real s = (real)*state;
    for (int64_t i = 0; i < tile->rows * LANES; i += LANES) {
        if (tile->rule.back)
            s = a[i] == 0 ? 0 : a[i] * (input[i] + s);
        else
            s = a[i] == 0 ? input[i] : a[i] * s + input[i];
    }
    *state = (double)s;
}

static void walk_complex_lane(const rl_scan_tile *tile, int64_t lane, double *state)
{
    const real *a = (const real *)tile->a + lane, *input = (const real *)tile->input + lane;
    const bool back = tile->rule.back;
    real re = (real)state[0], im = (real)state[1];
    for (int64_t i = 0; i < tile->rows * LANES; i += LANES) {
        real before = back ? 0 : input[i], before_im = back ? 0 : input[i + 1], a_im = back ? -a[i + 1] : a[i + 1];
        if (back) re += input[i], im += input[i + 1];
        real old = re;
        bool zero = a[i] == 0 && a_im == 0;
        re = zero ? before : a[i] * old - a_im * im + before;
        im = zero ? before_im : a[i] * im + a_im * old + before_im;
    }
    state[0] = (double)re;
    state[1] = (double)im;
}

void RL_NAME(rl_scan_walk_lane)(const rl_scan_tile *tile, int64_t lane, double *state, double *low)
{
    low[0] = 0;
    if (tile->rule.is_complex) low[1] = 0;
    if (tile->rule.is_complex)
        walk_complex_lane(tile, lane, state);
    else
        walk_real_lane(tile, lane, state);
}
#endif
