/*
 * The gradients of a tile, RL_STATE_BLOCK states at a time: forward from the state before it, which leaves the decays
 * and states of all its steps in cache, then back over these.  Products with a state or its gradient G are rounded
 * before they are added, as in the reference: where sums nearly cancel, errors that agree with the loop's are worth
 * more.
 */
#include "recur.h"
#include "table.h"

typedef struct block {
    const rl_back_tile *tile;
    const real *bc;
    vreal *held, *decays, *dB, *dC;
    const char *ahead[2]; /* fetched on the way forward, and back */
    int64_t ahead_step[2];
    bool first; /* writes the sums over states instead of adding to them */
} block;

RL_INLINE void recall_step(const block *b, int64_t t, vreal *h, const vreal *A, int states, int way, bool spread,
                           bool decays)
{
    __builtin_prefetch(b->ahead[0] + t * b->ahead_step[0]);
    const rl_steps *steps = &b->tile->steps;
    const real *row = b->bc + t * 2 * states * (spread ? LANES : 1);
    decay_rate rate = {.upper = ((const vreal *)steps->rate)[t], .rest = ((const vreal *)steps->rate_rest)[t]};
    vreal input = ((const vreal *)steps->input)[t];
    for (int i = 0; i < states; i++) {
        const vreal B = entry(row, i, spread);
        if (decays) {
            vreal decay = decay_of(rate, A[i], way);
            b->decays[t * RL_STATE_BLOCK + i] = decay;
            h[i] = fma_(input, B, decay * h[i]);
        } else {
            h[i] = input * B;
        }
        b->held[(t + 1) * RL_STATE_BLOCK + i] = h[i];
    }
}

RL_INLINE void recall(const block *b, const vreal *before, const vreal *A_memory, int states, int way, bool spread,
                      bool fresh)
{
    vreal h[RL_STATE_BLOCK], A[RL_STATE_BLOCK];
    for (int i = 0; i < states; i++) b->held[i] = h[i] = before[i], A[i] = A_memory[i];
    if (fresh) recall_step(b, 0, h, A, states, way, spread, false);
    for (int64_t t = fresh; t < b->tile->rows; t++) recall_step(b, t, h, A, states, way, spread, true);
}

RL_INLINE void recall_any(const block *b, const vreal *h, const vreal *A, int states, int way, bool spread,
                          bool fresh)
{
    if (way == LARGE && spread)
        recall(b, h, A, states, LARGE, true, fresh);
    else if (way == LARGE)
        recall(b, h, A, states, LARGE, false, fresh);
    else if (spread)
        recall(b, h, A, states, WIDE, true, fresh);
    else if (way == SAFE)
        recall(b, h, A, states, SAFE, false, fresh);
    else
        recall(b, h, A, states, WIDE, false, fresh);
}

/* What y_t sends back, and Σ C h for the gate. */
RL_INLINE void take_output(const block *b, int64_t t, vreal *G, const real *row, int states, bool spread)
{
    const vreal *after = b->held + (t + 1) * RL_STATE_BLOCK, du = ((const vreal *)b->tile->du)[t];
    vreal *dC = b->dC + t * RL_STATE_BLOCK, *y = b->tile->y, sum = {0};
    for (int i = 0; i < states; i++) {
        G[i] = fma_(du, entry(row, states + i, spread), G[i]);
        dC[i] = fma_(du, after[i], dC[i]);
    }
    if (!b->tile->z) return;
    for (int i = 0; i < states; i++) sum = fma_(entry(row, states + i, spread), after[i], sum);
    y[t] = b->first ? sum : y[t] + sum;
}

RL_INLINE void walk_step(const block *b, int64_t t, vreal *G, vreal *dA, const vreal *A, int states, bool spread,
                         bool decays)
{
    __builtin_prefetch(b->ahead[1] + t * b->ahead_step[1]);
    const rl_back_tile *tile = b->tile;
    const real *row = b->bc + t * 2 * states * (spread ? LANES : 1);
    const vreal *before = b->held + t * RL_STATE_BLOCK, *decay = b->decays + t * RL_STATE_BLOCK;
    vreal x = ((const vreal *)tile->x)[t], size = ((const vreal *)tile->size)[t];
    vreal input = ((const vreal *)tile->steps.input)[t], along_B = {0}, along_size = {0};
    vreal *sum_B = tile->along_B, *sum_size = tile->along_size, *dB = b->dB + t * RL_STATE_BLOCK;
    if (tile->dy) take_output(b, t, G, row, states, spread);
    for (int i = 0; i < states; i++) {
        vreal B = entry(row, i, spread), slope = B * x;
        dB[i] = fma_(G[i], input, dB[i]);
        along_B = fma_(G[i], B, along_B);
        if (decays) {
            vreal product = decay[i] * before[i];
            slope = fma_(A[i], product, slope);
            dA[i] = fma_(G[i], size * product, dA[i]);
        }
        along_size = fma_(G[i], slope, along_size);
        G[i] = decays ? decay[i] * G[i] : splat(0);
    }
    sum_B[t] = b->first ? along_B : sum_B[t] + along_B;
    sum_size[t] = b->first ? along_size : sum_size[t] + along_size;
}

/* dA of the tile is summed by itself before it is added. */
RL_INLINE void walk(const block *b, vreal *G_memory, vreal *dA_memory, const vreal *A_memory, int states, bool spread,
                    bool fresh)
{
    vreal G[RL_STATE_BLOCK], A[RL_STATE_BLOCK], dA[RL_STATE_BLOCK];
    for (int i = 0; i < states; i++) G[i] = G_memory[i], A[i] = A_memory[i], dA[i] = splat(0);
    for (int64_t t = b->tile->rows; t-- > fresh;) walk_step(b, t, G, dA, A, states, spread, true);
    if (fresh) walk_step(b, 0, G, dA, A, states, spread, false);
    for (int i = 0; i < states; i++) G_memory[i] = G[i], dA_memory[i] += dA[i];
}

RL_INLINE void run_block(const block *b, const rl_back_states *s, int64_t n, int states)
{
    const vreal *A = (const vreal *)s->A + n, *h = (const vreal *)s->h + n;
    vreal *G = (vreal *)s->G + n, *dA = (vreal *)s->dA + n;
    int way = way_of(*(const vreal *)b->tile->steps.bound, ((const vreal *)s->A_bound)[n / RL_STATE_BLOCK]);
    recall_any(b, h, A, states, way, s->spread, s->fresh);
    if (s->spread)
        walk(b, G, dA, A, states, true, s->fresh);
    else
        walk(b, G, dA, A, states, false, s->fresh);
}

/* Two arrays a block; where there is nothing left to fetch, a place that is in cache. */
static void look_ahead(block *b, int64_t index)
{
    for (int i = 0; i < 2; i++) {
        bool more = index * 2 + i < RL_BACK_AHEAD && b->tile->ahead[index * 2 + i].data;
        b->ahead[i] = more ? b->tile->ahead[index * 2 + i].data : b->tile->x;
        b->ahead_step[i] = more ? b->tile->ahead[index * 2 + i].step : 0;
    }
}

static void clear_sums(const rl_back_tile *tile)
{
    vreal *along_B = tile->along_B, *along_size = tile->along_size, *y = tile->y;
    for (int64_t t = 0; t < tile->rows; t++) along_B[t] = along_size[t] = y[t] = splat(0);
}

void RL_NAME(rl_recur_back)(const rl_back_tile *tile, const rl_back_states *s)
{
    block b = {
        .tile = tile, .bc = s->bc, .held = s->held, .decays = s->decays, .dB = s->dB, .dC = s->dC, .first = true};
    if (s->states == 0) clear_sums(tile);
    for (int64_t n = 0; n < s->states; n += RL_STATE_BLOCK) {
        look_ahead(&b, n / RL_STATE_BLOCK);
        switch (s->states - n) {
        case 1:
            run_block(&b, s, n, 1);
            break;
        case 2:
            run_block(&b, s, n, 2);
            break;
        case 3:
            run_block(&b, s, n, 3);
            break;
        default:
            run_block(&b, s, n, RL_STATE_BLOCK);
        }
        b.bc += tile->rows * 2 * RL_STATE_BLOCK * (s->spread ? LANES : 1);
        b.dB += tile->rows * RL_STATE_BLOCK;
        b.dC += tile->rows * RL_STATE_BLOCK;
        b.first = false;
    }
}
