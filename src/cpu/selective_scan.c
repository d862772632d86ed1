#include "s6.h"

/* A piece is a whole sequence. */
static void get_piece(const void *owner, int64_t index, rl_piece *piece)
{
    const rl_selective_scan_problem *p = owner;
    rl_sequence s = rl_sequence_of(&p->offsets, index, p->length, p->reverse);
    *piece = (rl_piece){.sequence = index, .length = s.length, .first = true, .last = true};
    if (s.length == 0) return;
    piece->x = rl_series_of(&p->x, s, 0);
    piece->delta = rl_series_of(&p->delta, s, 0);
    piece->B = rl_series_of(&p->B, s, 0);
    piece->C = rl_series_of(&p->C, s, 0);
    piece->z = rl_series_of(&p->z, s, 0);
    piece->y = rl_series_of(&p->y, s, 0);
}

rill_status rl_cpu_selective_scan(rill_context *context, const rl_selective_scan_problem *p)
{
    if (p->sequences == 0 || p->channels == 0) return RILL_OK;
    rl_s6 scan = {.kernels = rl_cpu_kernels(context, p->x.dtype),
                  .channels = p->channels,
                  .states = p->states,
                  .groups = p->groups,
                  .A = p->A,
                  .D = p->D,
                  .delta_bias = p->delta_bias,
                  .h_init = p->h_init,
                  .h_final = p->h_final,
                  .f64 = p->x.dtype == RILL_F64,
                  .softplus = p->delta_softplus,
                  .gated = p->z.data != NULL,
                  .low = p->delta_min,
                  .high = p->delta_max};
    rl_pieces pieces = {.count = p->sequences, .get = get_piece, .owner = p};
    int64_t longest = rl_longest_sequence(&p->offsets, p->sequences, p->length);
    int threads = rl_s6_threads(context, (p->batch * p->length + p->sequences) * p->channels, p->states);
    rill_status status = rl_s6_plan(context, &scan, threads, pieces.count, longest);
    if (status != RILL_OK) return status;
#pragma omp parallel num_threads(threads)
    rl_s6_run(&scan, &pieces);
    return RILL_OK;
}
