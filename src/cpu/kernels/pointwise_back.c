/* What surrounds the recurrence's gradients: the step size, the gate and the skip, and sums over channels. */
#include "functions.h"
#include "scan_turn.h"
#include "table.h"

/* σ(value) and 1 - σ(value), both to a few ulp. */
typedef struct sigmoid {
    vreal value, other;
} sigmoid;

RL_INLINE sigmoid sigmoid_from(vreal value, vreal e)
{
    vreal whole = e + splat(1), upper = splat(1) / whole, lower = e / whole;
    return (sigmoid){.value = if_greater(splat(0), value, lower, upper),
                     .other = if_greater(splat(0), value, upper, lower)};
}

/* In passes, and with the short exponential first, as rl_prepare_step. */
RL_INLINE void soften(vreal *size, vreal *slope, rl_rows delta, vreal bias, int64_t rows, const rl_rows *ahead)
{
    vint largest = {0};
    for (int64_t t = 0; t < rows; t++) {
        fetch_row(ahead[0], t);
        size[t] = row_of(delta, t) + bias;
        largest = greater_bits(largest, magnitude_bits(size[t]));
        slope[t] = exp_of_minus(size[t], true);
    }
    if (!all_at_most((vreal)largest, splat(SOFTPLUS_SAFE)))
        for (int64_t t = 0; t < rows; t++) slope[t] = exp_of_minus(size[t], false);
    for (int64_t t = 0; t < rows; t++) {
        fetch_row(ahead[1], t);
        vreal value = size[t], e = slope[t], sigma = if_greater(splat(0), value, e, splat(1)) / (e + splat(1));
        size[t] = softplus_from(value, e);
        slope[t] = if_greater(value, splat(20), splat(1), sigma);
    }
}

void RL_NAME(rl_take_steps)(const rl_back_tile *tile, rl_rows x_rows, rl_rows delta, const rl_step_rule *rule)
{
    const vreal low = splat((real)rule->low), high = splat((real)rule->high), none = splat(-1);
    vreal *x = tile->x, *size = tile->size, *slope = tile->slope;
    vreal bias = rule->bias ? *(const vreal *)rule->bias : splat((real)-0.0);
    rl_rows ahead[RL_BACK_PASSES];
    for (int i = 0; i < RL_BACK_PASSES; i++) ahead[i] = fetch_of(&tile->passes[i], size);
    if (rule->softplus)
        soften(size, slope, delta, bias, tile->rows, ahead);
    else
        for (int64_t t = 0; t < tile->rows; t++) size[t] = row_of(delta, t) + bias, slope[t] = splat(1);
    for (int64_t t = 0; t < tile->rows; t++) {
        fetch_row(ahead[2], t);
        x[t] = row_of(x_rows, t);
        slope[t] = if_greater(low, size[t], none, if_greater(size[t], high, none, slope[t]));
        size[t] = at_most(at_least(size[t], low), high);
    }
    const rl_rows sizes = {tile->size, RL_VECTOR_BYTES}, inputs = {tile->x, RL_VECTOR_BYTES};
    const rl_step_rule plain = {.low = -INFINITY, .high = INFINITY, .ahead = tile->passes + 3};
    RL_NAME(rl_prepare_step)(&tile->steps, sizes, inputs, tile->rows, &plain);
}

void RL_NAME(rl_enter_gate)(const rl_back_tile *tile, rl_rows dy)
{
    const vreal *z = tile->z;
    vreal *du = tile->du, *kept = tile->dy;
    for (int64_t t = 0; t < tile->rows; t++) {
        vreal value = row_of(dy, t);
        du[t] = z ? value * silu_(z[t]) : value;
        if (z) kept[t] = value;
    }
}

/* The slope of z σ(z). */
RL_INLINE vreal silu_slope(vreal value)
{
    sigmoid s = sigmoid_from(value, exp_of_minus(value, false));
    return s.value * (splat(1) + value * s.other);
}

static void leave_gate(const rl_back_tile *tile, const vreal *D)
{
    const vreal *dy = tile->dy, *z = tile->z, *x = tile->x;
    vreal *y = tile->y;
    for (int64_t t = 0; t < tile->rows; t++) {
        vreal sum = D ? fma_(*D, x[t], y[t]) : y[t];
        y[t] = dy ? dy[t] * sum * silu_slope(z[t]) : splat(0);
    }
}

void RL_NAME(rl_leave_steps)(const rl_back_tile *tile, rl_rows dx, rl_rows ddelta, const void *D_memory,
                             void *dD_memory, void *dbias_memory)
{
    const vreal *x = tile->x, *size = tile->size, *slope = tile->slope, *du = tile->du, *D = D_memory;
    const vreal *along_B = tile->along_B, *along_size = tile->along_size;
    vreal *dD = dD_memory, *dbias = dbias_memory, bias_sum = {0}, D_sum = {0};
    const bool skips = D && tile->dy;
    if (tile->z) leave_gate(tile, D);
    for (int64_t t = 0; t < tile->rows; t++) {
        vreal own = along_B[t] * size[t];
        vreal through = if_greater(splat(0), slope[t], splat(0), slope[t] * along_size[t]);
        if (skips) {
            own += du[t] * *D;
            D_sum = fma_(du[t], x[t], D_sum);
        }
        bias_sum += through;
        store_any(dx.data + t * dx.step, own);
        store_any(ddelta.data + t * ddelta.step, through);
    }
    *dbias += bias_sum;
    if (skips) *dD += D_sum;
}

void RL_NAME(rl_clear_lanes)(void *numbers, int64_t rows, int64_t lanes)
{
    vreal *v = numbers;
    vint keep;
    for (int lane = 0; lane < LANES; lane++) keep[lane] = lane < lanes ? -1 : 0;
    for (int64_t row = 0; row < rows; row++) v[row] = (vreal)((vint)v[row] & keep);
}

RL_INLINE void sum_lanes(vreal *to, const vreal *from, const rl_lane_sums *s, int64_t states)
{
    const int64_t phase = LANES % RL_STATE_BLOCK == 0 ? 0 : s->first % RL_STATE_BLOCK; /* within a block */
    from += (s->first - phase) * s->rows;
    for (int64_t t = 0; t < s->rows; t++) {
        vreal v[LANES];
        for (int i = 0; i < LANES; i++) {
            int64_t block = (phase + i) / RL_STATE_BLOCK, at = (phase + i) % RL_STATE_BLOCK;
            v[i] = i < states ? from[(block * s->rows + t) * RL_STATE_BLOCK + at] : splat(0);
        }
        turn_registers(v);
        for (int64_t group = 0; group < s->groups; group++) {
            vreal sum = v[group * s->members];
            for (int64_t lane = 1; lane < s->members; lane++) sum += v[group * s->members + lane];
            to[group * s->rows + t] = sum;
        }
    }
}

void RL_NAME(rl_sum_lanes)(void *to, const void *numbers, const rl_lane_sums *shape)
{
    const rl_lane_sums one = {.rows = shape->rows, .first = shape->first, .groups = 1, .members = LANES};
    if (shape->groups == 1 && shape->members == LANES && shape->states == LANES)
        sum_lanes(to, numbers, &one, LANES);
    else
        sum_lanes(to, numbers, shape, shape->states);
}

void RL_NAME(rl_bar_A)(void *dA_memory, const void *A_memory, int64_t states)
{
    vreal *dA = dA_memory;
    const vreal *A = A_memory;
    for (int64_t n = 0; n < states; n++)
        dA[n] = if_greater((vreal)magnitude_bits(A[n]), splat(REAL_MAX), splat(0), dA[n]);
}

void RL_NAME(rl_through_log)(void *dA_memory, const void *A_memory, int64_t states)
{
    vreal *dA = dA_memory;
    const vreal *A = A_memory;
    for (int64_t n = 0; n < states; n++) {
        vint moved = (vreal)magnitude_bits(A[n]) == splat(REAL_MAX);
        dA[n] = (vreal)((vint)(dA[n] * A[n]) & ~moved);
    }
}
