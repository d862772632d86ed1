/*
 * The gates' gradients, <G, S>, want a state and its gradient at once, and these come from opposite ends.  The walk
 * of dq keeps the state before each chunk, as many chunks as memory is given for, then only before each stretch of so
 * many; the walk of dk takes the stretches from the last one on, for each of which the states are walked again.
 */
#include "linear_attention_gates.h"

#include <string.h>

#include "../counts.h"

enum { SAVED_BYTES = 32 << 20 /* of a line's states, unless √chunks of them need more */ };

typedef struct pair {
    const rl_attention_walk *dq, *dk, *again; /* again: dq's, for its states alone */
    int64_t stretch, marks;                   /* chunks in a stretch, and how many stretches */
    size_t states_size;
} pair;

/* A line's memory, beside the states of dq's walk. */
typedef struct pair_room {
    const pair *walks;
    char *dk_states, *saved, *marks; /* a set of states; one a chunk of the stretch; one a stretch */
    int64_t first;                   /* chunk of the stretch at hand */
    bool saves, is_marking;
} pair_room;

static void keep_state(const rl_attention_group *group, const rl_attention_walk *w, const rl_attention_place *place,
                       const rl_attention_panel *p, char *states)
{
    rl_attention_state to = rl_attention_state_at(w, group, states, place->index, place->member, place->panel);
    memcpy(to.numbers, p->state, w->panel_size);
}

static void before_dq(const rl_attention_group *group, const rl_attention_walk *w, const rl_attention_place *place,
                      rl_attention_panel *p)
{
    const pair_room *room = group->owner;
    const int64_t at = place->chunk - room->first;
    if (room->is_marking && at == 0)
        keep_state(group, w, place, p,
                   room->marks + (size_t)(place->chunk / room->walks->stretch) * room->walks->states_size);
    if (room->saves) keep_state(group, w, place, p, room->saved + (size_t)at * room->walks->states_size);
}

/* A worker's arrays for one panel of one chunk, in the order of dk's walk. */
typedef struct gates_place {
    rl_attention_gates gates;
    double gate[RL_CHUNK], beta[RL_CHUNK], dg[RL_CHUNK];
    bool reset[RL_CHUNK];
} gates_place;

static size_t gates_size(const rl_attention_walk *w)
{
    const int64_t lanes = w->kernels->lanes;
    size_t numbers = (size_t)((2 * RL_PANEL_VECTORS * lanes + 2 * RL_CHUNK) * RL_CHUNK + RL_CHUNK * lanes + RL_CHUNK);
    return ((sizeof(gates_place) + 63) & ~(size_t)63) + numbers * w->real_size;
}

/* The steps' own gates and factors and what dq's walk has read from the state, turned round. */
static void load_place(const pair *walks, const rl_attention_place *place, gates_place *at, char *read)
{
    const rl_attention_walk *dq = walks->dq;
    const int64_t rows = place->rows, head = place->line->head * dq->members + place->member;
    const int64_t begin = place->line->s.length - place->begin - rows;
    rl_sequence s = rl_sequence_of(&dq->offsets, place->line->sequence, dq->length, dq->reverse);
    char room[RL_CHUNK * sizeof(double)] __attribute__((aligned(64)));
    double gate[RL_CHUNK], scale = dq->y_factor.scale;
    bool reset[RL_CHUNK];
    rl_attention_walk_gates(dq, s, head, begin, rows, gate, reset);
    bool weighs = rl_attention_load_factors(dq, &dq->v_factor, s, head, begin, rows, room);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = rows - 1 - i, sums = rl_attention_sums_at(dq, s, begin + t, head) + place->panel;
        at->gate[i] = gate[t];
        at->reset[i] = reset[t];
        at->beta[i] = weighs ? rl_attention_get(dq, room, t) : 1;
        rl_attention_put(dq, read, i, scale * rl_attention_get(dq, dq->inner, sums));
    }
}

static gates_place *place_in(const rl_attention_walk *w, char *scratch)
{
    return (gates_place *)(scratch + w->scratch_size);
}

static void before_dk(const rl_attention_group *group, const rl_attention_walk *w, const rl_attention_place *place,
                      rl_attention_panel *p)
{
    const pair_room *room = group->owner;
    const int64_t forward = place->line->chunks - 1 - place->chunk;
    gates_place *at = place_in(w, group->scratch);
    char *numbers = (char *)at + ((sizeof *at + 63) & ~(size_t)63), *read = numbers;
    rl_attention_state entry =
        rl_attention_state_at(w, group, room->saved + (size_t)(forward - room->first) * room->walks->states_size,
                              place->index, place->member, place->panel);
    load_place(room->walks, place, at, read);
    at->gates = (rl_attention_gates){.panel = p,
                                     .entry = entry.numbers,
                                     .entry_largest = *entry.largest,
                                     .gate = at->gate,
                                     .reset = at->reset,
                                     .beta = at->beta,
                                     .read = read,
                                     .room = numbers + (RL_CHUNK * w->real_size + 63) / 64 * 64,
                                     .dg = at->dg};
    w->kernels->attention->begin_gates(&at->gates);
}

static void after_dk(const rl_attention_group *group, const rl_attention_walk *w, const rl_attention_place *place,
                     rl_attention_panel *p)
{
    const pair_room *room = group->owner;
    const rl_attention_walk *dq = room->walks->dq;
    const int64_t head = place->line->head * w->members + place->member;
    gates_place *at = place_in(w, group->scratch);
    (void)p;
    w->kernels->attention->end_gates(&at->gates);
    for (int64_t i = 0; i < place->rows; i++) {
        int64_t sums = rl_attention_sums_at(w, place->line->s, place->begin + i, head) + place->panel;
        rl_attention_put(dq, dq->inner, sums, at->dg[i]);
    }
}

/* The states of a stretch that was only marked. */
static void walk_again(const pair *walks, pair_room *room, rl_attention_group *group, int64_t end)
{
    int64_t begin, stop;
    rl_attention_part(group, (int64_t)walks->states_size / 64, &begin, &stop);
    memcpy(group->states + begin * 64,
           room->marks + (size_t)(room->first / walks->stretch) * walks->states_size + begin * 64,
           (size_t)(stop - begin) * 64);
    rl_attention_meet(group);
    room->is_marking = false;
    room->saves = true;
    rl_attention_walk_chunks(walks->again, group, room->first, end);
}

static void run_line(const pair *walks, rl_attention_group *group)
{
    const int64_t chunks = rl_attention_line_of(walks->dq, group->first).chunks, stretch = walks->stretch;
    pair_room room = {.walks = walks, .dk_states = group->extra, .saved = group->extra + walks->states_size};
    room.marks = room.saved + (size_t)stretch * walks->states_size;
    rl_attention_group dk = *group;
    group->owner = dk.owner = &room;
    group->before = before_dq;
    dk.before = before_dk;
    dk.after = after_dk;
    dk.states = room.dk_states;
    rl_attention_load_states(walks->dq, group);
    rl_attention_load_states(walks->dk, &dk);
    for (room.first = 0; room.first < chunks; room.first += stretch) {
        room.is_marking = walks->marks > 1;
        room.saves = room.first + stretch >= chunks;
        rl_attention_walk_chunks(walks->dq, group, room.first, rl_least(chunks, room.first + stretch));
    }
    for (room.first -= stretch; room.first >= 0; room.first -= stretch) {
        const int64_t end = rl_least(chunks, room.first + stretch);
        if (end < chunks) walk_again(walks, &room, group, end);
        rl_attention_walk_chunks(walks->dk, &dk, chunks - end, chunks - room.first);
    }
}

static void run_lines(rl_attention_group *group, const void *owner)
{
    rl_attention_group line = *group;
    line.count = 1;
    for (line.first = group->first; line.first < group->first + group->count; line.first++) {
        rl_attention_group own = line;
        run_line(owner, &own);
    }
}

/* A stretch is as long as memory allows, or so that there are as many stretches as chunks in one. */
static void plan_stretches(pair *walks, int64_t chunks)
{
    int64_t root = 1;
    while (root * root < chunks) root++;
    walks->stretch = (int64_t)(SAVED_BYTES / walks->states_size);
    if (walks->stretch < root) walks->stretch = root;
    if (walks->stretch > chunks) walks->stretch = chunks > 0 ? chunks : 1;
    walks->marks = (chunks + walks->stretch - 1) / walks->stretch;
}

rill_status rl_attention_run_gates(rill_context *context, rl_attention_walk *dq, rl_attention_walk *dk)
{
    rl_attention_plan(dq);
    rl_attention_plan(dk);
    rl_attention_walk again = *dq;
    again.y = again.partner = (rill_tensor){0};
    again.inner = NULL;
    rl_attention_need need = rl_attention_need_of(context, dk);
    pair walks = {.dq = dq, .dk = dk, .again = &again, .states_size = need.states_size};
    plan_stretches(&walks, need.chunks);
    need.extra_size = (size_t)(1 + walks.stretch + (walks.marks > 1 ? walks.marks : 0)) * need.states_size;
    need.scratch_size = (need.scratch_size + gates_size(dk) + 255) & ~(size_t)255;
    need.job = run_lines;
    need.owner = &walks;
    need.by_line = true;
    return rl_attention_share(context, &need);
}
