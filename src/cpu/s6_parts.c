/*
 * Few channels and very long sequences: a piece is cut into parts of time, which the threads walk at once, each from
 * a guess of the state that enters it: zeros.  A part whose guess was not the last state of the part before is then
 * walked again from that state, but only until it meets a state that its earlier walk had at the same step, bit for
 * bit: from there on every number is the same.  Decays let a guess be forgotten, mostly within a small part of the
 * steps.  This goes on until no part's beginning changes, and so the results are those of one walk, whatever the
 * parts.  What does not meet within a few turns is left to s6_narrow.c.
 *
 * A part may be walked twice from the same inputs, so y must not lie over them.
 */
#include <string.h>

#include "../counts.h"
#include "s6.h"

enum {
    LEAST_STEPS = 4096, /* of a part, of which some hundreds are usually walked twice */
    MOST_TURNS = 3,
    CLOSE_MARKS = 8 /* states are kept after each of twice as many tiles, then as many in twice as many, ... */
};

typedef struct rl_parts {
    int64_t most;                /* parts of a piece */
    int64_t most_marks;          /* states kept of a vector's part */
    size_t state;                /* bytes of a vector's states */
    char *enter, *leave, *marks; /* [vectors][most] states; of marks, most_marks each */
    char *carry;                 /* [vectors] states: what enters the rest of a piece */
    bool *changed;               /* [vectors][most] */
    /* Of the piece that is run: */
    int64_t count, steps, right; /* its parts, of how many steps, and how many from the first on are known right */
    bool done;
} rl_parts;

/* Where the state after a part's first `tiles` tiles is kept; -1 where it is not. */
static int64_t mark_of(int64_t tiles)
{
    int shift = 0;
    while (tiles >> shift >= 2 * CLOSE_MARKS) shift++;
    return tiles & ((1 << shift) - 1) ? -1 : shift * CLOSE_MARKS + (tiles >> shift);
}

static int64_t steps_of(const rl_s6 *scan, int64_t length, int64_t count)
{
    return rl_quotient_up(rl_quotient_up(length, count), scan->tile_rows) * scan->tile_rows;
}

/* As many parts as make the vectors' a multiple of the threads. */
static int64_t most_parts(const rl_s6 *scan)
{
    int64_t most = scan->threads;
    for (int64_t least = 2; least <= scan->threads; least++)
        if (least * scan->vectors % scan->threads == 0) return least;
    return most;
}

rill_status rl_parts_plan(rill_context *context, rl_s6 *scan, int64_t longest)
{
    if (longest < 2 * LEAST_STEPS || scan->threads == 1 || scan->states == 0) return RILL_OK;
    rl_parts p = {.most = most_parts(scan), .state = (size_t)scan->states * scan->vector_size};
    int64_t tiles = rl_most(steps_of(scan, longest, p.most), 2 * LEAST_STEPS) / scan->tile_rows + 1;
    while (mark_of(tiles) < 0) tiles--;
    p.most_marks = mark_of(tiles) + 1;
    const size_t units = (size_t)(p.most * scan->vectors);
    const size_t states = units * (2 + (size_t)p.most_marks) + (size_t)scan->vectors;
    void *memory;
    rill_status status = rl_workspace_take(context, states * p.state + units + sizeof p, &memory);
    if (status != RILL_OK) return status;
    p.enter = memory;
    p.leave = p.enter + units * p.state;
    p.marks = p.leave + units * p.state;
    p.carry = p.marks + units * (size_t)p.most_marks * p.state;
    scan->parts = (rl_parts *)(p.carry + (size_t)scan->vectors * p.state);
    p.changed = (bool *)(scan->parts + 1);
    *scan->parts = p;
    return RILL_OK;
}

bool rl_parts_wanted(const rl_s6 *scan, const rl_piece *piece)
{
    return scan->parts && piece->length >= 2 * LEAST_STEPS && piece->y.data != piece->x.data;
}

static char *state_at(const rl_parts *p, char *states, int64_t vector, int64_t part)
{
    return states + (size_t)(vector * p->most + part) * p->state;
}

static rl_vector_place place_of(const rl_s6 *scan, int64_t vector)
{
    return rl_vector_at(scan, vector / scan->stripe_vectors, vector % scan->stripe_vectors);
}

/* Whether the walk goes on: it stands where an earlier one did not.  `again`: there was one. */
static bool keep_mark(const rl_parts *p, int64_t unit, int64_t tiles, const char *h, bool again)
{
    const int64_t mark = mark_of(tiles);
    if (mark < 0) return true;
    char *kept = p->marks + (size_t)(unit * p->most_marks + mark) * p->state;
    if (again && memcmp(kept, h, p->state) == 0) return false;
    memcpy(kept, h, p->state);
    return true;
}

static void walk_part(const rl_s6 *scan, const rl_piece *piece, int64_t vector, int64_t part, bool again)
{
    const rl_parts *p = scan->parts;
    const rl_vector_place place = place_of(scan, vector);
    const int64_t begin = part * p->steps, end = rl_least(begin + p->steps, piece->length);
    rl_vector_state v = rl_own_vector_state(scan);
    rl_load_parameters(scan, place, &v);
    memcpy(v.h, state_at(p, p->enter, vector, part), p->state);
    for (int64_t t = begin; t < end; t += scan->tile_rows) {
        rl_run_rows(scan, piece, place, &v, t, rl_least(scan->tile_rows, end - t));
        if (!keep_mark(p, vector * p->most + part, (t - begin) / scan->tile_rows + 1, v.h, again)) return;
    }
    memcpy(state_at(p, p->leave, vector, part), v.h, p->state);
}

static void begin_piece(const rl_s6 *scan, const rl_piece *piece, int64_t vector)
{
    const rl_parts *p = scan->parts;
    char *first = state_at(p, p->enter, vector, 0);
    memset(first, 0, (size_t)p->count * p->state);
    if (piece->first)
        rl_load_state(scan, piece, place_of(scan, vector), first);
    else
        memcpy(first, (const char *)piece->carry + (size_t)vector * p->state, p->state);
}

/* Hands each part the state that leaves the one before, and counts how many had it already. */
static void hand_on(const rl_s6 *scan)
{
    rl_parts *p = scan->parts;
    p->right = p->count;
    for (int64_t vector = 0; vector < scan->vectors; vector++) {
        p->changed[vector * p->most] = false;
        for (int64_t part = 1; part < p->count; part++) {
            char *enter = state_at(p, p->enter, vector, part), *left = state_at(p, p->leave, vector, part - 1);
            const bool changed = memcmp(enter, left, p->state) != 0;
            p->changed[vector * p->most + part] = changed;
            if (!changed) continue;
            memcpy(enter, left, p->state);
            p->right = rl_least(p->right, part);
        }
    }
    p->done = p->right == p->count;
}

static void walk_parts(const rl_s6 *scan, const rl_piece *piece)
{
    rl_parts *p = scan->parts;
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < scan->vectors * p->count; unit++)
        walk_part(scan, piece, unit % scan->vectors, unit / scan->vectors, false);
    for (int turn = 0; turn <= MOST_TURNS; turn++) {
#pragma omp single
        hand_on(scan);
        if (p->done || turn == MOST_TURNS) return;
#pragma omp for schedule(dynamic)
        for (int64_t unit = 0; unit < scan->vectors * p->count; unit++) {
            const int64_t vector = unit % scan->vectors, part = unit / scan->vectors;
            if (p->changed[vector * p->most + part]) walk_part(scan, piece, vector, part, true);
        }
    }
}

static rl_series later(rl_series series, int64_t t)
{
    if (series.data) series.data = rl_series_rows(&series, t, 0).data;
    return series;
}

/* What begins with part p->right, entered by the states in p->carry. */
static void run_rest(const rl_s6 *scan, const rl_piece *piece)
{
    const rl_parts *p = scan->parts;
    const int64_t t = p->right * p->steps;
    const rl_piece rest = {.sequence = piece->sequence,
                           .length = piece->length - t,
                           .last = piece->last,
                           .x = later(piece->x, t),
                           .delta = later(piece->delta, t),
                           .B = later(piece->B, t),
                           .C = later(piece->C, t),
                           .z = later(piece->z, t),
                           .y = later(piece->y, t),
                           .carry = p->carry};
    rl_narrow_run(scan, &rest);
}

void rl_parts_run(const rl_s6 *scan, const rl_piece *piece)
{
    rl_parts *p = scan->parts;
#pragma omp single
    {
        p->count = rl_least(p->most, piece->length / LEAST_STEPS);
        p->steps = steps_of(scan, piece->length, p->count);
        p->count = rl_quotient_up(piece->length, p->steps);
    }
#pragma omp for schedule(static)
    for (int64_t vector = 0; vector < scan->vectors; vector++) begin_piece(scan, piece, vector);
    walk_parts(scan, piece);
#pragma omp for schedule(static)
    for (int64_t vector = 0; vector < scan->vectors; vector++) {
        char *carry = p->carry + (size_t)vector * p->state;
        memcpy(carry, state_at(p, p->leave, vector, p->right - 1), p->state);
        if (p->done) rl_store_state(scan, piece, place_of(scan, vector), carry);
    }
    if (!p->done) run_rest(scan, piece);
    if (!piece->carry) return;
#pragma omp single
    memcpy(piece->carry, p->carry, (size_t)scan->vectors * p->state);
}
