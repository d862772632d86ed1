/* How what the selective scan computes with comes from its tensors, a vector of channels at a time, and goes back. */
#include "s6.h"

#include <string.h>

static char *element(const rill_tensor *tensor, int64_t i0, int64_t i1)
{
    int64_t offset = i0 * tensor->stride[0] + (tensor->rank > 1 ? i1 * tensor->stride[1] : 0);
    return (char *)tensor->data + offset * (int64_t)rill_dtype_size(tensor->dtype);
}

/* A vector of a tensor [channels], or zeros. */
static void load_vector(const rl_s6 *scan, const rill_tensor *tensor, rl_vector_place place, void *to)
{
    if (!tensor->data) return;
    rl_matrix m = {.data = element(tensor, place.channel, 0), .dtype = tensor->dtype, .lane = tensor->stride[0]};
    scan->kernels->load(to, scan->kernels->lanes, &m, 1, place.lanes);
}

void rl_load_parameters(const rl_s6 *scan, rl_vector_place place, const rl_vector_state *v)
{
    load_vector(scan, &scan->D, place, v->D);
    load_vector(scan, &scan->delta_bias, place, v->bias);
    if (scan->states == 0) return;
    rl_matrix A = {.data = element(&scan->A, place.channel, 0), .dtype = scan->A.dtype};
    A.row = scan->A.stride[1], A.lane = scan->A.stride[0];
    scan->kernels->load(v->A, scan->kernels->lanes, &A, scan->states, place.lanes);
    scan->kernels->prepare_A(v->A, v->A_bound, scan->states, scan->A_is_log);
}

static rl_matrix state_rows(const rill_tensor *h, int64_t sequence, int64_t channel)
{
    return (rl_matrix){
        .data = element(h, sequence, channel), .dtype = h->dtype, .row = h->stride[2], .lane = h->stride[1]};
}

void rl_load_state(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, void *h)
{
    if (!piece->first || scan->states == 0) return;
    if (scan->h_init.data) {
        rl_matrix from = state_rows(&scan->h_init, piece->sequence, place.channel);
        scan->kernels->load(h, scan->kernels->lanes, &from, scan->states, place.lanes);
    } else {
        memset(h, 0, (size_t)scan->states * scan->vector_size); /* what an empty sequence hands on */
    }
}

/* An empty sequence's state, as it lies: a conversion would quiet a signalling NaN. */
static void hand_on(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place)
{
    const size_t size = rill_dtype_size(scan->h_init.dtype);
    rl_matrix from = state_rows(&scan->h_init, piece->sequence, place.channel);
    rl_matrix to = state_rows(&scan->h_final, piece->sequence, place.channel);
    for (int64_t n = 0; n < scan->states; n++)
        for (int64_t lane = 0; lane < place.lanes; lane++)
            memmove((char *)to.data + (n * to.row + lane * to.lane) * (int64_t)size,
                    (const char *)from.data + (n * from.row + lane * from.lane) * (int64_t)size, size);
}

void rl_store_state(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, const void *h)
{
    if (!piece->last || !scan->h_final.data || scan->states == 0) return;
    if (piece->length == 0 && piece->first && scan->h_init.data && scan->h_init.dtype == scan->h_final.dtype) {
        hand_on(scan, piece, place);
        return;
    }
    rl_matrix to = state_rows(&scan->h_final, piece->sequence, place.channel);
    scan->kernels->store(&to, h, scan->states, place.lanes);
}

static rl_matrix input_rows(const rl_series *series, int64_t t, int64_t group)
{
    int64_t offset = t * series->step + group * series->group;
    return (rl_matrix){.data = (char *)series->data + offset * (int64_t)rill_dtype_size(series->dtype),
                       .dtype = series->dtype,
                       .row = series->step,
                       .lane = series->lane};
}

void rl_pack_inputs(const rl_s6 *scan, const rl_piece *piece, rl_vector_place place, int64_t t, int64_t rows,
                    void *bc)
{
    if (scan->states == 0) return;
    int64_t group_channels = scan->channels / scan->groups, group = place.channel / group_channels;
    rl_input_tile tile = {.B = input_rows(&piece->B, t, group),
                          .C = input_rows(&piece->C, t, group),
                          .rows = rows,
                          .states = scan->states,
                          .spread = scan->spread,
                          .lanes = place.lanes,
                          .B_group = piece->B.group,
                          .C_group = piece->C.group,
                          .group_channels = group_channels,
                          .phase = place.channel % group_channels};
    scan->kernels->pack(bc, &tile);
}

/* Whether rows of a vector lie in memory as the kernels compute with them. */
static bool is_plain(const rl_s6 *scan, const rl_matrix *m, rl_vector_place place)
{
    return m->lane == 1 && place.lanes == scan->kernels->lanes && m->dtype == (scan->f64 ? RILL_F64 : RILL_F32);
}

rl_rows rl_s6_rows(const rl_s6 *scan, const rl_series *series, int64_t t, int64_t rows, rl_vector_place place,
                   void *room)
{
    rl_matrix m = rl_series_rows(series, t, place.channel);
    if (is_plain(scan, &m, place)) return (rl_rows){m.data, m.row * (int64_t)scan->real_size};
    scan->kernels->load(room, scan->kernels->lanes, &m, rows, place.lanes);
    return (rl_rows){room, (int64_t)scan->vector_size};
}

rl_rows rl_s6_target(const rl_s6 *scan, const rl_series *series, int64_t t, rl_vector_place place, void *room)
{
    rl_matrix m = rl_series_rows(series, t, place.channel);
    if (series->data && is_plain(scan, &m, place)) return (rl_rows){m.data, m.row * (int64_t)scan->real_size};
    return (rl_rows){room, (int64_t)scan->vector_size};
}

void rl_s6_finish(const rl_s6 *scan, const rl_piece *piece, int64_t t, int64_t rows, rl_vector_place place,
                  const rl_vector_state *v, void *sum, rl_rows x, void *room)
{
    const rl_rows to = rl_s6_target(scan, &piece->y, t, place, sum);
    rl_rows z = {NULL, 0};
    if (scan->gated) z = rl_s6_rows(scan, &piece->z, t, rows, place, room);
    scan->kernels->finish(to, sum, x, scan->D.data ? v->D : NULL, z, rows);
    if (to.data != sum) return;
    const rl_matrix y = rl_series_rows(&piece->y, t, place.channel);
    scan->kernels->store(&y, sum, rows, place.lanes);
}
