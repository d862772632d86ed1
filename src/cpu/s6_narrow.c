/*
 * Few channels and long sequences: the threads share one piece, which is walked in rounds of several tiles.  A round
 *   1. makes each tile's step sizes, and its B and C                                 (tiles in parallel),
 *   2. runs the recurrence over its tiles in turn             (vectors and slices of the states in parallel),
 *   3. sums each tile's slices in order, then skip, gate and store                   (tiles in parallel).
 * While the recurrence of one round runs, the round before is finished and the one after is prepared, so that a
 * recurrence of few states, which one thread must do, hides behind the others' work; a barrier parts the rounds.
 * Every number is computed as s6.c does, so the result's bits are the same.
 */
#include "s6.h"

#include <string.h>

enum { TILES_PER_THREAD = 8, MOST_TILES = 64, ROUNDS_AT_ONCE = 3 };

/* Offsets of arrays from `base`, and the sizes of their parts. */
typedef struct rl_narrow {
    char *base;
    int64_t tiles;        /* of a round */
    size_t array, inputs; /* bytes of a tile's array, and of its B and C */
    size_t x, rate, rate_rest, input, z,
        bound;     /* [vectors][ROUNDS_AT_ONCE][tiles] arrays; of bound: one vector each */
    size_t y;      /* [vectors][ROUNDS_AT_ONCE][tiles][slices, at least 1] arrays */
    size_t bc;     /* [groups, or vectors when spread][ROUNDS_AT_ONCE][tiles] inputs */
    size_t states; /* [vectors] rl_vector_state */
    size_t end;
} rl_narrow;

static int64_t y_arrays(const rl_s6 *scan)
{
    return scan->slices ? scan->slices : 1;
}

static rl_narrow lay_out(const rl_s6 *scan)
{
    int64_t tiles = (int64_t)scan->threads * TILES_PER_THREAD, sets = scan->spread ? scan->vectors : scan->groups;
    rl_narrow n = {.tiles = tiles < MOST_TILES ? tiles : MOST_TILES};
    n.array = (size_t)scan->tile_rows * scan->vector_size;
    n.inputs = rl_inputs_size(scan, scan->tile_rows);
    const size_t cells = (size_t)(scan->vectors * ROUNDS_AT_ONCE * n.tiles), all = cells * n.array;
    n.x = (sizeof n + 255) & ~(size_t)255;
    n.rate = n.x + all;
    n.rate_rest = n.rate + all;
    n.input = n.rate_rest + all;
    n.z = n.input + all;
    n.y = n.z + all;
    n.bound = n.y + all * (size_t)y_arrays(scan);
    n.states = n.bound + cells * scan->vector_size;
    n.bc = (n.states + (size_t)scan->vectors * rl_vector_state_size(scan) + 63) & ~(size_t)63;
    n.end = n.bc + (size_t)(sets * ROUNDS_AT_ONCE * n.tiles) * n.inputs;
    return n;
}

size_t rl_narrow_size(const rl_s6 *scan)
{
    return lay_out(scan).end;
}

void rl_narrow_plan(rl_s6 *scan, void *memory)
{
    scan->narrow = memory;
    *scan->narrow = lay_out(scan);
    scan->narrow->base = memory;
}

/* One vector's tile of a round, and the steps that it covers. */
typedef struct cell {
    rl_vector_place place;
    int64_t t, rows; /* the first step, of the piece; none where rows <= 0 */
    char *x, *z, *y, *bc;
    rl_steps steps;
} cell;

static cell cell_at(const rl_s6 *scan, const rl_piece *piece, int64_t turn, int64_t vector, int64_t tile)
{
    const rl_narrow *n = scan->narrow;
    const int64_t slot = turn % ROUNDS_AT_ONCE * n->tiles + tile, t = (turn * n->tiles + tile) * scan->tile_rows;
    const size_t index = (size_t)(vector * ROUNDS_AT_ONCE * n->tiles + slot), offset = index * n->array;
    const int64_t stripe = vector / scan->stripe_vectors, set = scan->spread ? vector : stripe;
    return (cell){.place = rl_vector_at(scan, stripe, vector % scan->stripe_vectors),
                  .t = t,
                  .rows = piece->length - t < scan->tile_rows ? piece->length - t : scan->tile_rows,
                  .x = n->base + n->x + offset,
                  .z = n->base + n->z + offset,
                  .y = n->base + n->y + offset * (size_t)y_arrays(scan),
                  .bc = n->base + n->bc + (size_t)(set * ROUNDS_AT_ONCE * n->tiles + slot) * n->inputs,
                  .steps = {.rate = n->base + n->rate + offset,
                            .rate_rest = n->base + n->rate_rest + offset,
                            .input = n->base + n->input + offset,
                            .bound = n->base + n->bound + index * scan->vector_size}};
}

static rl_vector_state state_of(const rl_s6 *scan, const rl_piece *piece, int64_t vector)
{
    const rl_narrow *n = scan->narrow;
    rl_vector_state v = rl_vector_state_in(scan, n->base + n->states + (size_t)vector * rl_vector_state_size(scan));
    if (piece->carry) v.h = (char *)piece->carry + (size_t)(vector * scan->states) * scan->vector_size;
    return v;
}

static void prepare_cell(const rl_s6 *scan, const rl_piece *piece, int64_t vector, const cell *c)
{
    const rl_kernels *k = scan->kernels;
    rl_vector_state v = state_of(scan, piece, vector);
    rl_step_rule rule = {.bias = scan->delta_bias.data ? v.bias : NULL,
                         .softplus = scan->softplus,
                         .low = scan->low,
                         .high = scan->high};
    k->prepare_step(&c->steps, rl_s6_rows(scan, &piece->delta, c->t, c->rows, c->place, c->steps.rate),
                    rl_s6_rows(scan, &piece->x, c->t, c->rows, c->place, c->x), c->rows, &rule);
    if (scan->spread || vector % scan->stripe_vectors == 0)
        rl_pack_inputs(scan, piece, c->place, c->t, c->rows, c->bc);
}

static void finish_cell(const rl_s6 *scan, const rl_piece *piece, int64_t vector, const cell *c)
{
    const rl_kernels *k = scan->kernels;
    rl_vector_state v = state_of(scan, piece, vector);
    if (scan->slices == 0) memset(c->y, 0, (size_t)c->rows * scan->vector_size);
    for (int64_t slice = 1; slice < scan->slices; slice++)
        k->add(c->y, c->y + (size_t)slice * scan->narrow->array, c->rows);
    rl_s6_finish(scan, piece, c->t, c->rows, c->place, &v, c->y,
                 rl_s6_rows(scan, &piece->x, c->t, c->rows, c->place, c->x), c->z);
}

/* One slice of one vector's states through a round. */
static void recur_round(const rl_s6 *scan, const rl_piece *piece, int64_t turn, int64_t vector, int64_t slice)
{
    rl_vector_state v = state_of(scan, piece, vector);
    for (int64_t tile = 0; tile < scan->narrow->tiles; tile++) {
        cell c = cell_at(scan, piece, turn, vector, tile);
        if (c.rows <= 0) break;
        rl_recurrence r = {.rows = c.rows,
                           .rate = c.steps.rate,
                           .rate_rest = c.steps.rate_rest,
                           .input = c.steps.input,
                           .bound = c.steps.bound,
                           .bc = c.bc,
                           .y = c.y + (size_t)slice * scan->narrow->array,
                           .fresh = c.t == 0 && rl_starts_fresh(scan, piece)};
        rl_recur_slice(scan, &v, r, slice);
    }
}

/* The recurrence of one round, the end of the one before and the beginning of the one after; the longest first. */
static void run_turn(const rl_s6 *scan, const rl_piece *piece, int64_t turn, int64_t turns)
{
    const int64_t tiles = scan->narrow->tiles, cells = scan->vectors * tiles;
    const int64_t recurrences = turn >= 0 && turn < turns ? scan->vectors * scan->slices : 0;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < recurrences + 2 * cells; task++) {
        int64_t i = task - recurrences, vector = i % cells / tiles;
        if (i < 0) {
            recur_round(scan, piece, turn, task / scan->slices, task % scan->slices);
            continue;
        }
        int64_t other = i < cells ? turn - 1 : turn + 1;
        if (other < 0 || other >= turns) continue;
        cell c = cell_at(scan, piece, other, vector, i % tiles);
        if (c.rows <= 0) continue;
        if (i < cells)
            finish_cell(scan, piece, vector, &c);
        else
            prepare_cell(scan, piece, vector, &c);
    }
}

void rl_narrow_run(const rl_s6 *scan, const rl_piece *piece)
{
    const int64_t steps = scan->narrow->tiles * scan->tile_rows, turns = (piece->length + steps - 1) / steps;
#pragma omp for schedule(static)
    for (int64_t vector = 0; vector < scan->vectors; vector++) {
        rl_vector_state v = state_of(scan, piece, vector);
        rl_vector_place place = rl_vector_at(scan, vector / scan->stripe_vectors, vector % scan->stripe_vectors);
        rl_load_parameters(scan, place, &v);
        rl_load_state(scan, piece, place, v.h);
    }
    for (int64_t turn = -1; turn <= turns; turn++) run_turn(scan, piece, turn, turns);
#pragma omp for schedule(static)
    for (int64_t vector = 0; vector < scan->vectors; vector++) {
        rl_vector_state v = state_of(scan, piece, vector);
        rl_vector_place place = rl_vector_at(scan, vector / scan->stripe_vectors, vector % scan->stripe_vectors);
        rl_store_state(scan, piece, place, v.h);
    }
}
