#include "s6_back.h"

#include <string.h>

#include "../counts.h"

/* Between arrays, whose sizes are powers of two: stores into one would else hold up loads from the same place in a
 * page of another. */
enum { APART = 9 * 64 };

static int64_t tiles_of(int64_t length)
{
    return (length + RL_BACK_ROWS - 1) / RL_BACK_ROWS;
}

size_t rl_back_lay_out(const rl_s6_back *back, char *memory, rl_back_scratch *s)
{
    const size_t states = (size_t)back->forward.states, vector = back->forward.vector_size,
                 row = RL_BACK_ROWS * vector;
    const size_t blocks = (states + RL_STATE_BLOCK - 1) / RL_STATE_BLOCK, kept = (size_t)back->block_vectors * states;
    const size_t own = rl_vector_state_size(&back->forward) + states * vector;
    const size_t groups = back->forward.spread ? (size_t)back->forward.kernels->lanes : 1;
    rl_back_tile *t = &s->tile;
    const struct {
        void *array;
        size_t bytes;
    } arrays[] = {{&t->steps.bound, vector},
                  {&t->x, row},
                  {&t->size, row},
                  {&t->slope, row},
                  {&t->steps.rate, row},
                  {&t->steps.rate_rest, row},
                  {&t->steps.input, row},
                  {&t->dy, row},
                  {&t->z, row},
                  {&t->du, row},
                  {&t->along_B, row},
                  {&t->along_size, row},
                  {&t->y, row},
                  {&s->held, row * RL_STATE_BLOCK + RL_STATE_BLOCK * vector},
                  {&s->decays, row * RL_STATE_BLOCK},
                  {&s->bc, rl_inputs_size(&back->forward, RL_BACK_ROWS)},
                  {&s->dB, row * RL_STATE_BLOCK * blocks},
                  {&s->dC, row * RL_STATE_BLOCK * blocks},
                  {&s->lanes, row * groups},
                  {&s->vectors, own * (size_t)back->block_vectors},
                  {&s->kept, kept * vector * (size_t)tiles_of(back->longest)}};
    size_t size = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        char *at = memory ? memory + size : NULL;
        memcpy(arrays[i].array, &at, sizeof at);
        size += ((arrays[i].bytes + 63) & ~(size_t)63) + APART;
    }
    return size;
}

/* A piece of a block of channels. */
typedef struct line {
    const rl_s6_back *back;
    rl_back_scratch *scratch;
    rl_back_piece piece;
    int64_t first, count, part; /* vectors */
} line;

static rl_vector_state vector_of(const line *l, int64_t i, char **G)
{
    const size_t own = rl_vector_state_size(&l->back->forward);
    char *memory = l->scratch->vectors;
    memory += (size_t)i * (own + (size_t)l->back->forward.states * l->back->forward.vector_size);
    *G = memory + own;
    return rl_vector_state_in(&l->back->forward, memory);
}

static char *kept_at(const line *l, int64_t tile, int64_t i)
{
    const size_t size = (size_t)l->back->forward.states * l->back->forward.vector_size;
    return l->scratch->kept + (size_t)(tile * l->back->block_vectors + i) * size;
}

static rl_rows rows_of(const line *l, void *room, const rl_series *from, int64_t t, rl_vector_place place)
{
    return rl_s6_rows(&l->back->forward, from, t, l->scratch->tile.rows, place, room);
}

static void store_rows(const line *l, const rl_series *to, const void *from, int64_t t, rl_vector_place place)
{
    if (!to->data) return;
    rl_matrix m = rl_series_rows(to, t, place.channel);
    l->back->forward.kernels->store(&m, from, l->scratch->tile.rows, place.lanes);
}

static rl_step_rule rule_of(const line *l, const rl_vector_state *v)
{
    const rl_s6 *scan = &l->back->forward;
    return (rl_step_rule){.bias = scan->delta_bias.data ? v->bias : NULL,
                          .softplus = scan->softplus,
                          .low = scan->low,
                          .high = scan->high};
}

static bool is_fresh(const line *l, int64_t t)
{
    return t == 0 && rl_starts_fresh(&l->back->forward, &l->piece.steps);
}

/*
 * The tile that follows, for its rows to be fetched: see s6.c.  Of the arrays that it reads and writes the first
 * `wanted` are: a run forward reads two.  The recurrence fetches `most`, what is left the passes before it.
 */
static void look_ahead(const line *l, int64_t tile, int64_t i, int wanted, int64_t most)
{
    const rl_back_piece *p = &l->piece;
    const rl_series *series[RL_BACK_AHEAD] = {&p->steps.x, &p->steps.delta, &p->dy, &p->dx,
                                              &p->ddelta,  &p->steps.z,     &p->dz};
    const int64_t t = tile * RL_BACK_ROWS,
                  end = rl_back_place(l->back, l->first + i).channel + l->back->forward.kernels->lanes;
    rl_back_tile *own = &l->scratch->tile;
    int at = 0;
    for (int k = 0; k < RL_BACK_AHEAD; k++) own->ahead[k].data = NULL;
    for (int k = 0; k < RL_BACK_PASSES; k++) own->passes[k].data = NULL;
    for (int k = 0; k < wanted; k++) {
        if (!series[k]->data || series[k]->lane != 1 || t < 0 || t >= p->steps.length) continue;
        if (at == most + RL_BACK_PASSES) return;
        rl_rows *rows = at < most ? &own->ahead[at] : &own->passes[at - most];
        rl_matrix m = rl_series_rows(series[k], t, end);
        rows->data = (char *)m.data - 1;
        rows->step = m.row * (int64_t)rill_dtype_size(m.dtype);
        at++;
    }
}

/* The states after a tile, from those before it; both may be the same memory. */
static void run_tile(const line *l, int64_t t, int64_t i, const char *before, char *h)
{
    const rl_s6_back *back = l->back;
    const rl_kernels *k = back->forward.kernels;
    rl_back_scratch *s = l->scratch;
    rl_vector_place place = rl_back_place(back, l->first + i);
    char *G;
    rl_vector_state v = vector_of(l, i, &G);
    rl_step_rule rule = rule_of(l, &v);
    rule.ahead = s->tile.passes;
    if (h != before) memcpy(h, before, (size_t)back->forward.states * back->forward.vector_size);
    k->prepare_step(&s->tile.steps, rows_of(l, s->tile.size, &l->piece.steps.delta, t, place),
                    rows_of(l, s->tile.x, &l->piece.steps.x, t, place), s->tile.rows, &rule);
    v.h = h;
    rl_recurrence r = {.rows = s->tile.rows,
                       .rate = s->tile.steps.rate,
                       .rate_rest = s->tile.steps.rate_rest,
                       .input = s->tile.steps.input,
                       .bound = s->tile.steps.bound,
                       .bc = s->bc,
                       .y = s->tile.y,
                       .fresh = is_fresh(l, t)};
    for (int64_t slice = 0; slice < back->forward.slices; slice++) {
        r.ahead = &s->tile.ahead[slice];
        rl_recur_slice(&back->forward, &v, r, slice);
    }
}

/* A vector's part of what pieces hand on. */
static char *carried(const line *l, void *carry, int64_t i)
{
    const rl_s6 *scan = &l->back->forward;
    const int64_t index = rl_back_place(l->back, l->first + i).index;
    return (char *)carry + (size_t)(index * scan->states) * scan->vector_size;
}

static void enter_states(const line *l)
{
    const rl_s6 *scan = &l->back->forward;
    const size_t size = (size_t)scan->states * scan->vector_size;
    for (int64_t i = 0; i < l->count && size > 0; i++)
        if (l->piece.steps.first)
            rl_load_state(scan, &l->piece.steps, rl_back_place(l->back, l->first + i), kept_at(l, 0, i));
        else
            memcpy(kept_at(l, 0, i), carried(l, l->piece.steps.carry, i), size);
}

/* Keeps the states before each tile, what the last tile leaves not being wanted; or only that, in the first's place.
 */
static void run_forward(const line *l, bool keep)
{
    const rl_s6_back *back = l->back;
    const int64_t tiles = tiles_of(l->piece.steps.length);
    if (tiles == 0 || back->forward.states == 0) return;
    enter_states(l);
    for (int64_t tile = 0; tile < tiles - keep; tile++) {
        const int64_t t = tile * RL_BACK_ROWS, rows = rl_least(RL_BACK_ROWS, l->piece.steps.length - t);
        l->scratch->tile.rows = rows;
        rl_pack_inputs(&back->forward, &l->piece.steps, rl_back_place(back, l->first), t, rows, l->scratch->bc);
        for (int64_t i = 0; i < l->count; i++) {
            bool inside = i + 1 < l->count;
            look_ahead(l, inside ? tile : tile + 1, inside ? i + 1 : 0, 2, back->forward.slices);
            run_tile(l, t, i, kept_at(l, keep ? tile : 0, i), kept_at(l, keep ? tile + 1 : 0, i));
        }
    }
}

static void leave_states(const line *l)
{
    const rl_s6 *scan = &l->back->forward;
    for (int64_t i = 0; i < l->count; i++)
        memcpy(carried(l, l->piece.after, i), kept_at(l, 0, i), (size_t)scan->states * scan->vector_size);
}

static void load_tile(const line *l, int64_t t, rl_vector_place place, const rl_vector_state *v)
{
    rl_back_scratch *s = l->scratch;
    rl_step_rule rule = rule_of(l, v);
    const rl_back_kernels *k = l->back->forward.kernels->back;
    k->take_steps(&s->tile, rows_of(l, s->tile.x, &l->piece.steps.x, t, place),
                  rows_of(l, s->tile.size, &l->piece.steps.delta, t, place), &rule);
    if (s->tile.z) {
        const rl_matrix z = rl_series_rows(&l->piece.steps.z, t, place.channel);
        l->back->forward.kernels->load(s->tile.z, l->back->forward.kernels->lanes, &z, s->tile.rows, place.lanes);
    }
    if (s->tile.dy) k->enter_gate(&s->tile, rows_of(l, s->tile.dy, &l->piece.dy, t, place));
}

static void run_tile_back(const line *l, int64_t tile, int64_t i)
{
    const rl_s6_back *back = l->back;
    const rl_s6 *scan = &back->forward;
    rl_back_scratch *s = l->scratch;
    rl_vector_place place = rl_back_place(back, l->first + i);
    const int64_t t = tile * RL_BACK_ROWS;
    char *G, *dA = rl_back_sums(back, l->part, l->first + i), *dD = dA + (size_t)scan->states * scan->vector_size;
    rl_vector_state v = vector_of(l, i, &G);
    load_tile(l, t, place, &v);
    scan->kernels->back->recur(&s->tile, &(rl_back_states){.states = scan->states,
                                                           .A = v.A,
                                                           .A_bound = v.A_bound,
                                                           .bc = s->bc,
                                                           .h = kept_at(l, tile, i),
                                                           .G = G,
                                                           .dA = dA,
                                                           .dB = s->dB,
                                                           .dC = s->dC,
                                                           .held = s->held,
                                                           .decays = s->decays,
                                                           .fresh = is_fresh(l, t),
                                                           .spread = scan->spread});
    const rl_rows dx = rl_s6_target(scan, &l->piece.dx, t, place, s->tile.along_B);
    const rl_rows ddelta = rl_s6_target(scan, &l->piece.ddelta, t, place, s->tile.along_size);
    scan->kernels->back->leave_steps(&s->tile, dx, ddelta, scan->D.data ? v.D : NULL, dD, dD + scan->vector_size);
    if (dx.data == s->tile.along_B) store_rows(l, &l->piece.dx, s->tile.along_B, t, place);
    if (ddelta.data == s->tile.along_size) store_rows(l, &l->piece.ddelta, s->tile.along_size, t, place);
    store_rows(l, &l->piece.dz, s->tile.y, t, place);
}

/* Sums over lanes, LANES states at a time. */
static void store_sums(const line *l, const rl_series *to, const char *numbers, int64_t t)
{
    const rl_s6_back *back = l->back;
    const rl_s6 *scan = &back->forward;
    const int64_t lanes = scan->kernels->lanes, group_channels = scan->channels / scan->groups;
    rl_vector_place place = rl_back_place(back, l->first);
    rl_lane_sums shape = {.rows = l->scratch->tile.rows, .groups = 1, .members = lanes};
    if (scan->spread) shape.groups = place.lanes / group_channels, shape.members = group_channels;
    for (int64_t n = 0; n < scan->states && to->data; n += lanes) {
        shape.first = n;
        shape.states = rl_least(lanes, scan->states - n);
        scan->kernels->back->sum_lanes(l->scratch->lanes, numbers, &shape);
        for (int64_t group = 0; group < shape.groups; group++) {
            int64_t at = (place.channel / group_channels + group) * to->group;
            rl_matrix m = rl_series_rows(to, t, n);
            m.data = (char *)m.data + at * (int64_t)rill_dtype_size(m.dtype);
            const char *rows = l->scratch->lanes + (size_t)(group * shape.rows) * scan->vector_size;
            scan->kernels->store(&m, rows, shape.rows, shape.states);
        }
    }
}

/* The last vector comes first: lanes that it lacks may hold anything, and are made zero before others add to them. */
static void run_block_back(const line *l, int64_t tile)
{
    const rl_s6_back *back = l->back;
    rl_back_scratch *s = l->scratch;
    const int64_t t = tile * RL_BACK_ROWS, states = back->forward.states;
    const int64_t entries = (states + RL_STATE_BLOCK - 1) / RL_STATE_BLOCK * RL_STATE_BLOCK * s->tile.rows;
    const int64_t lanes = rl_back_place(back, l->first + l->count - 1).lanes;
    rl_pack_inputs(&back->forward, &l->piece.steps, rl_back_place(back, l->first), t, s->tile.rows, s->bc);
    memset(s->dB, 0, (size_t)entries * back->forward.vector_size);
    memset(s->dC, 0, (size_t)entries * back->forward.vector_size);
    for (int64_t i = 0; i < l->count; i++) {
        bool inside = i + 1 < l->count;
        look_ahead(l, inside ? tile : tile - 1, inside ? i : l->count - 1, RL_BACK_AHEAD,
                   rl_least(2 * back->forward.state_blocks, RL_BACK_AHEAD));
        run_tile_back(l, tile, i == 0 ? l->count - 1 : i - 1);
        if (i > 0 || lanes == back->forward.kernels->lanes) continue;
        back->forward.kernels->back->clear_lanes(s->dB, entries, lanes);
        back->forward.kernels->back->clear_lanes(s->dC, entries, lanes);
    }
    store_sums(l, &l->piece.dB, s->dB, t);
    store_sums(l, &l->piece.dC, s->dC, t);
}

/* A piece as its gradient runs: the other way. */
static rl_piece turned(const rl_piece *steps)
{
    return (rl_piece){
        .sequence = steps->sequence, .length = steps->length, .first = steps->last, .last = steps->first};
}

static void enter_gradient(const line *l)
{
    const rl_s6 *gradient = &l->back->gradient;
    const rl_piece steps = turned(&l->piece.steps);
    char *G;
    for (int64_t i = 0; i < l->count; i++) {
        vector_of(l, i, &G);
        if (steps.first)
            rl_load_state(gradient, &steps, rl_back_place(l->back, l->first + i), G);
        else
            memcpy(G, carried(l, l->piece.G, i), (size_t)gradient->states * gradient->vector_size);
    }
}

static void leave_gradient(const line *l)
{
    const rl_s6 *gradient = &l->back->gradient;
    const rl_piece steps = turned(&l->piece.steps);
    char *G;
    for (int64_t i = 0; i < l->count; i++) {
        vector_of(l, i, &G);
        if (steps.last)
            rl_store_state(gradient, &steps, rl_back_place(l->back, l->first + i), G);
        else
            memcpy(carried(l, l->piece.G, i), G, (size_t)gradient->states * gradient->vector_size);
    }
}

static void run_piece(const line *l)
{
    const int64_t length = l->piece.steps.length;
    if (l->piece.after) {
        run_forward(l, false);
        leave_states(l);
        return;
    }
    enter_gradient(l);
    run_forward(l, true);
    for (int64_t tile = tiles_of(length); tile-- > 0;) {
        l->scratch->tile.rows = rl_least(RL_BACK_ROWS, length - tile * RL_BACK_ROWS);
        run_block_back(l, tile);
    }
    leave_gradient(l);
}

void rl_back_run_task(const rl_s6_back *back, const rl_back_pieces *pieces, int64_t task, int64_t worker)
{
    rl_back_scratch scratch;
    const int64_t block = task % back->blocks, stripe = block / back->stripe_blocks, part = task / back->blocks,
                  begin = block % back->stripe_blocks * back->block_vectors;
    const int64_t first = pieces->count * part / back->parts, end = pieces->count * (part + 1) / back->parts;
    if (first == end) return;
    line l = {.back = back,
              .scratch = &scratch,
              .first = stripe * back->stripe_vectors + begin,
              .count = rl_least(back->block_vectors, back->stripe_vectors - begin),
              .part = part};
    rl_back_lay_out(back, rl_back_scratch_of(back, worker), &scratch);
    if (!back->has_dy) scratch.tile.dy = NULL;
    if (!back->forward.gated) scratch.tile.z = NULL;
    for (int64_t i = 0; i < l.count; i++) {
        char *G;
        rl_vector_state v = vector_of(&l, i, &G);
        rl_load_parameters(&back->forward, rl_back_place(back, l.first + i), &v);
    }
    for (int64_t index = first; index < end; index++) {
        pieces->get(pieces->owner, index, block % back->stripe_blocks, &l.piece);
        run_piece(&l);
    }
}
