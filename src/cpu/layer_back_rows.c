/* Rows of a round between tensors over time and the products' memory. */
#include <omp.h>
#include <string.h>

#include "../counts.h"
#include "layer_back.h"

char *rl_layer_panel(const rl_layer_back *l)
{
    const int64_t panel = l->panel_rows * l->panel_row;
    return l->panel ? l->panel + (size_t)(omp_get_thread_num() * panel) * l->projections.real_size : NULL;
}

char *rl_layer_tile(const rl_layer_back *l)
{
    const int64_t tile = rl_most(l->panel_rows, RL_LAYER_STRIP) * l->projections.kernels->lanes;
    return l->tile + (size_t)(omp_get_thread_num() * tile) * l->projections.real_size;
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

void rl_layer_gather(const rl_layer_back *l, const rill_tensor *from, int64_t row, int64_t rows, rl_range channels,
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

void rl_layer_scatter(const rl_layer_back *l, const rill_tensor *to, int64_t row, int64_t rows, rl_range channels,
                      const char *from, int64_t from_row)
{
    const rl_projections *p = &l->projections;
    char *tile = rl_layer_tile(l);
    for (int64_t i = segment_at(l, row); i < l->segment_count && l->segments[i].row < row + rows; i++) {
        const rl_layer_segment *s = &l->segments[i];
        const int64_t at = rl_most(s->row, row), end = rl_least(s->row + s->length, row + rows);
        if (at >= end) continue;
        const rl_series series = rl_layer_series(l, to, s, at - s->row);
        for (int64_t channel = channels.begin; channel < channels.end; channel += p->kernels->lanes) {
            const int64_t lanes = rl_least(p->kernels->lanes, channels.end - channel);
            const int64_t place = (at - row) * from_row + channel;
            rl_matrix m = {.data = (char *)from + (size_t)place * p->real_size,
                           .dtype = rl_layer_real(l),
                           .row = from_row,
                           .lane = 1};
            p->kernels->load(tile, p->kernels->lanes, &m, end - at, lanes);
            m = rl_series_rows(&series, 0, channel);
            p->kernels->store(&m, tile, end - at, lanes);
        }
    }
}

void *rl_layer_rows_in(const rl_layer_back *l, const rill_tensor *t, const rl_layer_rows *rows)
{
    const rl_layer_segment *s = &l->segments[rows->segment];
    return rl_layer_series(l, t, s, rows->row - s->row).data;
}
