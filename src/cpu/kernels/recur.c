/*
 * The recurrence: h = exp(δ A) h + δ x B and y = Σ C h over a tile, RL_STATE_BLOCK states at a time in registers.
 * Steps follow each other through h alone; the exponentials of several states and steps overlap.  The product with h
 * is rounded before the sum, as in the plain loop: where the states nearly cancel, errors that agree with the loop's
 * are worth more than smaller ones.  The input's own product goes into the sum unrounded.
 */
#include "recur.h"
#include "kernels.h"
#include "table.h"

typedef struct block {
    const vreal *rate, *rate_rest, *input;
    const real *bc;
    vreal *y;
    rl_rows ahead;
    int64_t rows;
    bool accumulate;
} block;

RL_INLINE void advance(const block *b, int64_t t, vreal *h, const vreal *A, int states, int way, bool spread,
                       bool decays)
{
    fetch_row(b->ahead, t);
    const real *row = b->bc + t * 2 * states * (spread ? LANES : 1);
    decay_rate rate = {.upper = b->rate[t], .rest = b->rate_rest[t]};
    vreal input = b->input[t], sum = {0};
    for (int i = 0; i < states; i++) {
        vreal B = entry(row, i, spread), C = entry(row, states + i, spread);
        h[i] = decays ? fma_(input, B, decay_of(rate, A[i], way) * h[i]) : input * B;
        sum = i ? fma_(C, h[i], sum) : C * h[i];
    }
    b->y[t] = b->accumulate ? b->y[t] + sum : sum;
}

RL_INLINE void run(const block *b, vreal *h_memory, const vreal *A_memory, int states, int way, bool spread,
                   bool fresh)
{
    vreal h[RL_STATE_BLOCK], A[RL_STATE_BLOCK];
    for (int i = 0; i < states; i++) h[i] = h_memory[i], A[i] = A_memory[i];
    if (fresh) advance(b, 0, h, A, states, way, spread, false);
    for (int64_t t = fresh; t < b->rows; t++) advance(b, t, h, A, states, way, spread, true);
    for (int i = 0; i < states; i++) h_memory[i] = h[i];
}

RL_INLINE void run_any(const block *b, vreal *h, const vreal *A, int states, int way, bool spread, bool fresh)
{
    if (way == LARGE && spread)
        run(b, h, A, states, LARGE, true, fresh);
    else if (way == LARGE)
        run(b, h, A, states, LARGE, false, fresh);
    else if (spread)
        run(b, h, A, states, WIDE, true, fresh);
    else if (way == SAFE)
        run(b, h, A, states, SAFE, false, fresh);
    else
        run(b, h, A, states, WIDE, false, fresh);
}

void RL_NAME(rl_recur)(const rl_recurrence *r)
{
    block b = {
        .rate = r->rate, .rate_rest = r->rate_rest, .input = r->input, .bc = r->bc, .y = r->y, .rows = r->rows};
    const vreal *A = r->A, *A_bound = r->A_bound;
    vreal *h = r->h, bound = *(const vreal *)r->bound;
    b.accumulate = r->accumulate;
    b.ahead = fetch_of(r->ahead, r->y);
    for (int64_t n = 0; n < r->states; n += RL_STATE_BLOCK, A_bound++) {
        int way = way_of(bound, *A_bound);
        switch (r->states - n) {
        case 1:
            run_any(&b, h + n, A + n, 1, way, r->spread, r->fresh);
            break;
        case 2:
            run_any(&b, h + n, A + n, 2, way, r->spread, r->fresh);
            break;
        case 3:
            run_any(&b, h + n, A + n, 3, way, r->spread, r->fresh);
            break;
        default:
            run_any(&b, h + n, A + n, RL_STATE_BLOCK, way, r->spread, r->fresh);
        }
        b.bc += r->rows * 2 * RL_STATE_BLOCK * (r->spread ? LANES : 1);
        b.accumulate = true;
        b.ahead.step = 0;
    }
}
