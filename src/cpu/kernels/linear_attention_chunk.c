/* A chunk's decays and the products of its queries and keys, which all panels share. */
#include <math.h>

#include "linear_attention_block.h"
#include "table.h"

int64_t RL_NAME(rl_attention_largest)(const void *numbers, int64_t vectors)
{
    const vreal *from = numbers;
    vint most[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 <= vectors; i += 4)
        for (int k = 0; k < 4; k++) most[k] = greater_bits(most[k], magnitude_bits(from[i + k]));
    for (; i < vectors; i++) most[0] = greater_bits(most[0], magnitude_bits(from[i]));
    return greatest_lane(greater_bits(greater_bits(most[0], most[1]), greater_bits(most[2], most[3])));
}

static void weigh_keys(const rl_attention_chunk *c)
{
    const vreal *factor = c->k_factor;
    vreal *k = c->k;
    for (int64_t n = 0; n < c->keys; n++, k += RL_CHUNK / LANES)
        for (int i = 0; i < RL_CHUNK / LANES; i++) k[i] *= factor[i];
}

/* Products of gates: in pairs of doubles the one that carries states on, where an error would repeat every chunk. */
static void multiply_gates(rl_attention_chunk *c)
{
    double high = 1, low = 0, growth = 1, run = 1;
    c->steady = c->fades = c->rows;
    for (int64_t t = 0; t < c->rows; t++) {
        double g = c->gate[t], size = fabs(g), product = high * g;
        low = low * g + fma(high, g, -product);
        c->b[t] = high = product;
        growth = growth > 1 ? growth * size : size;
        run = size == 0 ? 1 : run < 1 ? run * size : size;
        if (!(growth <= GROWTH_MOST) && t < c->steady) c->steady = t;
        if (run < FADED && t < c->fades) c->fades = t;
    }
    c->carry_rest = high - (double)(real)high + low;
    double after = 1;
    for (int64_t t = c->rows - 1; t >= 0; t--) {
        c->e[t] = after;
        after *= c->gate[t];
    }
}

/* Keys step by step, to the first that is too large; a step's own query matters to no other. */
static void look_at_steps(rl_attention_chunk *c, bool keys)
{
    int64_t most = 0;
    for (int64_t t = 0; t < c->rows; t++) {
        const int64_t limit = bits_of(t < c->fades ? INPUT_MOST : MODERATE_INPUT);
        const real *q = (const real *)c->q + t * c->q_pitch, *k = (const real *)c->k + t;
        c->good[t] = RL_NAME(rl_attention_largest)(q, c->q_pitch / LANES) <= limit;
        for (int64_t n = 0; n < c->keys && keys; n++) most = greater(most, magnitude_of(k[n * RL_CHUNK]));
        if (most > limit && t < c->steady) c->steady = t;
    }
}

/* q·k, of the steps of a block with those up to its last. */
RL_INLINE void multiply_block(const rl_attention_chunk *c, int64_t t, real *products)
{
    const vreal *k = c->k;
    for (int64_t j = 0; j < t + BLOCK_ROWS; j += LANES) {
        vreal sums[BLOCK_ROWS] = {{0}};
        const real *q = (const real *)c->q + t * c->q_pitch;
        for (int64_t n = 0; n < c->keys; n++) {
            vreal column = k[(n * RL_CHUNK + j) / LANES];
            for (int r = 0; r < BLOCK_ROWS; r++) sums[r] = fma_(splat(q[r * c->q_pitch + n]), column, sums[r]);
        }
        for (int r = 0; r < BLOCK_ROWS; r++) *(vreal *)(products + (t + r) * RL_CHUNK + j) = sums[r];
    }
}

static void mix_steps(const rl_attention_chunk *c)
{
    enum { VECTORS = RL_CHUNK / LANES };
    real *products = c->plain ? c->plain : c->mix;
    vreal decay[VECTORS] = {{0}};
    for (int64_t t = 0; t < c->rows; t += BLOCK_ROWS) multiply_block(c, t, products);
    for (int64_t t = 0; t < c->rows; t++) {
        const vreal *from = (const vreal *)(products + t * RL_CHUNK);
        vreal *to = (vreal *)((real *)c->mix + t * RL_CHUNK), gate = splat((real)c->gate[t]);
        for (int i = 0; i < VECTORS; i++) decay[i] *= gate;
        ((real *)decay)[t] = 1;
        int64_t used = (t / BLOCK_ROWS + 1) * BLOCK_ROWS;
        for (int i = 0; i < VECTORS; i++) to[i] = i * LANES < used ? decay[i] * from[i] : (vreal){0};
    }
    int64_t end = (c->rows + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    memset((real *)c->mix + c->rows * RL_CHUNK, 0, (size_t)((end - c->rows) * RL_CHUNK) * sizeof(real));
}

void RL_NAME(rl_attention_prepare)(rl_attention_chunk *c)
{
    c->may_multiply = c->may_multiply && c->keys <= KEYS_MOST;
    c->sound = false;
    if (c->k_factor) weigh_keys(c);
    if (!c->may_multiply) return;
    multiply_gates(c);
    const int64_t q_rows = (c->rows + RL_STATE_ROWS - 1) / RL_STATE_ROWS * RL_STATE_ROWS;
    const int64_t limit = bits_of(c->fades < c->rows ? MODERATE_INPUT : INPUT_MOST);
    const int64_t query = RL_NAME(rl_attention_largest)(c->q, q_rows * c->q_pitch / LANES);
    const int64_t key = RL_NAME(rl_attention_largest)(c->k, c->keys * (RL_CHUNK / LANES));
    const bool queries = query > limit, keys = key > limit;
    c->largest = greater(query, key);
    memset(c->good, true, sizeof c->good);
    if (queries || keys) look_at_steps(c, keys);
    c->sound = !queries && c->steady == c->rows;
    if (c->mix) mix_steps(c);
}
