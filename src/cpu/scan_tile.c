/* Tiles of scan: from tensors into scratch memory, and back. */
#include <math.h>
#include <string.h>

#include "scan.h"

enum { CACHE_LINE = 64 };

static char *tile_of(char *base, const rl_scan_job *job, int index)
{
    return base + (size_t)index * RL_TILE_ROWS * job->vector_size;
}

rl_scan_scratch rl_scan_scratch_of(const rl_scan_job *job, int thread)
{
    char *base = job->scratch + (size_t)thread * job->scratch_size;
    return (rl_scan_scratch){
        .a = base, .input = tile_of(base, job, 1), .before = tile_of(base, job, 2), .state = tile_of(base, job, 3)};
}

/* The place's rows in a tensor, `ahead` steps on. */
static rl_matrix rows_of(const rl_scan_place *place, const rill_tensor *tensor, int64_t ahead)
{
    rl_series series = rl_series_of(tensor, place->s, place->t + ahead);
    if (!series.data) return (rl_matrix){0};
    rl_matrix rows = rl_series_rows(&series, 0, place->channel);
    if (place->piece > 0) rows.lane = place->piece * series.step;
    return rows;
}

static rl_matrix state_of(const rill_tensor *tensor, const rl_scan_place *place)
{
    if (!tensor->data) return (rl_matrix){0};
    int64_t offset = place->sequence * tensor->stride[0] + place->channel * tensor->stride[1];
    return (rl_matrix){.data = (char *)tensor->data + offset * (int64_t)rill_dtype_size(tensor->dtype),
                       .dtype = tensor->dtype,
                       .row = 1,
                       .lane = tensor->stride[1]};
}

void rl_scan_load_state(const rl_scan_job *job, const rl_scan_place *place, void *state)
{
    rl_matrix from = state_of(&job->start, place);
    job->mover->load(state, &from, 1, place->lanes);
}

void rl_scan_store_state(const rl_scan_job *job, const rl_scan_place *place, const void *state)
{
    rl_matrix to = state_of(&job->end, place);
    if (to.data) job->mover->store(&to, state, 1, place->lanes);
}

/* No state comes before the first step that the recurrence runs: its decay, not read, drops what is not there. */
static void make_fresh(const rl_scan_job *job, const rl_scan_tile *tile, size_t offset, size_t bytes)
{
    memset((char *)tile->a + offset, 0, bytes);
    for (size_t at = offset; tile->before && at < offset + bytes; at += job->real_size) {
        if (job->narrow)
            *(float *)((char *)tile->before + at) = NAN;
        else
            *(double *)((char *)tile->before + at) = NAN;
    }
}

/* The states that the decays met: h one step on; for the sequence's first step, last in the walk, h_init. */
static void load_before(const rl_scan_job *job, const rl_scan_place *place, char *before)
{
    int64_t rows = place->rows, steps = place->piece > 0 ? place->lanes * rows : rows;
    bool ends = place->t + steps == place->s.length;
    if (ends) rows--;
    if (rows > 0) {
        rl_matrix from = rows_of(place, &job->h, 1);
        job->mover->load(before, &from, rows, place->lanes);
    }
    if (!ends) return;
    rl_matrix from = state_of(&job->h_init, place);
    job->mover->load(before + (size_t)rows * job->vector_size, &from, 1, place->lanes);
}

rl_scan_tile rl_scan_load_tile(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place)
{
    rl_scan_tile tile = {.rule = job->rule, .rows = place->rows, .a = scratch->a, .input = scratch->input};
    rl_matrix a = rows_of(place, &job->a, 0), input = rows_of(place, &job->input, 0);
    job->mover->load(tile.a, &a, place->rows, place->lanes);
    job->mover->load(tile.input, &input, place->rows, place->lanes);
    if (job->da.data) {
        tile.before = scratch->before;
        load_before(job, place, tile.before);
    }
    if (job->h_init.data) return tile;
    const size_t row = job->vector_size;
    if (job->rule.back && place->t + place->rows == place->s.length)
        make_fresh(job, &tile, (size_t)(place->rows - 1) * row, row);
    else if (!job->rule.back && place->t == 0)
        make_fresh(job, &tile, 0, place->piece > 0 ? (size_t)job->parts * job->real_size : row);
    return tile;
}

/* Runs of neighbouring steps are put in order in `linear` and leave it in whole cache lines. */
static void stream(const rl_scan_job *job, const rl_scan_place *place, const rl_matrix *to, const void *tile,
                   char *linear)
{
    const int64_t size = (int64_t)rill_dtype_size(to->dtype),
                  run = place->rows * (place->piece > 0 ? place->lanes : 1);
    const int64_t runs = place->piece > 0 ? 1 : place->lanes, back = to->row < 0 ? run - 1 : 0;
    rl_matrix m = {.data = linear + back * size, .dtype = to->dtype, .row = to->row, .lane = place->rows};
    if (place->piece > 0) m.lane *= to->row;
    job->mover->store(&m, tile, place->rows, place->lanes);
    for (int64_t i = 0; i < runs; i++)
        job->kernels->stream((char *)to->data + (i * to->lane - back) * size, linear + i * run * size, run * size);
}

static void store_rows(const rl_scan_job *job, const rl_scan_place *place, const rill_tensor *tensor,
                       const void *tile, char *linear)
{
    if (!tensor->data) return;
    rl_matrix to = rows_of(place, tensor, 0);
    if (job->past_cache && (to.row == 1 || to.row == -1) && to.lane != 1)
        stream(job, place, &to, tile, linear);
    else
        job->mover->store(&to, tile, place->rows, place->lanes);
}

void rl_scan_store_tile(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place)
{
    store_rows(job, place, &job->out, scratch->input, scratch->a);
    store_rows(job, place, &job->da, scratch->before, scratch->a);
}

bool rl_scan_is_aligned(const rl_scan_job *job, const rl_matrix *m, int64_t across)
{
    const uintptr_t bytes = (uintptr_t)(job->lanes * job->parts) * rill_dtype_size(m->dtype) / (uintptr_t)job->parts;
    return m->data == NULL ||
           (((uintptr_t)m->data | (uintptr_t)across * rill_dtype_size(m->dtype)) & (bytes - 1)) == 0;
}

static bool has_columns(const rl_scan_job *job, const rill_tensor *tensor)
{
    return tensor->data && tensor->stride[1] == job->input.stride[1] && tensor->dtype == job->a.dtype;
}

bool rl_scan_has_columns(const rl_scan_job *job)
{
    const int64_t step = job->input.stride[1];
    bool da_fits = !job->da.data || (has_columns(job, &job->da) && has_columns(job, &job->h));
    return !job->rule.is_complex && (step == 1 || step == -1) && has_columns(job, &job->input) &&
           (has_columns(job, &job->a) || job->a.stride[1] == 0) && (has_columns(job, &job->out) || !job->out.data) &&
           da_fits;
}

/* Falling rows end, not begin, at their first element. */
static bool is_aligned_column(rl_matrix m)
{
    if (m.data && m.row < 0) m.data = (char *)m.data + rill_dtype_size(m.dtype);
    const uintptr_t offset = (uintptr_t)m.data | (uintptr_t)m.lane * rill_dtype_size(m.dtype);
    return m.data == NULL || offset % CACHE_LINE == 0;
}

rl_scan_columns rl_scan_columns_of(const rl_scan_job *job, const rl_scan_place *place)
{
    const bool with_da = job->da.data != NULL;
    rl_matrix a = rows_of(place, &job->a, 0), input = rows_of(place, &job->input, 0);
    rl_matrix out = rows_of(place, &job->out, 0), da = rows_of(place, &job->da, 0);
    rl_matrix before = with_da ? rows_of(place, &job->h, 1) : (rl_matrix){0};
    return (rl_scan_columns){.rule = job->rule,
                             .dtype = job->real_dtype,
                             .rows = place->rows,
                             .a = a.data,
                             .input = input.data,
                             .before = before.data,
                             .out = out.data,
                             .da = da.data,
                             .a_lane = a.lane,
                             .input_lane = input.lane,
                             .before_lane = before.lane,
                             .out_lane = out.lane,
                             .da_lane = da.lane,
                             .falling = input.row < 0,
                             .a_is_constant = a.row == 0,
                             .past_cache = job->past_cache && is_aligned_column(out) && is_aligned_column(da)};
}

rl_scan_tile rl_scan_load_decays(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place)
{
    rl_matrix a = rows_of(place, &job->a, 0);
    job->mover->load(scratch->a, &a, place->rows, place->lanes);
    return (rl_scan_tile){.rows = place->rows, .a = scratch->a};
}

double rl_scan_largest_decay(const rl_scan_job *job, const rl_scan_tile *tile)
{
    const double *decays = tile->a;
    double largest = 0;
    for (int64_t i = 0; i < tile->rows * job->lanes * job->parts; i += job->parts) {
        double size = job->parts == 2 ? sqrt(decays[i] * decays[i] + decays[i + 1] * decays[i + 1]) : fabs(decays[i]);
        if (!(size <= largest)) largest = isnan(size) ? INFINITY : size; /* and there it stays */
    }
    return largest;
}
