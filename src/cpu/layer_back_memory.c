/* The memory of the layer's gradients. */
#include <string.h>

#include "../counts.h"
#include "layer_back.h"

enum {
    SHARES = 8,        /* of steps, each with sums of its own: at most, */
    LEAST_SHARE = 512, /* of so many steps, */
    SUM_BYTES = 8 << 20
};

/* Follows from the sizes alone, as the sums' bits do. */
static int64_t shares_of(const rl_layer_back *l)
{
    const rl_projections *p = &l->projections;
    const int64_t bytes = (p->columns * l->panel_row + p->channels * l->rank_row) * (int64_t)p->real_size;
    return rl_most(1, rl_least(rl_least(SHARES, l->most / LEAST_SHARE), SUM_BYTES / rl_most(1, bytes)));
}

/* The states between slabs, and their gradients, of the wave that has most of them. */
static void count_states(const rl_layer_back *l, int64_t *states, int64_t *gradients)
{
    *states = *gradients = 0;
    for (int64_t first = 0; first < l->problem->sequences;) {
        const rl_layer_wave w = rl_layer_wave_from(l, first);
        first += w.count;
        if (w.rounds == 1) continue;
        *states = rl_most(*states, (w.rounds - 1) * w.count);
        *gradients = rl_most(*gradients, w.count);
    }
}

typedef struct array {
    void *pointer; /* to the pointer */
    int64_t count;
    size_t size;
} array;

static size_t bytes_of(const array *a)
{
    return ((size_t)a->count * a->size + 63) & ~(size_t)63;
}

/* One block: the workspace grows by as much as it has, whatever little is taken after what is large. */
static rill_status take(rill_context *context, const array *arrays, size_t count)
{
    size_t bytes = 0;
    void *memory = NULL;
    for (size_t i = 0; i < count; i++) bytes += bytes_of(&arrays[i]);
    rill_status status = rl_workspace_take(context, bytes, &memory);
    char *next = memory;
    for (size_t i = 0; i < count; i++) {
        char *at = arrays[i].count > 0 ? next : NULL;
        memcpy(arrays[i].pointer, &at, sizeof at);
        if (at) next += bytes_of(&arrays[i]);
    }
    return status;
}

rill_status rl_layer_take(rill_context *context, rl_layer_back *l, int threads)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_projections *of = &l->projections;
    const int64_t lanes = of->kernels->lanes, segments = rl_least(p->sequences, RL_LAYER_SEGMENTS);
    const int64_t blocks = l->scan.stripe_blocks, tile_rows = rl_most(l->panel_rows, RL_LAYER_STRIP);
    const bool weights = (of->low_rank ? p->dW_delta_down.data : p->dW_delta.data) || p->dW_B.data || p->dW_C.data;
    const bool low = of->low_rank && p->dW_delta.data, own_dx = p->dx.data && !l->dx_lies;
    int64_t states, gradients;
    l->carry = (size_t)(l->scan.vectors * p->states) * l->scan.forward.vector_size;
    l->panel_row = rl_quotient_up(p->channels, lanes) * lanes;
    l->rank_row = rl_quotient_up(of->low_rank ? p->rank : 0, lanes) * lanes;
    l->shares = shares_of(l);
    count_states(l, &states, &gradients);
    const array arrays[] = {
        {&l->segments, segments, sizeof *l->segments},
        {&l->panels, l->most / l->panel_rows + segments, sizeof *l->panels},
        {&l->runs, segments, sizeof *l->runs},
        {&l->states, states, l->carry},
        {&l->G, gradients, l->carry},
        {&l->dW, weights ? l->shares * of->columns * l->panel_row : 0, of->real_size},
        {&l->dW_low, low ? l->shares * p->channels * l->rank_row : 0, of->real_size},
        {&l->panel, rl_layer_gathers(l) ? threads * l->panel_rows * l->panel_row : 0, of->real_size},
        {&l->tile, threads * tile_rows * lanes, of->real_size},
        {&l->rows, l->most * of->columns, of->real_size},
        {&l->delta, of->low_rank ? l->most * p->channels : 0, of->real_size},
        {&l->dx, own_dx ? l->most * p->channels : 0, of->real_size},
        {&l->sums_BC, blocks > 1 ? blocks * l->most * 2 * p->states : 0, of->real_size}};
    return take(context, arrays, sizeof arrays / sizeof arrays[0]);
}
