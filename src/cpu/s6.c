#include "s6.h"

#include <omp.h>
#include <string.h>

#include "../counts.h"

enum {
    TILE_ROWS = 64, /* steps of a tile: its arrays and a block's B and C stay in 32 KiB */
    LEAST_TILE_ROWS = 8,
    INPUT_BYTES = 32 << 10,  /* of a tile's B and C, unless LEAST_TILE_ROWS need more */
    BLOCK_CHANNELS = 256,    /* share one packing of B and C, and whole cache lines */
    STATE_BYTES = 256 << 10, /* of a block's A and h */
    SLICES = 8,              /* at most so many threads share one vector's states */
    TASKS_PER_THREAD = 4,
    NARROW_ROWS = 512,   /* steps from which sharing one piece among threads pays its barriers */
    SMALL_WORK = 1 << 14 /* state steps that one thread does in about the time of starting a team */
};

int rl_s6_threads(const rill_context *context, int64_t steps, int64_t states)
{
    return steps < SMALL_WORK / (states + 4) ? 1 : context->options.threads;
}

/* Narrow groups waste lanes unless their channels share vectors. */
static bool wants_spread(const rl_s6 *scan)
{
    return scan->groups > 1 && scan->channels / scan->groups <= scan->kernels->lanes / 2;
}

size_t rl_inputs_size(const rl_s6 *scan, int64_t rows)
{
    size_t entry = scan->spread ? scan->vector_size : scan->real_size;
    return ((size_t)(rows * 2 * scan->states) * entry + 63) & ~(size_t)63;
}

size_t rl_vector_state_size(const rl_s6 *scan)
{
    return (size_t)(2 * scan->states + scan->state_blocks + 2) * scan->vector_size;
}

rl_vector_state rl_vector_state_in(const rl_s6 *scan, void *memory)
{
    const size_t vector = scan->vector_size, states = (size_t)scan->states * vector;
    char *next = memory;
    rl_vector_state v = {.A = next, .h = next + states, .A_bound = next + 2 * states};
    v.D = v.A_bound + (size_t)scan->state_blocks * vector;
    v.bias = v.D + vector;
    return v;
}

/* A thread's tile arrays: x, rate and its rest, input, y, a slice's y, z; the bound; then B and C. */
static size_t tile_scratch_size(const rl_s6 *scan)
{
    return (size_t)(7 * scan->tile_rows + 1) * scan->vector_size + rl_inputs_size(scan, scan->tile_rows);
}

/*
 * How long the threads take for `stripes` in blocks of so many vectors, in halves of a vector's time: a block costs a
 * half more, for its packing of B and C and for the cache lines that it shares with its neighbours.
 */
static int64_t blocks_time(const rl_s6 *scan, int64_t stripes, int64_t vectors)
{
    const int64_t tasks = stripes * rl_quotient_up(scan->stripe_vectors, vectors);
    return rl_quotient_up(tasks, scan->threads) * (2 * vectors + 1);
}

static void plan_blocks(rl_s6 *scan, int64_t pieces)
{
    const int64_t lanes = scan->kernels->lanes;
    scan->spread = wants_spread(scan);
    scan->stripe_channels = scan->spread ? scan->channels : scan->channels / scan->groups;
    scan->stripe_vectors = rl_quotient_up(scan->stripe_channels, lanes);
    int64_t stripes = scan->spread ? 1 : scan->groups,
            fit = rl_most(1, STATE_BYTES / (int64_t)rl_vector_state_size(scan));
    scan->vectors = stripes * scan->stripe_vectors;
    scan->block_vectors =
        scan->spread ? 1 : rl_most(1, rl_least(rl_least(BLOCK_CHANNELS / lanes, scan->stripe_vectors), fit));
    for (int64_t smaller = scan->block_vectors; smaller > 1;) {
        smaller = (smaller + 1) / 2;
        if (blocks_time(scan, stripes * pieces, smaller) < blocks_time(scan, stripes * pieces, scan->block_vectors))
            scan->block_vectors = smaller;
    }
    scan->stripe_blocks = rl_quotient_up(scan->stripe_vectors, scan->block_vectors);
    scan->blocks = stripes * scan->stripe_blocks;
}

/* Few long pieces: one thread a vector would leave threads idle for more than a seventh of the time. */
static bool wants_narrow(const rl_s6 *scan, int64_t pieces, int64_t longest)
{
    int64_t tasks = scan->vectors * pieces, threads = scan->threads;
    return longest >= NARROW_ROWS && tasks > 0 && tasks < 3 * threads &&
           rl_quotient_up(tasks, threads) * threads * 7 > tasks * 8;
}

rill_status rl_s6_plan(rill_context *context, rl_s6 *scan, int threads, int64_t pieces, int64_t longest)
{
    scan->threads = threads;
    scan->real_size = scan->f64 ? sizeof(double) : sizeof(float);
    scan->vector_size = (size_t)scan->kernels->lanes * scan->real_size;
    scan->state_blocks = rl_quotient_up(scan->states, RL_STATE_BLOCK);
    scan->slices = rl_least(SLICES, scan->state_blocks);
    plan_blocks(scan, pieces);
    size_t row = rl_inputs_size(scan, 1);
    scan->tile_rows = row ? INPUT_BYTES / (int64_t)row : TILE_ROWS;
    scan->tile_rows = rl_least(rl_most(rl_least(scan->tile_rows, TILE_ROWS), LEAST_TILE_ROWS), rl_most(longest, 1));
    scan->scratch_size = tile_scratch_size(scan) + (size_t)scan->block_vectors * rl_vector_state_size(scan);
    scan->scratch_size = (scan->scratch_size + 255) & ~(size_t)255;
    rill_status status = rl_workspace_take(context, scan->scratch_size * (size_t)threads, &scan->scratch);
    if (status != RILL_OK || !wants_narrow(scan, pieces, longest)) return status;
    void *memory;
    status = rl_workspace_take(context, rl_narrow_size(scan), &memory);
    if (status != RILL_OK) return status;
    rl_narrow_plan(scan, memory);
    return rl_parts_plan(context, scan, longest);
}

void rl_recur_slice(const rl_s6 *scan, const rl_vector_state *v, rl_recurrence r, int64_t slice)
{
    int64_t begin = slice * scan->state_blocks / scan->slices, end = (slice + 1) * scan->state_blocks / scan->slices;
    int64_t state = begin * RL_STATE_BLOCK;
    size_t entry = scan->spread ? scan->vector_size : scan->real_size;
    r.states = rl_least(end * RL_STATE_BLOCK, scan->states) - state;
    r.A = v->A + (size_t)state * scan->vector_size;
    r.h = v->h + (size_t)state * scan->vector_size;
    r.A_bound = v->A_bound + (size_t)begin * scan->vector_size;
    r.bc = (const char *)r.bc + (size_t)(state * 2 * r.rows) * entry;
    r.spread = scan->spread;
    scan->kernels->recur(&r);
}

/* The arrays of a tile, in a thread's scratch. */
typedef struct tile {
    char *x, *y, *slice_y, *z, *bc;
    rl_steps steps;
} tile;

static tile tile_in(const rl_s6 *scan, char *memory)
{
    const size_t array = (size_t)scan->tile_rows * scan->vector_size;
    char *next = memory + scan->vector_size;
    tile s = {.x = next, .y = next + array, .slice_y = next + 2 * array, .z = next + 3 * array};
    s.steps = (rl_steps){
        .rate = next + 4 * array, .rate_rest = next + 5 * array, .input = next + 6 * array, .bound = memory};
    s.bc = next + 7 * array;
    return s;
}

/*
 * What the next tile reads and writes.  Its rows are a part of a cache line each and far apart, so they come late
 * unless asked for, and too many at once for the machine to ask together: a pass over the tile asks for one array,
 * the slices' recurrences first, and the passes of prepare_step for what they leave.  A row's last byte is named:
 * where rows are not aligned, its first lies in a line that the vector before has read.
 */
typedef struct ahead {
    rl_rows passes[RL_STEP_FETCHES], slices[4];
} ahead;

static void look_ahead(const rl_s6 *scan, const rl_piece *piece, int64_t t, int64_t channel, ahead *next)
{
    const rl_series *series[4] = {&piece->x, &piece->delta, &piece->y, &piece->z};
    const int64_t slices = rl_least(scan->slices, 4), last = scan->kernels->lanes - 1;
    int at = 0;
    for (int i = 0; i < 4; i++) next->slices[i].data = NULL;
    for (int i = 0; i < RL_STEP_FETCHES; i++) next->passes[i].data = NULL;
    for (int i = 0; i < 4; i++) {
        if (!series[i]->data || series[i]->lane != 1 || t >= piece->length) continue;
        if (at == slices + RL_STEP_FETCHES) return;
        rl_rows *rows = at < slices ? &next->slices[at] : &next->passes[at - slices];
        const int64_t size = (int64_t)rill_dtype_size(series[i]->dtype);
        rows->data = (char *)series[i]->data + (t * series[i]->step + channel + last) * size + size - 1;
        rows->step = series[i]->step * size;
        at++;
    }
}

static void sum_states(const rl_s6 *scan, const tile *s, const rl_vector_state *v, int64_t rows, bool fresh,
                       const ahead *next)
{
    rl_recurrence r = {.rows = rows,
                       .rate = s->steps.rate,
                       .rate_rest = s->steps.rate_rest,
                       .input = s->steps.input,
                       .bound = s->steps.bound,
                       .bc = s->bc,
                       .fresh = fresh};
    if (scan->slices == 0) memset(s->y, 0, (size_t)rows * scan->vector_size);
    for (int64_t slice = 0; slice < scan->slices; slice++) {
        bool aside = slice > 0 && scan->state_blocks > scan->slices;
        r.y = aside ? s->slice_y : s->y;
        r.accumulate = slice > 0 && !aside;
        r.ahead = slice < 4 ? &next->slices[slice] : NULL;
        rl_recur_slice(scan, v, r, slice);
        if (aside) scan->kernels->add(s->y, s->slice_y, rows);
    }
}

static void run_tile(const rl_s6 *scan, const tile *s, const rl_piece *piece, rl_vector_place place,
                     const rl_vector_state *v, int64_t t, int64_t rows, const ahead *next)
{
    const rl_kernels *k = scan->kernels;
    rl_step_rule rule = {.bias = scan->delta_bias.data ? v->bias : NULL,
                         .softplus = scan->softplus,
                         .low = scan->low,
                         .high = scan->high,
                         .ahead = next->passes};
    const rl_rows x = rl_s6_rows(scan, &piece->x, t, rows, place, s->x);
    k->prepare_step(&s->steps, rl_s6_rows(scan, &piece->delta, t, rows, place, s->steps.rate), x, rows, &rule);
    sum_states(scan, s, v, rows, t == 0 && rl_starts_fresh(scan, piece), next);
    rl_s6_finish(scan, piece, t, rows, place, v, s->y, x, s->z);
}

static char *own_scratch(const rl_s6 *scan)
{
    return (char *)scan->scratch + (size_t)omp_get_thread_num() * scan->scratch_size;
}

rl_vector_state rl_own_vector_state(const rl_s6 *scan)
{
    return rl_vector_state_in(scan, own_scratch(scan) + tile_scratch_size(scan));
}

void rl_run_rows(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, const rl_vector_state *v, int64_t t,
                 int64_t rows)
{
    const tile s = tile_in(scan, own_scratch(scan));
    ahead next;
    look_ahead(scan, piece, t + rows, place.channel, &next);
    rl_pack_inputs(scan, piece, place, t, rows, s.bc);
    run_tile(scan, &s, piece, place, v, t, rows, &next);
}

/* One block of channels of one piece.  `v` holds the block's parameters. */
static void run_block(const rl_s6 *scan, const tile *s, const rl_piece *piece, int64_t stripe, int64_t first,
                      int64_t count, rl_vector_state *v)
{
    const size_t carry = (size_t)scan->states * scan->vector_size;
    char *own_h[BLOCK_CHANNELS];
    for (int64_t i = 0; i < count; i++) {
        rl_vector_place place = rl_vector_at(scan, stripe, first + i);
        own_h[i] = v[i].h;
        if (piece->carry) v[i].h = (char *)piece->carry + (size_t)place.index * carry;
        rl_load_state(scan, piece, place, v[i].h);
    }
    for (int64_t t = 0; t < piece->length; t += scan->tile_rows) {
        int64_t rows = rl_least(scan->tile_rows, piece->length - t);
        rl_pack_inputs(scan, piece, rl_vector_at(scan, stripe, first), t, rows, s->bc);
        for (int64_t i = 0; i < count; i++) {
            bool inside = i + 1 < count;
            rl_vector_place after = rl_vector_at(scan, stripe, inside ? first + i + 1 : first);
            ahead next;
            look_ahead(scan, piece, inside ? t : t + rows, after.channel, &next);
            run_tile(scan, s, piece, rl_vector_at(scan, stripe, first + i), &v[i], t, rows, &next);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        rl_store_state(scan, piece, rl_vector_at(scan, stripe, first + i), v[i].h);
        v[i].h = own_h[i];
    }
}

/* One block of channels over a run of pieces, its parameters loaded once. */
static void run_task(const rl_s6 *scan, const rl_pieces *pieces, int64_t block, int64_t begin, int64_t end)
{
    char *memory = own_scratch(scan);
    tile s = tile_in(scan, memory);
    int64_t stripe = block / scan->stripe_blocks, first = block % scan->stripe_blocks * scan->block_vectors;
    int64_t count = rl_least(scan->block_vectors, scan->stripe_vectors - first);
    rl_vector_state v[BLOCK_CHANNELS];
    for (int64_t i = 0; i < count; i++) {
        v[i] = rl_vector_state_in(scan, memory + tile_scratch_size(scan) + (size_t)i * rl_vector_state_size(scan));
        rl_load_parameters(scan, rl_vector_at(scan, stripe, first + i), &v[i]);
    }
    for (int64_t index = begin; index < end; index++) {
        rl_piece piece;
        pieces->get(pieces->owner, index, &piece);
        run_block(scan, &s, &piece, stripe, first, count, v);
    }
}

void rl_s6_run(const rl_s6 *scan, const rl_pieces *pieces)
{
    if (scan->narrow) {
        for (int64_t index = 0; index < pieces->count; index++) {
            rl_piece piece;
            pieces->get(pieces->owner, index, &piece);
            if (rl_parts_wanted(scan, &piece))
                rl_parts_run(scan, &piece);
            else
                rl_narrow_run(scan, &piece);
        }
        return;
    }
    const int64_t wanted = (int64_t)scan->threads * TASKS_PER_THREAD * 4;
    const int64_t run = rl_most(1, scan->blocks * pieces->count / wanted), runs = rl_quotient_up(pieces->count, run);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < scan->blocks * runs; task++) {
        int64_t block = task % scan->blocks, begin = task / scan->blocks * run;
        run_task(scan, pieces, block, begin, rl_least(begin + run, pieces->count));
    }
}
