/* Chunks of queries, keys, gates and factors, as the kernels read them. */
#include "linear_attention_chunk.h"

#include <math.h>
#include <string.h>

#include "../counts.h"

rl_matrix rl_attention_rows(const rill_tensor *tensor, rl_sequence s, int64_t step, int64_t head, int64_t channel)
{
    int64_t time = s.reverse ? s.first - step : s.first + step;
    int64_t offset = s.row * tensor->stride[0] + time * tensor->stride[1] + head * tensor->stride[2];
    if (tensor->rank == 4) offset += channel * tensor->stride[3];
    char *data = tensor->data; /* none where there are no keys: NULL stays NULL */
    if (data) data += offset * (int64_t)rill_dtype_size(tensor->dtype);
    return (rl_matrix){.data = data,
                       .dtype = tensor->dtype,
                       .row = s.reverse ? -tensor->stride[1] : tensor->stride[1],
                       .lane = tensor->rank == 4 ? tensor->stride[3] : 0};
}

/* Steps in lanes: some of a tensor [batch, length, heads], as one run of reals. */
static void load_steps(const rl_attention_walk *w, const rill_tensor *tensor, rl_sequence s, int64_t head,
                       int64_t begin, int64_t rows, char *to)
{
    const int64_t lanes = w->kernels->lanes;
    for (int64_t t = 0; t < rows; t += lanes) {
        rl_matrix m = rl_attention_rows(tensor, s, begin + t, head, 0);
        m.lane = m.row;
        m.row = 0;
        w->kernels->load(to + (size_t)t * w->real_size, lanes, &m, 1, rl_least(lanes, rows - t));
    }
}

bool rl_attention_load_factors(const rl_attention_walk *w, const rl_attention_factor *factor, rl_sequence s,
                               int64_t head, int64_t begin, int64_t rows, void *to)
{
    if (!factor->tensor.data && (factor->scale == 0 || factor->scale == 1)) return false;
    memset(to, 0, RL_CHUNK * w->real_size);
    if (factor->tensor.data) load_steps(w, &factor->tensor, s, head, begin, rows, to);
    for (int64_t t = 0; t < rows && !factor->tensor.data; t++) rl_attention_put(w, to, t, factor->scale);
    return true;
}

void rl_attention_load_gates(const rl_attention_walk *w, rl_sequence s, int64_t head, int64_t begin, int64_t rows,
                             double *gate, bool *reset)
{
    char room[RL_CHUNK * sizeof(double)] __attribute__((aligned(64)));
    if (w->gate.data) load_steps(w, &w->gate, s, head, begin, rows, room);
    for (int64_t t = 0; t < rows; t++) {
        double value = w->gate.data ? rl_attention_get(w, room, t) : 1;
        bool is_log = w->gate.data && w->gate_is_log;
        gate[t] = is_log ? exp(value) : value;
        reset[t] = is_log ? value == -(double)INFINITY : value == 0;
    }
}

void rl_attention_walk_gates(const rl_attention_walk *w, rl_sequence s, int64_t head, int64_t begin, int64_t rows,
                             double *gate, bool *reset)
{
    const int64_t first = begin == 0 && (w->backward || !w->start.data), behind = w->backward ? 1 : 0;
    rl_attention_load_gates(w, s, head, begin + first - behind, rows - first, gate + first, reset + first);
    if (first) gate[0] = w->start.data ? 1 : 0, reset[0] = !w->start.data;
}

typedef struct layout {
    size_t q, k, mix, plain, factor, end;
} layout;

static layout layout_of(const rl_attention_walk *w)
{
    const size_t square = RL_CHUNK * RL_CHUNK * w->real_size;
    layout at = {.q = (sizeof(rl_attention_slot) + 63) & ~(size_t)63};
    at.k = at.q + (size_t)(RL_CHUNK * w->q_pitch) * w->real_size;
    at.mix = at.k + (size_t)(RL_CHUNK * w->state_rows) * w->real_size;
    at.plain = at.mix + square;
    at.factor = at.plain + (w->wants_plain ? square : 0);
    at.end = (at.factor + 3 * RL_CHUNK * w->real_size + 255) & ~(size_t)255;
    return at;
}

size_t rl_attention_slot_size(const rl_attention_walk *w)
{
    return layout_of(w).end;
}

static void load_queries(const rl_attention_walk *w, const rl_attention_line *line, int64_t head, int64_t begin,
                         const rl_attention_chunk *c)
{
    const int64_t lanes = w->kernels->lanes;
    const int64_t padded = (c->rows + RL_STATE_ROWS - 1) / RL_STATE_ROWS * RL_STATE_ROWS;
    const size_t pitch = (size_t)w->q_pitch * w->real_size;
    if (!w->q.data || w->q_pitch > w->keys || padded > c->rows) memset(c->q, 0, (size_t)padded * pitch);
    for (int64_t n = 0; n < w->keys && w->q.data; n += lanes) {
        rl_matrix m = rl_attention_rows(&w->q, line->s, begin, head / w->q_share, n);
        w->kernels->load((char *)c->q + (size_t)n * w->real_size, w->q_pitch, &m, c->rows,
                         rl_least(lanes, w->keys - n));
    }
}

static void load_keys(const rl_attention_walk *w, const rl_attention_line *line, int64_t head, int64_t begin,
                      const rl_attention_chunk *c)
{
    const int64_t lanes = w->kernels->lanes;
    if (w->no_input || c->rows < RL_CHUNK || w->state_rows > w->keys)
        memset(c->k, 0, (size_t)(RL_CHUNK * w->state_rows) * w->real_size);
    for (int64_t t = 0; t < c->rows && !w->no_input; t += lanes) {
        rl_matrix m = rl_attention_rows(&w->k, line->s, begin + t, head / w->k_share, 0);
        int64_t step = m.row;
        m.row = m.lane;
        m.lane = step;
        w->kernels->load((char *)c->k + (size_t)t * w->real_size, RL_CHUNK, &m, w->keys,
                         rl_least(lanes, c->rows - t));
    }
}

void rl_attention_prepare(const rl_attention_walk *w, const rl_attention_line *line, int64_t member, int64_t chunk,
                          char *memory)
{
    const int64_t head = line->head * w->members + member, begin = rl_attention_begin_of(w, line, chunk);
    const layout at = layout_of(w);
    rl_attention_slot *slot = (rl_attention_slot *)memory;
    rl_attention_chunk *c = &slot->chunk;
    char *factor = memory + at.factor;
    *slot = (rl_attention_slot){.v_factor = factor + RL_CHUNK * w->real_size,
                                .y_factor = factor + 2 * RL_CHUNK * w->real_size};
    c->rows = rl_attention_end_of(w, line, chunk) - begin;
    c->keys = w->keys, c->q_pitch = w->q_pitch, c->state_rows = w->state_rows;
    c->may_multiply = w->may_multiply && c->rows >= RL_LEAST_ROWS;
    c->q = memory + at.q, c->k = memory + at.k;
    c->mix = w->y.data || w->partner.data ? memory + at.mix : NULL;
    c->plain = w->wants_plain ? memory + at.plain : NULL;
    load_queries(w, line, head, begin, c);
    load_keys(w, line, head, begin, c);
    rl_attention_walk_gates(w, line->s, head, begin, c->rows, c->gate, c->reset);
    const bool weighs =
        !w->no_input && rl_attention_load_factors(w, &w->k_factor, line->s, head, begin, c->rows, factor);
    c->k_factor = weighs ? factor : NULL;
    slot->has_v_factor = rl_attention_load_factors(w, &w->v_factor, line->s, head, begin, c->rows, slot->v_factor);
    slot->has_y_factor = rl_attention_load_factors(w, &w->y_factor, line->s, head, begin, c->rows, slot->y_factor);
    w->kernels->attention->prepare(c);
}
