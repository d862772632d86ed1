/*
 * The matrix products of a round.  With g the rows of gradients of delta (or of the low rank), B and C side by side,
 * as the projections lay before, and W their weights one below the other:
 *
 *     dW += gᵀ x        dx += g W        and with a low rank   dW_delta += ddeltaᵀ low,   dlow = ddelta W_delta
 */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "gemm.h"
#include "layer_back.h"

/* What one product makes at most, but for its rows of steps: fixed, so that its bits do not follow the threads. */
enum { PART = 512, UNIT_ROWS = 64, UNIT_COLUMNS = 1024, STRIP = 32 };

typedef struct range {
    int64_t begin, end;
} range;

typedef void job(const rl_layer_back *l, int64_t task);

/* Tasks with products in them: by all threads, or by one where BLAS has threads of its own. */
static void share(const rl_layer_back *l, int64_t begin, int64_t end, job *run)
{
    if (rl_gemm_shared()) {
#pragma omp for schedule(dynamic)
        for (int64_t task = begin; task < end; task++) run(l, task);
    } else {
#pragma omp master
        for (int64_t task = begin; task < end; task++) run(l, task);
#pragma omp barrier
    }
}

static int64_t lanes_of(const rl_layer_back *l)
{
    return l->projections.kernels->lanes;
}

static rill_dtype real_type(const rl_layer_back *l)
{
    return l->projections.f64 ? RILL_F64 : RILL_F32;
}

static int64_t parts_of(int64_t columns)
{
    return rl_most(1, rl_quotient_up(columns, PART));
}

static bool wants_low(const rl_layer_back *l)
{
    return l->projections.low_rank && (l->problem->dx.data || l->problem->dW_delta_down.data);
}

/* The columns of g that the gradient of a weight of x needs: those of delta or the low rank, of B, of C. */
static bool wants_columns(const rl_layer_back *l, int64_t begin, int64_t end)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const int64_t B = l->projections.columns - 2 * p->states, C = B + p->states;
    const rill_tensor *first = l->projections.low_rank ? &p->dW_delta_down : &p->dW_delta;
    return (first->data && begin < B) || (p->dW_B.data && begin < C && end > B) || (p->dW_C.data && end > C);
}

rill_status rl_layer_take_products(rill_context *context, rl_layer_back *l, int threads)
{
    const rl_projections *p = &l->projections;
    const int64_t lanes = lanes_of(l);
    void *dW = NULL, *dW_low = NULL, *x = NULL, *panel = NULL;
    l->panel_row = rl_quotient_up(p->channels, lanes) * lanes;
    l->rank_row = rl_quotient_up(p->low_rank ? p->rank : 0, lanes) * lanes;
    const bool sums = wants_columns(l, 0, p->columns), low = p->low_rank && l->problem->dW_delta.data;
    const struct {
        void **block;
        int64_t rows, row;
    } blocks[] = {{&dW, sums ? p->columns : 0, l->panel_row},
                  {&dW_low, low ? p->channels : 0, l->rank_row},
                  {&x, sums && !l->x_lies ? RL_LAYER_CHUNK : 0, l->panel_row},
                  {&panel, threads * l->panel_rows, l->panel_row + lanes}};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        const size_t bytes = (size_t)(blocks[i].rows * blocks[i].row) * p->real_size;
        rill_status status = rl_workspace_take(context, bytes, blocks[i].block);
        if (status != RILL_OK) return status;
    }
    l->dW = dW, l->dW_low = dW_low, l->x = x, l->panel = panel;
    return RILL_OK;
}

static void clear(const rl_layer_back *l, char *sums, int64_t rows, int64_t row)
{
    const size_t size = (size_t)row * l->projections.real_size;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < (sums ? rows : 0); i++) memset(sums + (size_t)i * size, 0, size);
}

void rl_layer_begin_products(const rl_layer_back *l)
{
    clear(l, l->dW, l->projections.columns, l->panel_row);
    clear(l, l->dW_low, l->projections.channels, l->rank_row);
#pragma omp barrier
}

/* A thread's panel, and behind it a tile of as many rows. */
static char *panel_of(const rl_layer_back *l)
{
    const int64_t row = l->panel_row + lanes_of(l);
    return l->panel + (size_t)(omp_get_thread_num() * l->panel_rows * row) * l->projections.real_size;
}

static char *tile_of(const rl_layer_back *l)
{
    return panel_of(l) + (size_t)(l->panel_rows * l->panel_row) * l->projections.real_size;
}

/* The last segment that begins at a row or before it. */
static int64_t segment_at(const rl_layer_back *l, int64_t row)
{
    int64_t low = 0, high = l->segment_count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (l->segments[middle].row <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Channels of some rows of a tensor over time into memory, those of no step as zeros. */
static void gather(const rl_layer_back *l, const rill_tensor *from, int64_t row, int64_t rows, range channels,
                   char *to)
{
    const rl_projections *p = &l->projections;
    const size_t size = (size_t)l->panel_row * p->real_size;
    int64_t filled = row;
    for (int64_t i = segment_at(l, row); i < l->segment_count && l->segments[i].row < row + rows; i++) {
        const rl_layer_segment *s = &l->segments[i];
        const int64_t at = rl_most(s->row, row), end = rl_least(s->row + s->length, row + rows);
        if (at >= end) continue;
        const rl_series series = rl_layer_series(l, from, s, at - s->row);
        if (at > filled) memset(to + (size_t)(filled - row) * size, 0, (size_t)(at - filled) * size);
        for (int64_t channel = channels.begin; channel < channels.end; channel += p->kernels->lanes) {
            rl_matrix m = rl_series_rows(&series, 0, channel);
            char *place = to + (size_t)(at - row) * size + (size_t)channel * p->real_size;
            p->kernels->load(place, l->panel_row, &m, end - at, rl_least(p->kernels->lanes, channels.end - channel));
        }
        filled = end;
    }
    if (row + rows > filled) memset(to + (size_t)(filled - row) * size, 0, (size_t)(row + rows - filled) * size);
}

/* Channels of rows of memory, at most a panel's, into a tensor over time. */
static void scatter(const rl_layer_back *l, const rill_tensor *to, int64_t row, int64_t rows, range channels,
                    const char *from, int64_t from_row)
{
    const rl_projections *p = &l->projections;
    char *tile = tile_of(l);
    for (int64_t i = segment_at(l, row); i < l->segment_count && l->segments[i].row < row + rows; i++) {
        const rl_layer_segment *s = &l->segments[i];
        const int64_t at = rl_most(s->row, row), end = rl_least(s->row + s->length, row + rows);
        if (at >= end) continue;
        const rl_series series = rl_layer_series(l, to, s, at - s->row);
        for (int64_t channel = channels.begin; channel < channels.end; channel += p->kernels->lanes) {
            const int64_t lanes = rl_least(p->kernels->lanes, channels.end - channel);
            const int64_t place = (at - row) * from_row + channel;
            rl_matrix m = {.data = (char *)from + (size_t)place * p->real_size,
                           .dtype = real_type(l),
                           .row = from_row,
                           .lane = 1};
            p->kernels->load(tile, p->kernels->lanes, &m, end - at, lanes);
            m = rl_series_rows(&series, 0, channel);
            p->kernels->store(&m, tile, end - at, lanes);
        }
    }
}

/* Where rows lie in a tensor that lies well. */
static void *rows_in(const rl_layer_back *l, const rill_tensor *t, const rl_layer_rows *rows)
{
    const rl_layer_segment *s = &l->segments[rows->segment];
    return rl_layer_series(l, t, s, rows->row - s->row).data;
}

/* Projections */

static void project_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const int64_t parts = parts_of(p->columns);
    const rl_layer_rows *panel = &l->panels[task / parts];
    const bool lies = l->x_lies && panel->steps == panel->rows;
    const char *x = lies ? rows_in(l, &l->problem->x, panel) : panel_of(l);
    if (!lies) gather(l, &l->problem->x, panel->row, panel->rows, (range){0, p->channels}, panel_of(l));
    rl_project_x(p, panel->rows, x, lies ? l->problem->x.stride[1] : l->panel_row, rl_layer_row(l, panel->row, 0),
                 task % parts, parts);
}

static void project_low(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const int64_t parts = parts_of(p->channels);
    const rl_layer_rows *panel = &l->panels[task / parts];
    rl_project_low(p, panel->rows, rl_layer_row(l, panel->row, 0), rl_layer_delta(l, panel->row), task % parts,
                   parts);
}

/* Rows of no step are made zeros: a product with an infinite weight may have made NaNs of them. */
static void clear_rest(const rl_layer_back *l, const rl_layer_rows *panel)
{
    const rl_projections *p = &l->projections;
    const size_t rest = (size_t)(panel->rows - panel->steps) * p->real_size;
    const int64_t row = panel->row + panel->steps;
    if (rest == 0) return;
    memset(rl_layer_row(l, row, 0), 0, (size_t)p->columns * rest);
    if (p->low_rank) memset(rl_layer_delta(l, row), 0, (size_t)p->channels * rest);
}

void rl_layer_project(const rl_layer_back *l)
{
    const rl_projections *p = &l->projections;
    share(l, 0, p->columns > 0 ? l->panel_count * parts_of(p->columns) : 0, project_panel);
    if (p->low_rank) share(l, 0, l->panel_count * parts_of(p->channels), project_low);
    if (!l->fixed) return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->panel_count; i++) clear_rest(l, &l->panels[i]);
}

/* Their gradients */

static void sum_low(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const int64_t first = task * UNIT_ROWS, rows = rl_least(UNIT_ROWS, p->channels - first);
    rl_gemm_turned(p->f64, rows, p->rank, l->row_count, l->delta + (size_t)first * p->real_size, p->channels, l->rows,
                   p->columns, l->dW_low + (size_t)(first * l->rank_row) * p->real_size, l->rank_row);
}

static void low_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const rl_layer_rows *panel = &l->panels[task];
    rl_gemm_plain(p->f64, panel->rows, p->rank, p->channels, rl_layer_delta(l, panel->row), p->channels,
                  p->from_low.data, p->from_low.row, rl_layer_row(l, panel->row, 0), p->columns, false);
    clear_rest(l, panel);
}

static int64_t unit_columns(const rl_layer_back *l)
{
    return rl_quotient_up(l->projections.channels, UNIT_COLUMNS);
}

static int64_t units_of(const rl_layer_back *l)
{
    return l->dW ? rl_quotient_up(l->projections.columns, UNIT_ROWS) * unit_columns(l) : 0;
}

/* A unit of dW takes its sums over `rows` rows of g and of x. */
static void sum_unit(const rl_layer_back *l, int64_t unit, int64_t row, int64_t rows, const void *x, int64_t x_row)
{
    const rl_projections *p = &l->projections;
    const int64_t m = unit / unit_columns(l) * UNIT_ROWS, n = unit % unit_columns(l) * UNIT_COLUMNS;
    const int64_t count = rl_least(UNIT_ROWS, p->columns - m);
    if (!wants_columns(l, m, m + count)) return;
    rl_gemm_turned(p->f64, count, rl_least(UNIT_COLUMNS, p->channels - n), rows, rl_layer_row(l, row, m), p->columns,
                   (const char *)x + (size_t)n * p->real_size, x_row,
                   l->dW + (size_t)(m * l->panel_row + n) * p->real_size, l->panel_row);
}

/* Adds to some channels of dx of a panel.  Where its rows do not all lie well it is taken out for that, and put back.
 */
static void dx_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const rill_tensor *dx = &l->problem->dx;
    const int64_t parts = parts_of(p->channels), begin = task % parts * PART;
    const range channels = {begin, rl_least(begin + PART, p->channels)};
    const rl_layer_rows *panel = &l->panels[task / parts];
    const bool lies = l->dx_lies && panel->steps == panel->rows;
    const size_t first = (size_t)begin * p->real_size;
    char *out = l->dx_lies ? panel_of(l) : l->dx + (size_t)(panel->row * p->channels) * p->real_size;
    int64_t row = l->dx_lies ? l->panel_row : p->channels;
    if (lies) out = rows_in(l, dx, panel), row = dx->stride[1];
    if (l->dx_lies && !lies) gather(l, dx, panel->row, panel->rows, channels, out);
    rl_gemm_plain(p->f64, panel->rows, channels.end - begin, p->columns, rl_layer_row(l, panel->row, 0), p->columns,
                  p->packed + first, p->packed_row, out + first, row, true);
    if (!lies) scatter(l, dx, panel->row, panel->steps, channels, out, row);
}

/* dW of x that lies well, then dx. */
static void back_task(const rl_layer_back *l, int64_t task)
{
    const int64_t units = l->x_lies ? units_of(l) : 0;
    if (task >= units) {
        dx_panel(l, task - units);
        return;
    }
    for (int64_t i = 0; i < l->run_count; i++) {
        const rl_layer_rows *run = &l->runs[i];
        sum_unit(l, task, run->row, run->rows, rows_in(l, &l->problem->x, run), l->problem->x.stride[1]);
    }
}

static void chunk_task(const rl_layer_back *l, int64_t task)
{
    const int64_t row = task / units_of(l) * RL_LAYER_CHUNK;
    sum_unit(l, task % units_of(l), row, rl_least(RL_LAYER_CHUNK, l->row_count - row), l->x, l->panel_row);
}

/* dW of x that does not lie well: it is gathered, some rows at a time. */
static void sum_chunks(const rl_layer_back *l)
{
    const int64_t units = units_of(l);
    for (int64_t row = 0; row < l->row_count && units > 0; row += RL_LAYER_CHUNK) {
        const int64_t end = rl_least(row + RL_LAYER_CHUNK, l->row_count), chunk = row / RL_LAYER_CHUNK;
#pragma omp for schedule(static)
        for (int64_t at = row; at < end; at += STRIP)
            gather(l, &l->problem->x, at, rl_least(STRIP, end - at), (range){0, l->projections.channels},
                   l->x + (size_t)((at - row) * l->panel_row) * l->projections.real_size);
        share(l, chunk * units, (chunk + 1) * units, chunk_task);
    }
}

void rl_layer_project_back(const rl_layer_back *l)
{
    const rl_projections *p = &l->projections;
    if (l->dW_low) share(l, 0, rl_quotient_up(p->channels, UNIT_ROWS), sum_low);
    if (wants_low(l)) share(l, 0, l->panel_count, low_panel);
    if (!l->x_lies) sum_chunks(l);
    const int64_t units = l->x_lies ? units_of(l) : 0;
    share(l, 0, units + (l->problem->dx.data ? l->panel_count * parts_of(p->channels) : 0), back_task);
}

static void store_weight(const rl_layer_back *l, const rill_tensor *to, const char *sums, int64_t row)
{
    const rl_projections *p = &l->projections;
    const int64_t rows = to->shape[0], columns = to->shape[1], lanes = p->kernels->lanes;
    if (!to->data) return;
#pragma omp for schedule(static) nowait
    for (int64_t first = 0; first < rows; first += STRIP)
        for (int64_t column = 0; column < columns; column += lanes) {
            const int64_t offset = first * to->stride[0] + column * to->stride[1];
            const int64_t count = rl_least(STRIP, rows - first), wide = rl_least(lanes, columns - column);
            const rl_matrix from = {.data = (char *)sums + (size_t)(first * row + column) * p->real_size,
                                    .dtype = real_type(l),
                                    .row = row,
                                    .lane = 1};
            const rl_matrix place = {.data = (char *)to->data + offset * (int64_t)rill_dtype_size(to->dtype),
                                     .dtype = to->dtype,
                                     .row = to->stride[0],
                                     .lane = to->stride[1]};
            p->kernels->load(tile_of(l), lanes, &from, count, wide);
            p->kernels->store(&place, tile_of(l), count, wide);
        }
}

void rl_layer_store_weights(const rl_layer_back *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const size_t row = (size_t)l->panel_row * l->projections.real_size;
    const char *B = l->dW + (size_t)(l->projections.columns - 2 * p->states) * row;
    if (l->projections.low_rank) {
        store_weight(l, &p->dW_delta, l->dW_low, l->rank_row);
        store_weight(l, &p->dW_delta_down, l->dW, l->panel_row);
    } else {
        store_weight(l, &p->dW_delta, l->dW, l->panel_row);
    }
    store_weight(l, &p->dW_B, B, l->panel_row);
    store_weight(l, &p->dW_C, B + (size_t)p->states * row, l->panel_row);
}
