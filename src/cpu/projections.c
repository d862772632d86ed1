#include "projections.h"

#include <limits.h>

#include "../counts.h"
#include "gemm.h"

enum { PACK_ROWS = 16, PART_COLUMNS = 16 };

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Whether a product can read the tensor where it lies. */
static bool lies_well(const rill_tensor *w, bool f64)
{
    return w->dtype == (f64 ? RILL_F64 : RILL_F32) && w->stride[1] == 1 && w->stride[0] >= w->shape[1] &&
           w->stride[0] > 0 && w->stride[0] <= INT_MAX;
}

static rl_weight weight_of(const rill_tensor *w)
{
    return (rl_weight){.data = w->data, .rows = w->shape[0], .row = w->stride[0]};
}

static const rill_tensor *first_weight(const rl_selective_layer_problem *problem, bool low_rank)
{
    return low_rank ? &problem->W_delta_down : &problem->W_delta;
}

static rill_status take(rill_context *context, const rl_projections *p, int64_t rows, int64_t row, char **memory)
{
    void *block;
    rill_status status = rl_workspace_take(context, (size_t)(rows * row) * p->real_size, &block);
    *memory = block;
    return status;
}

rill_status rl_projections_plan(rill_context *context, rl_projections *p, const rl_selective_layer_problem *problem,
                                bool pack)
{
    const int lanes = p->kernels->lanes;
    const rill_tensor *x_weights[3] = {first_weight(problem, p->low_rank), &problem->W_B, &problem->W_C};
    rill_status status = RILL_OK;
    p->columns = (p->low_rank ? p->rank : p->channels) + 2 * p->states;
    for (int i = 0; i < 3; i++) pack |= !lies_well(x_weights[i], p->f64);
    if (pack) {
        p->packed_row = round_up(p->channels, lanes);
        status = take(context, p, p->columns, p->packed_row, &p->packed);
        p->from_x[0] = (rl_weight){.data = p->packed, .rows = p->columns, .row = p->packed_row};
        p->weights = 1;
    } else {
        for (int i = 0; i < 3; i++) p->from_x[i] = weight_of(x_weights[i]);
        p->weights = 3;
    }
    if (status != RILL_OK || !p->low_rank) return status;
    p->from_low = weight_of(&problem->W_delta);
    if (lies_well(&problem->W_delta, p->f64)) return RILL_OK;
    p->packed_low_row = round_up(p->rank, lanes);
    status = take(context, p, p->channels, p->packed_low_row, &p->packed_low);
    p->from_low = (rl_weight){.data = p->packed_low, .rows = p->channels, .row = p->packed_low_row};
    return status;
}

/* Columns beyond the tensor's come out as zeros. */
static void pack_weight(const rl_projections *p, const rill_tensor *w, char *to, int64_t row)
{
    const int64_t rows = w->shape[0], columns = w->shape[1], lanes = p->kernels->lanes;
#pragma omp for schedule(static) nowait
    for (int64_t first = 0; first < rows; first += PACK_ROWS)
        for (int64_t column = 0; column < columns; column += lanes) {
            int64_t offset = first * w->stride[0] + column * w->stride[1];
            rl_matrix from = {.data = (char *)w->data + offset * (int64_t)rill_dtype_size(w->dtype),
                              .dtype = w->dtype,
                              .row = w->stride[0],
                              .lane = w->stride[1]};
            p->kernels->load(to + (size_t)(first * row + column) * p->real_size, row, &from,
                             rl_least(PACK_ROWS, rows - first), rl_least(lanes, columns - column));
        }
}

void rl_projections_pack(const rl_projections *p, const rl_selective_layer_problem *problem)
{
    if (p->packed) {
        const rill_tensor *first = first_weight(problem, p->low_rank);
        const size_t row = (size_t)p->packed_row * p->real_size;
        char *B = p->packed + (size_t)first->shape[0] * row;
        pack_weight(p, first, p->packed, p->packed_row);
        pack_weight(p, &problem->W_B, B, p->packed_row);
        pack_weight(p, &problem->W_C, B + (size_t)p->states * row, p->packed_row);
    }
    if (p->packed_low) pack_weight(p, &problem->W_delta, p->packed_low, p->packed_low_row);
#pragma omp barrier
}

/* Rows of the weight, which are columns of the product, that belong to a part. */
static void multiply(const rl_projections *p, const rl_weight *w, int64_t m, int64_t k, const void *a, int64_t a_row,
                     char *out, int64_t out_row, int64_t part, int64_t parts)
{
    int64_t units = (w->rows + PART_COLUMNS - 1) / PART_COLUMNS;
    int64_t begin = part * units / parts * PART_COLUMNS;
    int64_t end = rl_least((part + 1) * units / parts * PART_COLUMNS, w->rows);
    if (begin < end)
        rl_gemm(p->f64, m, end - begin, k, a, a_row, w->data + (size_t)(begin * w->row) * p->real_size, w->row,
                out + (size_t)begin * p->real_size, out_row);
}

void rl_project_x(const rl_projections *p, int64_t m, const void *x, int64_t x_row, void *out, int64_t part,
                  int64_t parts)
{
    char *to = out;
    for (int i = 0; i < p->weights; i++) {
        multiply(p, &p->from_x[i], m, p->channels, x, x_row, to, p->columns, part, parts);
        to += (size_t)p->from_x[i].rows * p->real_size;
    }
}

void rl_project_low(const rl_projections *p, int64_t m, const void *out, void *delta, int64_t part, int64_t parts)
{
    multiply(p, &p->from_low, m, p->rank, out, p->columns, delta, p->channels, part, parts);
}
