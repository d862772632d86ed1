#include "s6_back.h"

#include <omp.h>
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
    const size_t states = (size_t)back->problem->states, vector = back->vector_size, row = RL_BACK_ROWS * vector;
    const size_t blocks = (states + RL_STATE_BLOCK - 1) / RL_STATE_BLOCK, kept = (size_t)back->block_vectors * states;
    const size_t own = rl_vector_state_size(&back->forward) + states * vector;
    const size_t groups = back->forward.spread ? (size_t)back->kernels->lanes : 1;
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

/* A sequence of a block of channels. */
typedef struct line {
    const rl_s6_back *back;
    rl_back_scratch *scratch;
    rl_piece piece;
    rl_series dy, dx, ddelta, dz, dB, dC;
    int64_t first, count, part; /* vectors */
} line;

static rl_series sums_series(const rl_s6_back *back, const rill_tensor *tensor, rl_sequence s, int64_t block)
{
    rl_series series = rl_series_of(tensor, s, 0);
    if (series.data) series.data = (char *)series.data + (size_t)(block % back->stripe_blocks) * back->sums_step;
    return series;
}

static void enter_sequence(line *l, int64_t sequence, int64_t block)
{
    const rl_selective_scan_backward_problem *p = l->back->problem;
    rl_sequence s = rl_sequence_of(&p->offsets, sequence, p->length, p->reverse);
    l->piece = (rl_piece){.sequence = sequence, .length = s.length, .first = true, .last = true};
    if (s.length == 0) return;
    l->piece.x = rl_series_of(&p->x, s, 0);
    l->piece.delta = rl_series_of(&p->delta, s, 0);
    l->piece.B = rl_series_of(&p->B, s, 0);
    l->piece.C = rl_series_of(&p->C, s, 0);
    l->piece.z = rl_series_of(&p->z, s, 0);
    l->dy = rl_series_of(&p->dy, s, 0);
    l->dx = rl_series_of(&p->dx, s, 0);
    l->ddelta = rl_series_of(&p->ddelta, s, 0);
    l->dz = rl_series_of(&p->dz, s, 0);
    l->dB = sums_series(l->back, &l->back->dB, s, block);
    l->dC = sums_series(l->back, &l->back->dC, s, block);
}

static rl_vector_state vector_of(const line *l, int64_t i, char **G)
{
    const size_t own = rl_vector_state_size(&l->back->forward);
    char *memory = l->scratch->vectors;
    memory += (size_t)i * (own + (size_t)l->back->problem->states * l->back->vector_size);
    *G = memory + own;
    return rl_vector_state_in(&l->back->forward, memory);
}

static char *kept_at(const line *l, int64_t tile, int64_t i)
{
    const size_t size = (size_t)l->back->problem->states * l->back->vector_size;
    return l->scratch->kept + (size_t)(tile * l->back->block_vectors + i) * size;
}

static void load_rows(const line *l, void *to, const rl_series *from, int64_t t, rl_vector_place place)
{
    const rl_kernels *k = l->back->kernels;
    rl_matrix m = rl_series_rows(from, t, place.channel);
    k->load(to, k->lanes, &m, l->scratch->tile.rows, place.lanes);
}

static void store_rows(const line *l, const rl_series *to, const void *from, int64_t t, rl_vector_place place)
{
    if (!to->data) return;
    rl_matrix m = rl_series_rows(to, t, place.channel);
    l->back->kernels->store(&m, from, l->scratch->tile.rows, place.lanes);
}

static rl_step_rule rule_of(const line *l, const rl_vector_state *v)
{
    const rl_selective_scan_backward_problem *p = l->back->problem;
    return (rl_step_rule){.bias = p->delta_bias.data ? v->bias : NULL,
                          .softplus = p->delta_softplus,
                          .low = p->delta_min,
                          .high = p->delta_max};
}

static bool is_fresh(const line *l, int64_t t)
{
    return t == 0 && rl_starts_fresh(&l->back->forward, &l->piece);
}

/* The tile that follows, for its rows to be fetched: see s6.c.  The two first arrays are all that a run forward
 * reads.
 */
static void look_ahead(const line *l, int64_t tile, int64_t i)
{
    const rl_series *series[RL_BACK_AHEAD] = {&l->piece.x, &l->piece.delta, &l->dy, &l->piece.z,
                                              &l->dx,      &l->ddelta,      &l->dz};
    const int64_t t = tile * RL_BACK_ROWS, channel = rl_back_place(l->back, l->first + i).channel;
    for (int at = 0; at < RL_BACK_AHEAD; at++) {
        l->scratch->tile.ahead[at].data = NULL;
        if (!series[at]->data || series[at]->lane != 1 || t < 0 || t >= l->piece.length) continue;
        rl_matrix m = rl_series_rows(series[at], t, channel);
        l->scratch->tile.ahead[at].data = m.data;
        l->scratch->tile.ahead[at].step = m.row * (int64_t)rill_dtype_size(m.dtype);
    }
}

/* The states after a tile, from those before it. */
static void run_tile(const line *l, int64_t tile, int64_t i)
{
    const rl_s6_back *back = l->back;
    const rl_kernels *k = back->kernels;
    rl_back_scratch *s = l->scratch;
    rl_vector_place place = rl_back_place(back, l->first + i);
    const int64_t t = tile * RL_BACK_ROWS;
    char *G, *h = kept_at(l, tile + 1, i);
    rl_vector_state v = vector_of(l, i, &G);
    rl_step_rule rule = rule_of(l, &v);
    memcpy(h, kept_at(l, tile, i), (size_t)back->problem->states * back->vector_size);
    load_rows(l, s->tile.x, &l->piece.x, t, place);
    load_rows(l, s->tile.size, &l->piece.delta, t, place);
    k->prepare_step(&s->tile.steps, s->tile.size, s->tile.x, s->tile.rows, &rule);
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
        r.ahead = s->tile.ahead[slice].data;
        r.ahead_step = s->tile.ahead[slice].step;
        rl_recur_slice(&back->forward, &v, r, slice);
    }
}

/* Keeps the states before each tile; what the last tile leaves is not wanted. */
static void keep_states(const line *l)
{
    const rl_s6_back *back = l->back;
    const int64_t tiles = tiles_of(l->piece.length);
    if (tiles == 0 || back->problem->states == 0) return;
    for (int64_t i = 0; i < l->count; i++)
        rl_load_state(&back->forward, &l->piece, rl_back_place(back, l->first + i), kept_at(l, 0, i));
    l->scratch->tile.rows = RL_BACK_ROWS;
    for (int64_t tile = 0; tile < tiles - 1; tile++) {
        rl_pack_inputs(&back->forward, &l->piece, rl_back_place(back, l->first), tile * RL_BACK_ROWS, RL_BACK_ROWS,
                       l->scratch->bc);
        for (int64_t i = 0; i < l->count; i++) {
            bool inside = i + 1 < l->count;
            look_ahead(l, inside ? tile : tile + 1, inside ? i + 1 : 0);
            run_tile(l, tile, i);
        }
    }
}

static void load_tile(const line *l, int64_t t, rl_vector_place place, const rl_vector_state *v)
{
    rl_back_scratch *s = l->scratch;
    rl_step_rule rule = rule_of(l, v);
    load_rows(l, s->tile.x, &l->piece.x, t, place);
    load_rows(l, s->tile.size, &l->piece.delta, t, place);
    l->back->kernels->back->take_steps(&s->tile, &rule);
    if (s->tile.z) load_rows(l, s->tile.z, &l->piece.z, t, place);
    if (!s->tile.dy) return;
    load_rows(l, s->tile.dy, &l->dy, t, place);
    l->back->kernels->back->enter_gate(&s->tile);
}

static void run_tile_back(const line *l, int64_t tile, int64_t i)
{
    const rl_s6_back *back = l->back;
    const rl_selective_scan_backward_problem *p = back->problem;
    rl_back_scratch *s = l->scratch;
    rl_vector_place place = rl_back_place(back, l->first + i);
    const int64_t t = tile * RL_BACK_ROWS;
    char *G, *dA = rl_back_sums(back, l->part, l->first + i), *dD = dA + (size_t)p->states * back->vector_size;
    rl_vector_state v = vector_of(l, i, &G);
    load_tile(l, t, place, &v);
    back->kernels->back->recur(&s->tile, &(rl_back_states){.states = p->states,
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
                                                           .spread = back->forward.spread});
    back->kernels->back->leave_steps(&s->tile, p->D.data ? v.D : NULL, dD, dD + back->vector_size);
    store_rows(l, &l->dx, s->tile.along_B, t, place);
    store_rows(l, &l->ddelta, s->tile.along_size, t, place);
    store_rows(l, &l->dz, s->tile.y, t, place);
}

/* Sums over lanes, LANES states at a time. */
static void store_sums(const line *l, const rl_series *to, const char *numbers, int64_t t)
{
    const rl_s6_back *back = l->back;
    const rl_selective_scan_backward_problem *p = back->problem;
    const int64_t lanes = back->kernels->lanes, group_channels = p->channels / p->groups;
    rl_vector_place place = rl_back_place(back, l->first);
    rl_lane_sums shape = {.rows = l->scratch->tile.rows, .groups = 1, .members = lanes};
    if (back->forward.spread) shape.groups = place.lanes / group_channels, shape.members = group_channels;
    for (int64_t n = 0; n < p->states && to->data; n += lanes) {
        shape.first = n;
        shape.states = rl_least(lanes, p->states - n);
        back->kernels->back->sum_lanes(l->scratch->lanes, numbers, &shape);
        for (int64_t group = 0; group < shape.groups; group++) {
            int64_t at = (place.channel / group_channels + group) * to->group;
            rl_matrix m = rl_series_rows(to, t, n);
            m.data = (char *)m.data + at * (int64_t)rill_dtype_size(m.dtype);
            const char *rows = l->scratch->lanes + (size_t)(group * shape.rows) * back->vector_size;
            back->kernels->store(&m, rows, shape.rows, shape.states);
        }
    }
}

/* The last vector comes first: lanes that it lacks may hold anything, and are made zero before others add to them. */
static void run_block_back(const line *l, int64_t tile)
{
    const rl_s6_back *back = l->back;
    rl_back_scratch *s = l->scratch;
    const int64_t t = tile * RL_BACK_ROWS, states = back->problem->states;
    const int64_t entries = (states + RL_STATE_BLOCK - 1) / RL_STATE_BLOCK * RL_STATE_BLOCK * s->tile.rows;
    const int64_t lanes = rl_back_place(back, l->first + l->count - 1).lanes;
    rl_pack_inputs(&back->forward, &l->piece, rl_back_place(back, l->first), t, s->tile.rows, s->bc);
    memset(s->dB, 0, (size_t)entries * back->vector_size);
    memset(s->dC, 0, (size_t)entries * back->vector_size);
    for (int64_t i = 0; i < l->count; i++) {
        bool inside = i + 1 < l->count;
        look_ahead(l, inside ? tile : tile - 1, inside ? i : l->count - 1);
        run_tile_back(l, tile, i == 0 ? l->count - 1 : i - 1);
        if (i > 0 || lanes == back->kernels->lanes) continue;
        back->kernels->back->clear_lanes(s->dB, entries, lanes);
        back->kernels->back->clear_lanes(s->dC, entries, lanes);
    }
    store_sums(l, &l->dB, s->dB, t);
    store_sums(l, &l->dC, s->dC, t);
}

static void run_sequence(const line *l)
{
    const rl_s6_back *back = l->back;
    char *G;
    for (int64_t i = 0; i < l->count; i++) {
        vector_of(l, i, &G);
        rl_load_state(&back->gradient, &l->piece, rl_back_place(back, l->first + i), G);
    }
    keep_states(l);
    for (int64_t tile = tiles_of(l->piece.length); tile-- > 0;) {
        l->scratch->tile.rows = rl_least(RL_BACK_ROWS, l->piece.length - tile * RL_BACK_ROWS);
        run_block_back(l, tile);
    }
    for (int64_t i = 0; i < l->count; i++) {
        vector_of(l, i, &G);
        rl_store_state(&back->gradient, &l->piece, rl_back_place(back, l->first + i), G);
    }
}

void rl_back_run_task(const rl_s6_back *back, int64_t task)
{
    const rl_selective_scan_backward_problem *p = back->problem;
    rl_back_scratch scratch;
    const int64_t block = task % back->blocks, stripe = block / back->stripe_blocks,
                  begin = block % back->stripe_blocks * back->block_vectors;
    line l = {.back = back,
              .scratch = &scratch,
              .first = stripe * back->stripe_vectors + begin,
              .count = rl_least(back->block_vectors, back->stripe_vectors - begin),
              .part = task / back->blocks};
    rl_back_lay_out(back, rl_back_scratch_of(back, omp_get_thread_num()), &scratch);
    if (!p->dy.data) scratch.tile.dy = NULL;
    if (!p->z.data) scratch.tile.z = NULL;
    memset(rl_back_sums(back, l.part, l.first), 0, (size_t)(l.count * (p->states + 2)) * back->vector_size);
    for (int64_t i = 0; i < l.count; i++) {
        char *G;
        rl_vector_state v = vector_of(&l, i, &G);
        rl_load_parameters(&back->forward, rl_back_place(back, l.first + i), &v);
    }
    const int64_t end = p->sequences * (l.part + 1) / back->parts;
    for (int64_t sequence = p->sequences * l.part / back->parts; sequence < end; sequence++) {
        enter_sequence(&l, sequence, block);
        run_sequence(&l);
    }
}
