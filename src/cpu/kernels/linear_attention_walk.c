/*
 * A panel through a chunk: by products of matrices, or step by step in the loop's own order.
 *
 * With S the entering state, b and e as in the chunk, D the products of the gates between two steps:
 *
 *     y_t = f_t (b_t Sᵀ q_t + Σ_{j ≤ t} D_tj (q_t·k_j) v_j),    S' = b_last S + Σ_j k_j (e_j v_j)ᵀ
 *
 * The loop's way keeps some rows of the state in registers through all steps.  It rounds every product and sum as the
 * plain loop does, so its states are that loop's, bit for bit.
 */
#include <math.h>

#include "linear_attention_block.h"
#include "table.h"

/* Values step by step, to the first that is too large. */
static void look_at_values(rl_attention_panel *p)
{
    const rl_attention_chunk *c = p->chunk;
    int64_t most = 0;
    for (int64_t t = 0; t < p->steady; t++) {
        for (int i = 0; i < p->vectors; i++)
            most = greater(most, greatest_lane(magnitude_bits(((const vreal *)p->v)[i * RL_CHUNK + t])));
        if (most > bits_of(t < c->fades ? INPUT_MOST : MODERATE_INPUT)) p->steady = t;
    }
}

void RL_NAME(rl_attention_enter)(rl_attention_panel *p)
{
    const rl_attention_chunk *c = p->chunk;
    const real *factor = p->v_factor;
    vint most = {0};
    p->multiplies = c->may_multiply && *p->largest <= bits_of(STATE_MOST);
    for (int i = 0; i < p->vectors; i++) {
        vreal *v = (vreal *)p->v + i * RL_CHUNK, *faded = (vreal *)p->faded + i * RL_CHUNK;
        for (int64_t t = 0; t < c->rows && factor; t++) v[t] *= splat(factor[t]);
        for (int64_t t = 0; t < c->rows && p->multiplies; t++) {
            most = greater_bits(most, magnitude_bits(v[t]));
            faded[t] = v[t] * splat((real)c->e[t]);
        }
    }
    p->steady = p->multiplies ? c->steady : 0;
    if (p->multiplies && *p->largest > bits_of(MODERATE_STATE)) p->steady = lesser(p->steady, c->fades);
    if (greatest_lane(most) > bits_of(c->fades < c->rows ? MODERATE_INPUT : INPUT_MOST)) look_at_values(p);
}

/* Whether products of matrices give a step's y. */
RL_INLINE bool is_multiplied(const rl_attention_panel *p, int64_t t)
{
    return t < p->steady && p->chunk->good[t];
}

/* The sums of a step become y. */
RL_INLINE void finish(const rl_attention_panel *p, int64_t t, const vreal *sums, int vectors)
{
    vreal product = {0}, factor = splat(p->y_factor ? ((const real *)p->y_factor)[t] : 1);
    for (int i = 0; i < vectors; i++) {
        vreal *y = (vreal *)p->y + i * RL_CHUNK + t;
        if (p->partner) product += in_columns(p, i, ((const vreal *)p->partner)[i * RL_CHUNK + t] * sums[i]);
        *y = p->accumulate ? *y + factor * sums[i] : factor * sums[i];
    }
    if (p->partner) ((real *)p->whole)[t] = sum_of_lanes(product);
}

RL_INLINE void read_entering(const rl_attention_panel *p, int64_t t, const vreal *sums, int vectors)
{
    vreal product = {0};
    for (int i = 0; i < vectors; i++) product += ((const vreal *)p->partner)[i * RL_CHUNK + t] * sums[i];
    ((real *)p->inner)[t] = sum_of_lanes(product);
}

RL_INLINE void multiply_outputs(const rl_attention_panel *p, int vectors)
{
    const rl_attention_chunk *c = p->chunk;
    for (int64_t t = 0; t < c->rows; t += BLOCK_ROWS) {
        vreal sums[BLOCK_ROWS][RL_PANEL_VECTORS] = {{{0}}};
        const int64_t rows = lesser(BLOCK_ROWS, c->rows - t);
        multiply(sums, BLOCK_ROWS, vectors, (const real *)c->q + t * c->q_pitch, c->q_pitch, p->state, c->state_rows,
                 c->keys);
        for (int64_t r = 0; r < rows && p->inner; r++) read_entering(p, t + r, sums[r], vectors);
        for (int r = 0; r < BLOCK_ROWS; r++)
            for (int i = 0; i < vectors; i++) sums[r][i] *= splat((real)c->b[lesser(t + r, c->rows - 1)]);
        multiply(sums, BLOCK_ROWS, vectors, (const real *)c->mix + t * RL_CHUNK, RL_CHUNK, p->v, RL_CHUNK,
                 lesser(t + rows, p->steady));
        for (int64_t r = 0; r < rows; r++)
            if (is_multiplied(p, t + r)) finish(p, t + r, sums[r], vectors);
    }
}

/* The part of `ahead` that belongs to the rows of the state from this one on. */
RL_INLINE void fetch(const rl_attention_ahead *ahead, int64_t row, int64_t rows)
{
    enum { LINE = 64 };
    for (int64_t i = ahead->count * row / rows; i < ahead->count * (row + BLOCK_ROWS) / rows; i++)
        for (int64_t at = 0; at < ahead->bytes[i]; at += LINE) __builtin_prefetch(ahead->row[i] + at);
}

RL_INLINE void multiply_state(const rl_attention_panel *p, int vectors)
{
    const rl_attention_chunk *c = p->chunk;
    const vreal carry = splat((real)c->b[c->rows - 1]), rest = splat((real)c->carry_rest);
    vint most = {0};
    for (int64_t n = 0; n < c->state_rows; n += BLOCK_ROWS) {
        vreal sums[BLOCK_ROWS][RL_PANEL_VECTORS] = {{{0}}};
        fetch(p->ahead, n, c->state_rows);
        multiply(sums, BLOCK_ROWS, vectors, (const real *)c->k + n * RL_CHUNK, RL_CHUNK, p->faded, RL_CHUNK, c->rows);
        for (int r = 0; r < BLOCK_ROWS; r++)
            for (int i = 0; i < vectors; i++) {
                vreal *S = (vreal *)p->state + i * c->state_rows + n + r;
                *S = fma_(carry, *S, fma_(rest, *S, sums[r][i]));
                most = greater_bits(most, magnitude_bits(*S));
            }
    }
    *p->largest = greatest_lane(most);
}

/* Some rows of the state through all steps; the sums of y lie in `sums`.  The state itself moves on if it `leaves`.
 */
RL_INLINE void walk_rows(const rl_attention_panel *p, vreal *sums, int64_t n, int rows, int vectors, bool leaves)
{
    const rl_attention_chunk *c = p->chunk;
    vreal S[BLOCK_ROWS][RL_PANEL_VECTORS];
    const real *k = (const real *)c->k + n * RL_CHUNK, *q = (const real *)c->q + n;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++) S[r][i] = ((const vreal *)p->state)[i * c->state_rows + n + r];
    for (int64_t t = 0; t < c->rows; t++, q += c->q_pitch) {
        vreal v[RL_PANEL_VECTORS], sum[RL_PANEL_VECTORS], gate = splat((real)c->gate[t]);
        for (int i = 0; i < vectors; i++) {
            v[i] = ((const vreal *)p->v)[i * RL_CHUNK + t];
            sum[i] = n ? sums[i * RL_CHUNK + t] : (vreal){0};
        }
        if (c->reset[t]) {
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < vectors; i++) S[r][i] = splat(k[r * RL_CHUNK + t]) * v[i];
        } else {
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < vectors; i++) S[r][i] = gate * S[r][i] + splat(k[r * RL_CHUNK + t]) * v[i];
        }
        if (!p->y) continue;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < vectors; i++) sum[i] = fma_(splat(q[r]), S[r][i], sum[i]);
        for (int i = 0; i < vectors; i++) sums[i * RL_CHUNK + t] = sum[i];
    }
    for (int r = 0; r < rows && leaves; r++)
        for (int i = 0; i < vectors; i++) ((vreal *)p->state)[i * c->state_rows + n + r] = S[r][i];
}

RL_INLINE void walk_steps(const rl_attention_panel *p, int vectors, bool leaves)
{
    const rl_attention_chunk *c = p->chunk;
    vreal sums[RL_PANEL_VECTORS * RL_CHUNK];
    int64_t n = 0;
    if (c->keys == 0) memset(sums, 0, sizeof sums);
    for (; n + BLOCK_ROWS <= c->keys; n += BLOCK_ROWS) walk_rows(p, sums, n, BLOCK_ROWS, vectors, leaves);
    for (; n < c->keys; n++) walk_rows(p, sums, n, 1, vectors, leaves);
    if (leaves && p->largest) *p->largest = RL_NAME(rl_attention_largest)(p->state, vectors * c->state_rows);
    for (int64_t t = 0; t < c->rows && p->y; t++) {
        vreal step[RL_PANEL_VECTORS];
        for (int i = 0; i < vectors; i++) step[i] = sums[i * RL_CHUNK + t];
        if (!is_multiplied(p, t)) finish(p, t, step, vectors);
    }
}

RL_INLINE void walk(rl_attention_panel *p, int vectors)
{
    const rl_attention_chunk *c = p->chunk;
    const bool leaves = p->steady < c->rows;
    for (int64_t t = 0; t < c->rows && p->inner && !p->multiplies; t++) ((real *)p->inner)[t] = NAN;
    if (p->y && (p->steady > 0 || (p->inner && p->multiplies))) multiply_outputs(p, vectors);
    if (leaves || (p->y && !c->sound)) walk_steps(p, vectors, leaves);
    if (!leaves) multiply_state(p, vectors);
}

void RL_NAME(rl_attention_walk)(rl_attention_panel *p)
{
    if (p->vectors == 1)
        walk(p, 1);
    else
        walk(p, RL_PANEL_VECTORS);
}
