/*
 * A panel's part of the gates' gradients at a chunk, dg_t = <G_t, S_{t-1}>.
 *
 * Here steps run backward: i = 0 is the chunk's last.  γ_i is the gate of step i, S the state that enters the chunk
 * (after the last i), G' the gradient of the state one step later in time (before i = 0), G = γ' G' what of it
 * reaches the chunk, γ' being the walk's own first gate.  With u_i = q_i · scale S dy_i, w_i = β_i k_i · G v_i and
 * M_ij = β_j (scale q_i · k_j) (dy_i · v_j) for j > i, all of them sums over what the panel holds,
 *
 *     dg_i = Σ_{j > i} D_ij X_ij  +  B_i Σ_{h ≤ i} E_hi u_h  +  E_i Σ_{j > i} D_ij w_j  +  E_i B_i <G, S>
 *
 * where X_ij = M_ij + γ_{i-1} X_{i-1,j}; D_ij, E_hi are products of the gates between the two steps, B_i of those
 * after i, E_i of those before it.  No step's own gate is in its gradient, so none is divided out, and every term is
 * a product of decays with what the loop sums too: nothing large is subtracted.
 *
 * The loop's way runs the states again, a row at a time.
 */
#include <math.h>

#include "linear_attention_block.h"
#include "table.h"
#include "transpose.h"

typedef struct gates_room {
    real *turned;  /* [2 vectors lanes][RL_CHUNK] scale q and then k, transposed */
    real *product; /* [RL_CHUNK][RL_CHUNK] */
    real *decay;   /* [RL_CHUNK][RL_CHUNK] */
    vreal *states; /* [RL_CHUNK] */
} gates_room;

static gates_room room_of(const rl_attention_gates *g)
{
    real *turned = g->room;
    real *product = turned + 2 * RL_PANEL_VECTORS * LANES * RL_CHUNK, *decay = product + RL_CHUNK * RL_CHUNK;
    return (gates_room){
        .turned = turned, .product = product, .decay = decay, .states = (vreal *)(decay + RL_CHUNK * RL_CHUNK)};
}

static int64_t greatest_of(const rl_attention_panel *p, const void *columns, int64_t i)
{
    vint most = {0};
    for (int c = 0; c < p->vectors; c++)
        most = greater_bits(most, magnitude_bits(((const vreal *)columns)[c * RL_CHUNK + i]));
    return greatest_lane(most);
}

static int64_t greatest_key(const rl_attention_chunk *c, int64_t i)
{
    int64_t most = 0;
    for (int64_t n = 0; n < c->keys; n++) most = greater(most, magnitude_of(((const real *)c->k)[n * RL_CHUNK + i]));
    return most;
}

/* Whether all inputs are moderate: the common case, found without a look at single steps. */
static bool is_calm(const rl_attention_gates *g)
{
    const rl_attention_panel *p = g->panel;
    vint most = {0};
    for (int64_t c = 0; c < p->vectors * RL_CHUNK; c += RL_CHUNK)
        for (int64_t i = 0; i < p->chunk->rows; i++) {
            most = greater_bits(most, magnitude_bits(((const vreal *)p->v)[c + i]));
            most = greater_bits(most, magnitude_bits(((const vreal *)p->partner)[c + i]));
        }
    return greater(greatest_lane(most), p->chunk->largest) <= bits_of(MODERATE_INPUT);
}

/*
 * Which steps products may give: those whose later steps are steady in q and dy and in the way to G, and whose
 * earlier ones are in k and v and in the way from S.  So a number that is too large changes no bit where it has no
 * say.
 */
static void find_steady(rl_attention_gates *g)
{
    const rl_attention_panel *p = g->panel;
    const rl_attention_chunk *c = p->chunk;
    const bool calm = is_calm(g);
    double growth = 1, run = 1;
    int64_t most = 0, states = p->multiplies ? greater(g->entry_largest, *p->largest) : 0;
    g->begin = g->end = 0;
    if (!p->multiplies || states > bits_of(GATES_STATE_MOST)) return;
    for (; g->end < c->rows; g->end++) { /* q, dy: from the chunk's end to its begin */
        int64_t i = g->end, limit = bits_of(i < c->fades ? GATES_INPUT_MOST : MODERATE_INPUT);
        if (!calm) most = greater(most, greater(greatest_of(p, p->v, i), greatest_key(c, i)));
        if (most > limit || i >= c->steady || isnan(((const real *)g->read)[i])) break;
        if (i >= c->fades && states > bits_of(MODERATE_STATE)) break;
    }
    most = 0;
    for (g->begin = c->rows - 1; g->begin > 0; g->begin--) { /* k, v: the other way */
        const real *v = (const real *)c->q + g->begin * c->q_pitch;
        double size = fabs(g->gate[g->begin]);
        growth = growth > 1 ? growth * size : size;
        run = size == 0 ? 1 : run < 1 ? run * size : size;
        if (!calm) most = greater(most, greatest_of(p, p->partner, g->begin));
        if (!calm) most = greater(most, RL_NAME(rl_attention_largest)(v, c->q_pitch / LANES));
        if (!(growth <= GROWTH_MOST) || !(fabs(g->beta[g->begin]) <= (double)MODERATE_INPUT)) break;
        if (most > bits_of(run < FADED ? MODERATE_INPUT : GATES_INPUT_MOST)) break;
        if (run < FADED && states > bits_of(MODERATE_STATE)) break;
    }
    if (g->end < g->begin) g->begin = g->end;
}

static double cross(const rl_attention_gates *g)
{
    const vreal *a = g->entry, *b = g->panel->state;
    const int64_t count = g->panel->vectors * g->panel->chunk->state_rows;
    vreal sums[4] = {{0}};
    for (int64_t i = 0; i < count; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = fma_(a[i + k], b[i + k], sums[k]);
    return (double)sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* One vector of one row of the state: forward through the chunk, then back with its gradient. */
RL_INLINE void walk_row(const rl_attention_gates *g, int64_t n, int64_t vector, vreal *states, vreal *dg)
{
    const rl_attention_panel *p = g->panel;
    const rl_attention_chunk *c = p->chunk;
    const int64_t at = vector * c->state_rows + n;
    const real *values = (const real *)c->q + n, *dy = (const real *)c->k + n * RL_CHUNK;
    const vreal *keys = (const vreal *)p->partner + vector * RL_CHUNK;
    const vreal *queries = (const vreal *)p->v + vector * RL_CHUNK;
    vreal S = ((const vreal *)g->entry)[at], G = ((const vreal *)p->state)[at];
    for (int64_t i = c->rows - 1; i >= 0; i--) {
        states[i] = S;
        vreal input = splat((real)g->beta[i]) * keys[i] * splat(values[i * c->q_pitch]);
        S = g->reset[i] ? input : splat((real)g->gate[i]) * S + input;
    }
    for (int64_t i = 0; i < c->rows; i++) {
        vreal input = splat(dy[i]) * queries[i];
        G = c->reset[i] ? input : splat((real)c->gate[i]) * G + input;
        vreal product = in_columns(p, vector, G * states[i]);
        vint finite = magnitude_bits(states[i]) < splat_bits((integer)bits_of((real)INFINITY));
        dg[i] += g->reset[i] ? (vreal)((vint)product & finite) : product;
    }
}

static void walk_gates(const rl_attention_gates *g)
{
    const rl_attention_chunk *c = g->panel->chunk;
    gates_room room = room_of(g);
    vreal dg[RL_CHUNK] = {{0}};
    for (int v = 0; v < g->panel->vectors; v++)
        for (int64_t n = 0; n < c->keys; n++) walk_row(g, n, v, room.states, dg);
    for (int64_t i = 0; i < c->rows; i++)
        if (i < g->begin || i >= g->end) g->dg[i] = (double)sum_of_lanes(dg[i]);
}

void RL_NAME(rl_attention_begin_gates)(rl_attention_gates *g)
{
    find_steady(g);
    if (g->begin < g->end) g->across = cross(g);
    if (g->begin > 0 || g->end < g->panel->chunk->rows) walk_gates(g);
}

/* Columns as rows of [lanes][RL_CHUNK]. */
static void turn(const rl_attention_panel *p, const vreal *columns, real *turned)
{
    const int64_t rows = p->chunk->rows;
    for (int c = 0; c < p->vectors; c++)
        for (int64_t i = 0; i < RL_CHUNK; i += LANES) {
            vreal v[LANES];
            for (int k = 0; k < LANES; k++) v[k] = i + k < rows ? columns[c * RL_CHUNK + i + k] : (vreal){0};
            transpose(v);
            for (int k = 0; k < LANES; k++) *(vreal *)(turned + (c * LANES + k) * RL_CHUNK + i) = v[k];
        }
}

/* M: scale q_i · k_j of the panel's keys, then times β_j and dy_i · v_j, which the chunk has by v. */
static void multiply_steps(const rl_attention_gates *g, const gates_room *room)
{
    const rl_attention_panel *p = g->panel;
    const int64_t rows = p->chunk->rows, lanes = p->vectors * LANES;
    real *queries = room->turned, *keys = queries + RL_PANEL_VECTORS * LANES * RL_CHUNK, *M = room->product;
    turn(p, p->v, queries);
    turn(p, p->partner, keys);
    memset(M, 0, (size_t)(RL_CHUNK * RL_CHUNK) * sizeof(real));
    for (int64_t i = 0; i < rows; i += BLOCK_ROWS)
        for (int64_t j = i / LANES * LANES; j < rows; j += LANES) {
            vreal sums[BLOCK_ROWS] = {{0}};
            for (int64_t n = 0; n < lanes; n++) {
                vreal column = *(const vreal *)(keys + n * RL_CHUNK + j);
                for (int r = 0; r < BLOCK_ROWS; r++)
                    sums[r] = fma_(splat(queries[n * RL_CHUNK + i + r]), column, sums[r]);
            }
            for (int r = 0; r < BLOCK_ROWS; r++) *(vreal *)(M + (i + r) * RL_CHUNK + j) = sums[r];
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < rows; j++)
            M[i * RL_CHUNK + j] *= (real)g->beta[j] * ((const real *)p->chunk->plain)[j * RL_CHUNK + i];
}

/* The sum of D X, from the chunk's begin to its end; D has a row for each i, made from the row after it. */
static void sum_pairs(const rl_attention_gates *g, real *X, real (*D)[RL_CHUNK])
{
    const int64_t rows = g->panel->chunk->rows;
    memset(D[rows - 1], 0, sizeof D[0]);
    for (int64_t i = rows - 2; i >= 0; i--) {
        real gate = (real)g->gate[i + 1];
        for (int64_t j = 0; j < RL_CHUNK; j++) D[i][j] = gate * D[i + 1][j];
        D[i][i + 1] = 1;
    }
    for (int64_t i = 0; i < rows; i++) {
        real *row = X + i * RL_CHUNK, gate = i ? (real)g->gate[i - 1] : 0, sum = 0;
        for (int64_t j = 0; j < RL_CHUNK && i; j++) row[j] += gate * row[j - RL_CHUNK];
        for (int64_t j = i + 1; j < rows; j++) sum += D[i][j] * row[j];
        if (i >= g->begin && i < g->end) g->dg[i] = (double)sum;
    }
}

void RL_NAME(rl_attention_end_gates)(rl_attention_gates *g)
{
    if (g->begin >= g->end) return;
    const rl_attention_panel *p = g->panel;
    const int64_t rows = p->chunk->rows;
    const real *inner = p->inner, *read = g->read;
    gates_room room = room_of(g);
    multiply_steps(g, &room);
    sum_pairs(g, room.product, (real(*)[RL_CHUNK])room.decay);
    double before[RL_CHUNK], states[RL_CHUNK], first = p->chunk->gate[0], after = 1, sum = 0;
    for (int64_t i = rows - 1, whole = 1; i >= 0; i--, whole = 0) { /* B and the sums over w */
        before[i] = whole ? 1 : before[i + 1] * g->gate[i + 1];
        states[i] = whole ? 0 : g->gate[i + 1] * states[i + 1] + g->beta[i + 1] * first * (double)inner[i + 1];
    }
    for (int64_t i = 0; i < rows; i++) {
        sum = i ? sum * g->gate[i - 1] + (double)read[i] : (double)read[i];
        if (i >= g->begin && i < g->end)
            g->dg[i] += before[i] * sum + after * (states[i] + before[i] * first * g->across);
        after *= g->gate[i];
    }
}
