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

enum {
    PART = 512,      /* columns of a panel's product: fixed, so that its bits do not follow the threads; so are */
    UNIT_ROWS = 320, /* the rows and columns of a sum over steps that are one product, */
    UNIT_COLUMNS = 1024
};

typedef void job(const rl_layer_back *l, int64_t task);

/* Tasks with products in them: by all threads, or by one where BLAS has threads of its own. */
static void share(const rl_layer_back *l, int64_t tasks, job *run)
{
    if (rl_gemm_shared()) {
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) run(l, task);
    } else {
#pragma omp master
        for (int64_t task = 0; task < tasks; task++) run(l, task);
#pragma omp barrier
    }
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

static void clear(const rl_layer_back *l, char *sums, int64_t rows, int64_t row)
{
    const size_t size = (size_t)row * l->projections.real_size;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < (sums ? rows : 0); i++) memset(sums + (size_t)i * size, 0, size);
}

void rl_layer_begin_products(const rl_layer_back *l)
{
    clear(l, l->dW, l->shares * l->projections.columns, l->panel_row);
    clear(l, l->dW_low, l->shares * l->projections.channels, l->rank_row);
#pragma omp barrier
}

/* Projections */

static void project_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const int64_t parts = parts_of(p->columns);
    const rl_layer_rows *panel = &l->panels[task / parts];
    const bool lies = l->x_lies && panel->steps == panel->rows;
    const char *x = lies ? rl_layer_rows_in(l, &l->problem->x, panel) : rl_layer_panel(l);
    if (!lies)
        rl_layer_gather(l, &l->problem->x, panel->row, panel->rows, (rl_range){0, p->channels}, rl_layer_panel(l));
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
    if (p->columns > 0) memset(rl_layer_row(l, row, 0), 0, (size_t)p->columns * rest);
    if (p->low_rank) memset(rl_layer_delta(l, row), 0, (size_t)p->channels * rest);
}

void rl_layer_project(const rl_layer_back *l)
{
    const rl_projections *p = &l->projections;
    share(l, p->columns > 0 ? l->panel_count * parts_of(p->columns) : 0, project_panel);
    if (p->low_rank) share(l, l->panel_count * parts_of(p->channels), project_low);
    if (!l->fixed) return;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < l->panel_count; i++) clear_rest(l, &l->panels[i]);
}

/* Their gradients */

/* Part `index` of `count`. */
static rl_range part_of(int64_t whole, int64_t index, int64_t count)
{
    return (rl_range){whole * index / count, whole * (index + 1) / count};
}

static int64_t units_of(int64_t rows)
{
    return rl_quotient_up(rows, UNIT_ROWS);
}

static void sum_low(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const int64_t units = units_of(p->channels), share = task / units;
    const rl_range rows = part_of(l->row_count, share, l->shares), m = part_of(p->channels, task % units, units);
    char *out = l->dW_low + (size_t)((share * p->channels + m.begin) * l->rank_row) * p->real_size;
    rl_gemm_turned(p->f64, m.end - m.begin, p->rank, rows.end - rows.begin,
                   rl_layer_delta(l, rows.begin) + (size_t)m.begin * p->real_size, p->channels,
                   rl_layer_row(l, rows.begin, 0), p->columns, out, l->rank_row);
}

static void low_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const rl_layer_rows *panel = &l->panels[task];
    rl_gemm_plain(p->f64, panel->rows, p->rank, p->channels, rl_layer_delta(l, panel->row), p->channels,
                  p->from_low.data, p->from_low.row, rl_layer_row(l, panel->row, 0), p->columns, false);
    clear_rest(l, panel);
}

/* A product of dW's sums: some rows of dW, which are columns of g, and channels. */
typedef struct unit {
    rl_range m, n;
    int64_t share;
} unit;

static int64_t unit_columns(const rl_layer_back *l)
{
    return rl_quotient_up(l->projections.channels, UNIT_COLUMNS);
}

static int64_t unit_tasks(const rl_layer_back *l)
{
    return l->dW ? l->shares * units_of(l->projections.columns) * unit_columns(l) : 0;
}

static unit unit_at(const rl_layer_back *l, int64_t task)
{
    const int64_t rows = units_of(l->projections.columns), columns = unit_columns(l),
                  n = task % columns * UNIT_COLUMNS;
    return (unit){.m = part_of(l->projections.columns, task / columns % rows, rows),
                  .n = {n, rl_least(n + UNIT_COLUMNS, l->projections.channels)},
                  .share = task / columns / rows};
}

/* Takes the sums over rows of g, and of x from where they lie on. */
static void sum_rows(const rl_layer_back *l, const unit *u, int64_t row, int64_t rows, const char *x, int64_t x_row)
{
    const rl_projections *p = &l->projections;
    const int64_t at = (u->share * p->columns + u->m.begin) * l->panel_row + u->n.begin;
    rl_gemm_turned(p->f64, u->m.end - u->m.begin, u->n.end - u->n.begin, rows, rl_layer_row(l, row, u->m.begin),
                   p->columns, x + (size_t)u->n.begin * p->real_size, x_row, l->dW + (size_t)at * p->real_size,
                   l->panel_row);
}

/* x from where it lies, or gathered some rows at a time. */
static void sum_unit(const rl_layer_back *l, int64_t task)
{
    const unit u = unit_at(l, task);
    const rl_range share = part_of(l->row_count, u.share, l->shares);
    if (!wants_columns(l, u.m.begin, u.m.end)) return;
    for (int64_t row = share.begin; row < share.end && !l->x_lies; row += l->panel_rows) {
        const int64_t rows = rl_least(l->panel_rows, share.end - row);
        rl_layer_gather(l, &l->problem->x, row, rows, u.n, rl_layer_panel(l));
        sum_rows(l, &u, row, rows, rl_layer_panel(l), l->panel_row);
    }
    for (int64_t i = 0; i < l->run_count && l->x_lies; i++) {
        rl_layer_rows run = l->runs[i];
        const int64_t begin = rl_most(run.row, share.begin), end = rl_least(run.row + run.rows, share.end);
        run.row = begin;
        if (begin < end)
            sum_rows(l, &u, begin, end - begin, rl_layer_rows_in(l, &l->problem->x, &run), l->problem->x.stride[1]);
    }
}

/* Adds to some channels of dx of a panel.  Where its rows do not all lie well it is taken out for that, and put back.
 */
static void dx_panel(const rl_layer_back *l, int64_t task)
{
    const rl_projections *p = &l->projections;
    const rill_tensor *dx = &l->problem->dx;
    const int64_t parts = parts_of(p->channels), begin = task % parts * PART;
    const rl_range channels = {begin, rl_least(begin + PART, p->channels)};
    const rl_layer_rows *panel = &l->panels[task / parts];
    const bool lies = l->dx_lies && panel->steps == panel->rows;
    const size_t first = (size_t)begin * p->real_size;
    char *out = l->dx_lies ? rl_layer_panel(l) : l->dx + (size_t)(panel->row * p->channels) * p->real_size;
    int64_t row = l->dx_lies ? l->panel_row : p->channels;
    if (lies) out = rl_layer_rows_in(l, dx, panel), row = dx->stride[1];
    if (l->dx_lies && !lies) rl_layer_gather(l, dx, panel->row, panel->rows, channels, out);
    rl_gemm_plain(p->f64, panel->rows, channels.end - begin, p->columns, rl_layer_row(l, panel->row, 0), p->columns,
                  p->packed + first, p->packed_row, out + first, row, true);
    if (!lies) rl_layer_scatter(l, dx, panel->row, panel->steps, channels, out, row);
}

/* dW, then dx. */
static void back_task(const rl_layer_back *l, int64_t task)
{
    const int64_t units = unit_tasks(l);
    if (task < units)
        sum_unit(l, task);
    else
        dx_panel(l, task - units);
}

void rl_layer_project_back(const rl_layer_back *l)
{
    const rl_projections *p = &l->projections;
    const int64_t panels = l->problem->dx.data ? l->panel_count * parts_of(p->channels) : 0;
    if (l->dW_low) share(l, l->shares * units_of(p->channels), sum_low);
    if (wants_low(l)) share(l, l->panel_count, low_panel);
    share(l, unit_tasks(l) + panels, back_task);
}

/* All shares' sums into the first's. */
static void add_shares(const rl_layer_back *l, char *sums, int64_t rows, int64_t row)
{
    const size_t size = (size_t)row * l->projections.real_size;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < (sums ? rows : 0); i++)
        for (int64_t share = 1; share < l->shares; share++)
            l->projections.kernels->add(sums + (size_t)i * size, sums + (size_t)(share * rows + i) * size,
                                        row / l->projections.kernels->lanes);
}

static void store_weight(const rl_layer_back *l, const rill_tensor *to, const char *sums, int64_t row)
{
    const rl_projections *p = &l->projections;
    const int64_t rows = to->shape[0], columns = to->shape[1], lanes = p->kernels->lanes;
    if (!to->data) return;
#pragma omp for schedule(static) nowait
    for (int64_t first = 0; first < rows; first += RL_LAYER_STRIP)
        for (int64_t column = 0; column < columns; column += lanes) {
            const int64_t offset = first * to->stride[0] + column * to->stride[1];
            const int64_t count = rl_least(RL_LAYER_STRIP, rows - first), wide = rl_least(lanes, columns - column);
            const rl_matrix from = {.data = (char *)sums + (size_t)(first * row + column) * p->real_size,
                                    .dtype = rl_layer_real(l),
                                    .row = row,
                                    .lane = 1};
            const rl_matrix place = {.data = (char *)to->data + offset * (int64_t)rill_dtype_size(to->dtype),
                                     .dtype = to->dtype,
                                     .row = to->stride[0],
                                     .lane = to->stride[1]};
            p->kernels->load(rl_layer_tile(l), lanes, &from, count, wide);
            p->kernels->store(&place, rl_layer_tile(l), count, wide);
        }
}

void rl_layer_store_weights(const rl_layer_back *l)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const size_t row = (size_t)l->panel_row * l->projections.real_size;
    const char *B = l->dW + (size_t)(l->projections.columns - 2 * p->states) * row;
    add_shares(l, l->dW, l->projections.columns, l->panel_row);
    add_shares(l, l->dW_low, l->projections.channels, l->rank_row);
    if (l->projections.low_rank) {
        store_weight(l, &p->dW_delta, l->dW_low, l->rank_row);
        store_weight(l, &p->dW_delta_down, l->dW, l->panel_row);
    } else {
        store_weight(l, &p->dW_delta, l->dW, l->panel_row);
    }
    store_weight(l, &p->dW_B, B, l->panel_row);
    store_weight(l, &p->dW_C, B + (size_t)p->states * row, l->panel_row);
}
