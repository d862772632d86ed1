/* Steps of a time-shaped tensor, in the order of the recurrence. */
#ifndef RL_CPU_SERIES_H
#define RL_CPU_SERIES_H

#include "kernels/kernels.h"

/* From a piece's first step on.  Strides in elements. */
typedef struct rl_series {
    void *data; /* NULL: absent */
    rill_dtype dtype;
    int64_t step, lane, group; /* lane: of channels, or of states in B and C */
} rl_series;

/* The steps of a sequence: row of the batch, the first step taken, how many; `reverse` walks down from there. */
typedef struct rl_sequence {
    int64_t row, first, length;
    bool reverse;
} rl_sequence;

static inline rl_sequence rl_sequence_of(const rill_tensor *offsets, int64_t sequence, int64_t length, bool reverse)
{
    int64_t row = sequence, begin = 0, end = length;
    if (offsets->data) {
        const int64_t *entries = offsets->data;
        row = 0;
        begin = entries[sequence * offsets->stride[0]];
        end = entries[(sequence + 1) * offsets->stride[0]];
    }
    return (rl_sequence){.row = row, .first = reverse ? end - 1 : begin, .length = end - begin, .reverse = reverse};
}

static inline int64_t rl_longest_sequence(const rill_tensor *offsets, int64_t sequences, int64_t length)
{
    if (!offsets->data) return length;
    int64_t longest = 0;
    for (int64_t s = 0; s < sequences; s++) {
        int64_t here = rl_sequence_of(offsets, s, length, false).length;
        if (here > longest) longest = here;
    }
    return longest;
}

/* A tensor [batch, length, channels] or [batch, length, groups, states] from step t of the sequence on (t < length).
 */
static inline rl_series rl_series_of(const rill_tensor *tensor, rl_sequence s, int64_t t)
{
    if (!tensor->data) return (rl_series){0};
    int64_t offset = s.row * tensor->stride[0] + (s.reverse ? s.first - t : s.first + t) * tensor->stride[1];
    return (rl_series){.data = (char *)tensor->data + offset * (int64_t)rill_dtype_size(tensor->dtype),
                       .dtype = tensor->dtype,
                       .step = s.reverse ? -tensor->stride[1] : tensor->stride[1],
                       .lane = tensor->stride[tensor->rank - 1],
                       .group = tensor->rank == 4 ? tensor->stride[2] : 0};
}

/* Rows from step t on of the channels from `channel` on. */
static inline rl_matrix rl_series_rows(const rl_series *series, int64_t t, int64_t channel)
{
    int64_t offset = t * series->step + channel * series->lane;
    return (rl_matrix){.data = (char *)series->data + offset * (int64_t)rill_dtype_size(series->dtype),
                       .dtype = series->dtype,
                       .row = series->step,
                       .lane = series->lane};
}

#endif
