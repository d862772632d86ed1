/* The lines of a walk: states in and out, chunks prepared, panels walked. */
#include "linear_attention.h"

#include <math.h>
#include <string.h>

#include "../counts.h"
#include "linear_attention_chunk.h"

static int64_t round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/*
 * Operations of a step on vectors: 4 of the loop, 2 of the products for each vector of the state, then q·k, of which
 * a little more than half is computed, its product with v, and about 60 for the rest.
 */
static void plan_costs(rl_attention_walk *w, int64_t longest)
{
    const int64_t loop = 4 * w->keys, products = 2 * w->keys + RL_CHUNK / 2;
    const int64_t chunk = w->keys * (RL_CHUNK / w->kernels->lanes) * 3 / 4 + 60;
    w->may_multiply = longest >= RL_LEAST_ROWS && loop * w->vectors > products * w->vectors + chunk;
    w->chunk_cost = w->may_multiply ? chunk : 60;
    w->vector_cost = w->may_multiply ? products : loop;
}

void rl_attention_plan(rl_attention_walk *w)
{
    const int64_t lanes = w->kernels->lanes;
    w->real_size = w->f64 ? sizeof(double) : sizeof(float);
    w->vector_size = (size_t)lanes * w->real_size;
    w->lines = w->sequences * (w->heads / w->members);
    w->vectors = (w->values + lanes - 1) / lanes;
    w->panels = (w->vectors + RL_PANEL_VECTORS - 1) / RL_PANEL_VECTORS;
    w->state_rows = round_up(w->keys, RL_STATE_ROWS);
    w->q_pitch = round_up(w->keys, lanes > RL_STATE_ROWS ? lanes : RL_STATE_ROWS);
    const int64_t longest = rl_longest_sequence(&w->offsets, w->sequences, w->length);
    w->chunks = (longest + RL_CHUNK - 1) / RL_CHUNK;
    w->panel_size = (size_t)(RL_PANEL_VECTORS * w->state_rows) * w->vector_size + 64;
    w->slot_size = rl_attention_slot_size(w);
    w->scratch_size = 5 * RL_PANEL_VECTORS * RL_CHUNK * w->vector_size + 2 * RL_CHUNK * w->real_size;
    w->scratch_size = (w->scratch_size + 255) & ~(size_t)255;
    plan_costs(w, longest);
}

rl_attention_line rl_attention_line_of(const rl_attention_walk *w, int64_t index)
{
    const int64_t heads = w->heads / w->members;
    rl_attention_line line = {.sequence = index / heads, .head = index % heads};
    line.s = rl_sequence_of(&w->offsets, line.sequence, w->length, w->reverse);
    line.chunks = (line.s.length + RL_CHUNK - 1) / RL_CHUNK;
    return line;
}

rl_attention_state rl_attention_state_at(const rl_attention_walk *w, const rl_attention_group *group, char *states,
                                         int64_t index, int64_t member, int64_t panel)
{
    const int64_t at = (index * w->members + member) * group->panels + panel - group->first_panel;
    char *numbers = states + (size_t)at * w->panel_size;
    return (rl_attention_state){numbers, (int64_t *)(numbers + w->panel_size - 64)};
}

static int vectors_of(const rl_attention_walk *w, int64_t panel)
{
    return (int)rl_least(RL_PANEL_VECTORS, w->vectors - panel * RL_PANEL_VECTORS);
}

/* A vector's column of a state in memory: rows are the walk's keys. */
static rl_matrix state_column(const rl_attention_walk *w, const rill_tensor *S, int64_t sequence, int64_t head,
                              int64_t channel)
{
    const int64_t row = S->stride[w->transposed ? 3 : 2], lane = S->stride[w->transposed ? 2 : 3];
    int64_t offset = sequence * S->stride[0] + head * S->stride[1] + channel * lane;
    return (rl_matrix){(char *)S->data + offset * (int64_t)rill_dtype_size(S->dtype), S->dtype, row, lane};
}

static void load_state(const rl_attention_walk *w, const rl_attention_line *line, int64_t head, int64_t panel,
                       rl_attention_state state)
{
    const int64_t lanes = w->kernels->lanes;
    const size_t column = (size_t)w->state_rows * w->vector_size;
    memset(state.numbers, 0, w->panel_size);
    for (int v = 0; v < vectors_of(w, panel) && w->start.data; v++) {
        int64_t channel = (panel * RL_PANEL_VECTORS + v) * lanes;
        rl_matrix from = state_column(w, &w->start, line->sequence, head, channel);
        w->kernels->load(state.numbers + (size_t)v * column, lanes, &from, w->keys,
                         rl_least(lanes, w->values - channel));
    }
    if (w->start.data && w->may_multiply)
        *state.largest = w->kernels->attention->largest(state.numbers, vectors_of(w, panel) * w->state_rows);
}

/* An empty line's state, as it lies: a conversion would quiet a signalling NaN. */
static void hand_on(const rl_matrix *to, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    const size_t size = rill_dtype_size(to->dtype);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < lanes; i++)
            memmove((char *)to->data + (n * to->row + i * to->lane) * (int64_t)size,
                    (const char *)from->data + (n * from->row + i * from->lane) * (int64_t)size, size);
}

/* What leaves a backward walk has passed the gate of its last step. */
static void pass_gate(const rl_attention_walk *w, const rl_attention_line *line, int64_t head, char *numbers,
                      int64_t count)
{
    double gate;
    bool reset;
    rl_attention_load_gates(w, line->s, head, line->s.length - 1, 1, &gate, &reset);
    for (int64_t i = 0; i < count; i++)
        if (w->f64)
            ((double *)numbers)[i] = reset ? 0 : gate * ((double *)numbers)[i];
        else
            ((float *)numbers)[i] = reset ? 0 : (float)gate * ((float *)numbers)[i];
}

static void store_state(const rl_attention_walk *w, const rl_attention_line *line, int64_t head, int64_t panel,
                        rl_attention_state state)
{
    const int64_t lanes = w->kernels->lanes;
    const bool same = line->s.length == 0 && w->start.data && w->start.dtype == w->end.dtype;
    if (w->backward && line->s.length > 0)
        pass_gate(w, line, head, state.numbers, vectors_of(w, panel) * w->state_rows * lanes);
    for (int v = 0; v < vectors_of(w, panel); v++) {
        int64_t channel = (panel * RL_PANEL_VECTORS + v) * lanes, count = rl_least(lanes, w->values - channel);
        rl_matrix to = state_column(w, &w->end, line->sequence, head, channel);
        if (same) {
            rl_matrix from = state_column(w, &w->start, line->sequence, head, channel);
            hand_on(&to, &from, w->keys, count);
        } else {
            w->kernels->store(&to, state.numbers + (size_t)(v * w->state_rows) * w->vector_size, w->keys, count);
        }
    }
}

static void for_each_state(const rl_attention_walk *w, const rl_attention_group *group,
                           void (*visit)(const rl_attention_walk *, const rl_attention_line *, int64_t, int64_t,
                                         rl_attention_state))
{
    int64_t begin, end;
    rl_attention_part(group, group->count * w->members * group->panels, &begin, &end);
    for (int64_t task = begin; task < end; task++) {
        int64_t index = task / (w->members * group->panels), member = task / group->panels % w->members;
        int64_t panel = group->first_panel + task % group->panels;
        rl_attention_line line = rl_attention_line_of(w, group->first + index);
        visit(w, &line, line.head * w->members + member, panel,
              rl_attention_state_at(w, group, group->states, index, member, panel));
    }
    rl_attention_meet(group);
}

void rl_attention_load_states(const rl_attention_walk *w, const rl_attention_group *group)
{
    for_each_state(w, group, load_state);
}

void rl_attention_store_states(const rl_attention_walk *w, const rl_attention_group *group)
{
    if (w->end.data) for_each_state(w, group, store_state);
}

static char *slot_at(const rl_attention_walk *w, const rl_attention_group *group, int64_t slab, int64_t index,
                     int64_t member)
{
    return group->slots + (size_t)((slab * group->count + index) * w->members + member) * w->slot_size;
}

static void prepare_slab(const rl_attention_walk *w, const rl_attention_group *group, int64_t first, int64_t count)
{
    int64_t begin, end;
    rl_attention_part(group, count * group->count * w->members, &begin, &end);
    for (int64_t task = begin; task < end; task++) {
        int64_t member = task % w->members, index = task / w->members % group->count;
        int64_t chunk = task / w->members / group->count;
        rl_attention_line line = rl_attention_line_of(w, group->first + index);
        if (first + chunk < line.chunks)
            rl_attention_prepare(w, &line, member, first + chunk, slot_at(w, group, chunk, index, member));
    }
    rl_attention_meet(group);
}

/* A worker's arrays of a panel. */
typedef struct panel_room {
    char *v, *faded, *y, *partner, *zero, *inner, *whole;
} panel_room;

static panel_room room_of(const rl_attention_walk *w, char *memory)
{
    const size_t tile = RL_PANEL_VECTORS * RL_CHUNK * w->vector_size;
    panel_room room = {memory,
                       memory + tile,
                       memory + 2 * tile,
                       memory + 3 * tile,
                       memory + 4 * tile,
                       memory + 5 * tile,
                       memory + 5 * tile + RL_CHUNK * w->real_size};
    return room;
}

static void load_columns(const rl_attention_walk *w, const rill_tensor *from, const rl_attention_place *place,
                         int64_t head, char *to)
{
    const int64_t lanes = w->kernels->lanes;
    for (int v = 0; v < vectors_of(w, place->panel); v++) {
        int64_t channel = (place->panel * RL_PANEL_VECTORS + v) * lanes;
        rl_matrix m = rl_attention_rows(from, place->line->s, place->begin, head, channel);
        w->kernels->load(to + (size_t)(v * RL_CHUNK) * w->vector_size, lanes, &m, place->rows,
                         rl_least(lanes, w->values - channel));
    }
}

static void store_columns(const rl_attention_walk *w, const rl_attention_place *place, const char *y)
{
    const int64_t lanes = w->kernels->lanes;
    for (int v = 0; v < vectors_of(w, place->panel); v++) {
        int64_t channel = (place->panel * RL_PANEL_VECTORS + v) * lanes;
        rl_matrix m = rl_attention_rows(&w->y, place->line->s, place->begin, place->line->head, channel);
        w->kernels->store(&m, y + (size_t)(v * RL_CHUNK) * w->vector_size, place->rows,
                          rl_least(lanes, w->values - channel));
    }
}

/* Without queries y is zero; tensors without keys have no memory either. */
static bool has_queries(const rl_attention_walk *w)
{
    return w->q.data || w->keys == 0;
}

/* What the panel sums with its partner goes where the walk's owner wants it. */
static void keep_sums(const rl_attention_walk *w, const rl_attention_place *place, const rl_attention_panel *p)
{
    const int64_t head = place->line->head * w->members + place->member;
    for (int64_t t = 0; t < place->rows; t++) {
        int64_t at = rl_attention_sums_at(w, place->line->s, place->begin + t, head) + place->panel;
        if (w->inner && has_queries(w)) rl_attention_put(w, w->inner, at, rl_attention_get(w, p->inner, t));
        if (w->inner && !has_queries(w)) rl_attention_put(w, w->inner, at, p->multiplies ? 0 : (double)NAN);
        if (w->whole) rl_attention_put(w, w->whole, at, rl_attention_get(w, p->whole, t));
    }
}

static void add_ahead(rl_attention_ahead *ahead, const rill_tensor *tensor, rl_sequence s, int64_t step, int64_t end,
                      int64_t head, int64_t first, int64_t count)
{
    if (!tensor->data || tensor->stride[3] != 1) return;
    rl_matrix m = rl_attention_rows(tensor, s, step, head, first);
    const int64_t size = (int64_t)rill_dtype_size(m.dtype);
    for (; step < end; step++, m.data = (char *)m.data + m.row * size) {
        ahead->bytes[ahead->count] = count * size;
        ahead->row[ahead->count++] = m.data;
    }
}

/* The next chunk: by one thread, a part of all rows; by many, what this panel has of them. */
static void look_ahead(const rl_attention_walk *w, const rl_attention_group *group, const rl_attention_place *place,
                       rl_attention_ahead *ahead)
{
    const rl_attention_line *line = place->line;
    const int64_t chunk = place->chunk + 1, head = line->head * w->members + place->member;
    ahead->count = 0;
    if (chunk >= line->chunks) return;
    const int64_t begin = rl_attention_begin_of(w, line, chunk), rows = rl_attention_end_of(w, line, chunk) - begin;
    const int64_t panel = RL_PANEL_VECTORS * w->kernels->lanes;
    if (group->workers > 1) {
        int64_t first = place->panel * panel, count = rl_least(panel, w->values - first);
        add_ahead(ahead, &w->v, line->s, begin, begin + rows, head / w->v_share, first, count);
        add_ahead(ahead, &w->y, line->s, begin, begin + rows, line->head, first, count);
        return;
    }
    const int64_t nth = place->panel - group->first_panel;
    const int64_t from = begin + rows * nth / group->panels, to = begin + rows * (nth + 1) / group->panels;
    const int64_t first = group->first_panel * panel, count = rl_least(group->panels * panel, w->values - first);
    add_ahead(ahead, &w->q, line->s, from, to, head / w->q_share, 0, w->keys);
    add_ahead(ahead, &w->k, line->s, from, to, head / w->k_share, 0, w->keys);
    add_ahead(ahead, &w->v, line->s, from, to, head / w->v_share, first, count);
    add_ahead(ahead, &w->y, line->s, from, to, line->head, first, count);
}

static void walk_panel(const rl_attention_walk *w, const rl_attention_group *group, const rl_attention_place *place,
                       const char *slot_memory)
{
    const rl_attention_slot *slot = (const rl_attention_slot *)slot_memory;
    const int64_t head = place->line->head * w->members + place->member;
    panel_room room = room_of(w, group->scratch);
    rl_attention_state state =
        rl_attention_state_at(w, group, group->states, place->index, place->member, place->panel);
    const bool reads = has_queries(w) && (w->y.data || w->partner.data);
    const int64_t panel_columns = RL_PANEL_VECTORS * w->kernels->lanes;
    rl_attention_ahead ahead;
    look_ahead(w, group, place, &ahead);
    rl_attention_panel p = {.chunk = &slot->chunk,
                            .vectors = vectors_of(w, place->panel),
                            .columns = rl_least(panel_columns, w->values - place->panel * panel_columns),
                            .v = room.v,
                            .v_factor = slot->has_v_factor ? slot->v_factor : NULL,
                            .y_factor = slot->has_y_factor ? slot->y_factor : NULL,
                            .state = state.numbers,
                            .largest = w->may_multiply ? state.largest : NULL,
                            .y = reads ? room.y : NULL,
                            .accumulate = place->member > 0,
                            .faded = room.faded,
                            .ahead = &ahead};
    if (w->no_input) {
        memset(room.v, 0, RL_PANEL_VECTORS * RL_CHUNK * w->vector_size);
        p.v_factor = NULL;
    } else {
        load_columns(w, &w->v, place, head / w->v_share, room.v);
    }
    if (w->partner.data) {
        load_columns(w, &w->partner, place, head / w->v_share, room.partner);
        p.partner = room.partner, p.inner = room.inner, p.whole = room.whole;
    }
    w->kernels->attention->enter(&p);
    if (group->before) group->before(group, w, place, &p);
    w->kernels->attention->walk(&p);
    if (group->after) group->after(group, w, place, &p);
    if (w->inner || w->whole) keep_sums(w, place, &p);
    if (place->member + 1 < w->members || !w->y.data) return;
    if (!reads) memset(room.y, 0, RL_PANEL_VECTORS * RL_CHUNK * w->vector_size);
    store_columns(w, place, room.y);
}

/* A panel of a line's chunk, all its members, whose prepared chunks lie side by side. */
static void walk_line(const rl_attention_walk *w, const rl_attention_group *group, const rl_attention_line *line,
                      int64_t index, int64_t panel, int64_t chunk, const char *slots)
{
    rl_attention_place place = {.line = line, .index = index, .panel = panel, .chunk = chunk};
    place.begin = rl_attention_begin_of(w, line, chunk);
    place.rows = rl_attention_end_of(w, line, chunk) - place.begin;
    for (place.member = 0; place.member < w->members; place.member++)
        walk_panel(w, group, &place, slots + (size_t)place.member * w->slot_size);
}

/* A line's panel through the chunks of a slab. */
static void walk_slab(const rl_attention_walk *w, const rl_attention_group *group, int64_t first, int64_t count)
{
    int64_t begin, end;
    rl_attention_part(group, group->count * w->panels, &begin, &end);
    for (int64_t task = begin; task < end; task++) {
        const int64_t index = task / w->panels;
        rl_attention_line line = rl_attention_line_of(w, group->first + index);
        for (int64_t c = 0; c < count && first + c < line.chunks; c++)
            walk_line(w, group, &line, index, task % w->panels, first + c, slot_at(w, group, c, index, 0));
    }
    rl_attention_meet(group);
}

/* One chunk of one line after the other: neighbouring heads lie side by side in memory. */
static void walk_apart(const rl_attention_walk *w, const rl_attention_group *group, int64_t begin, int64_t end)
{
    for (int64_t c = begin; c < end; c++)
        for (int64_t index = 0; index < group->count; index++) {
            rl_attention_line line = rl_attention_line_of(w, group->first + index);
            if (c >= line.chunks) continue;
            for (int64_t member = 0; member < w->members; member++)
                rl_attention_prepare(w, &line, member, c, group->slots + (size_t)member * w->slot_size);
            for (int64_t panel = 0; panel < group->panels; panel++)
                walk_line(w, group, &line, index, group->first_panel + panel, c, group->slots);
        }
}

void rl_attention_walk_chunks(const rl_attention_walk *w, const rl_attention_group *group, int64_t begin, int64_t end)
{
    if (group->workers == 1) {
        walk_apart(w, group, begin, end);
        return;
    }
    for (int64_t c = begin; c < end; c += group->slab) {
        prepare_slab(w, group, c, rl_least(group->slab, end - c));
        walk_slab(w, group, c, rl_least(group->slab, end - c));
    }
}
