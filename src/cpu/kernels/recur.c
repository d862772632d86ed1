/*
 * The recurrence: h = exp(δ A) h + δ x B and y = Σ C h over a tile, RL_STATE_BLOCK states at a time in registers.
 * Steps follow each other through h alone; the exponentials of several states and steps overlap.
 */
#include "functions.h"
#include "kernels.h"
#include "table.h"

typedef struct block {
    const vreal *delta, *input;
    const real *bc;
    vreal *y;
    int64_t rows;
    bool accumulate;
} block;

/* Entry i of a row of B and C: one number for all lanes, or a vector. */
RL_INLINE vreal entry(const real *row, int i, bool spread)
{
    return spread ? *(const vreal *)(row + i * LANES) : splat(row[i]);
}

RL_INLINE void advance(const block *b, int64_t t, vreal *h, const vreal *A, int states, int known, bool spread,
                       bool decays)
{
    const real *row = b->bc + t * 2 * states * (spread ? LANES : 1);
    vreal delta = b->delta[t], input = b->input[t], sum = {0};
    for (int i = 0; i < states; i++) {
        vreal fresh = input * entry(row, i, spread), C = entry(row, states + i, spread);
        h[i] = decays ? fma_(exp_decay(delta * A[i], known), h[i], fresh) : fresh;
        sum = i ? fma_(C, h[i], sum) : C * h[i];
    }
    b->y[t] = b->accumulate ? b->y[t] + sum : sum;
}

RL_INLINE void run(const block *b, vreal *h_memory, const vreal *A_memory, int states, int known, bool spread,
                   bool fresh)
{
    vreal h[RL_STATE_BLOCK], A[RL_STATE_BLOCK];
    for (int i = 0; i < states; i++) h[i] = h_memory[i], A[i] = A_memory[i];
    if (fresh) advance(b, 0, h, A, states, known, spread, false);
    for (int64_t t = fresh; t < b->rows; t++) advance(b, t, h, A, states, known, spread, true);
    for (int i = 0; i < states; i++) h_memory[i] = h[i];
}

RL_INLINE void run_any(const block *b, vreal *h, const vreal *A, int states, int known, bool spread, bool fresh)
{
    if (spread)
        run(b, h, A, states, EXP_ANY, true, fresh);
    else if (known == EXP_IS_SMALL)
        run(b, h, A, states, EXP_IS_SMALL, false, fresh);
    else if (known == EXP_IS_SAFE)
        run(b, h, A, states, EXP_IS_SAFE, false, fresh);
    else
        run(b, h, A, states, EXP_ANY, false, fresh);
}

void RL_NAME(rl_recur)(const rl_recurrence *r)
{
    block b = {.delta = r->delta, .input = r->input, .bc = r->bc, .y = r->y, .rows = r->rows};
    const vreal *A = r->A, *A_bound = r->A_bound;
    vreal *h = r->h, bound = *(const vreal *)r->bound;
    b.accumulate = r->accumulate;
    for (int64_t n = 0; n < r->states; n += RL_STATE_BLOCK, A_bound++) {
        vreal largest = bound * *A_bound;
        int known = all_at_most(largest, splat(EXP_SMALL))  ? EXP_IS_SMALL
                    : all_at_most(largest, splat(EXP_SAFE)) ? EXP_IS_SAFE
                                                            : EXP_ANY;
        switch (r->states - n) {
        case 1:
            run_any(&b, h + n, A + n, 1, known, r->spread, r->fresh);
            break;
        case 2:
            run_any(&b, h + n, A + n, 2, known, r->spread, r->fresh);
            break;
        case 3:
            run_any(&b, h + n, A + n, 3, known, r->spread, r->fresh);
            break;
        default:
            run_any(&b, h + n, A + n, RL_STATE_BLOCK, known, r->spread, r->fresh);
        }
        b.bc += r->rows * 2 * RL_STATE_BLOCK * (r->spread ? LANES : 1);
        b.accumulate = true;
    }
}
