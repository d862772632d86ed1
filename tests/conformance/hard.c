#include "hard.h"

#include <math.h>
#include <stdlib.h>

#include "strided.h"

static rill_tensor make(rill_dtype dtype, int rank, int64_t n0, int64_t n1, int64_t n2, int64_t n3, double value)
{
    rill_tensor tensor = view_alloc(dtype, rank, (int64_t[]){n0, n1, n2, n3});
    view_fill(&tensor, value);
    return tensor;
}

hard_scan hard_make(rill_dtype dtype, hard_sizes s)
{
    rill_dtype wide = dtype == RILL_F64 ? RILL_F64 : RILL_F32;
    hard_scan scan = {.args = {
                          .x = make(dtype, 3, s.batch, s.length, s.channels, 0, 1),
                          .delta = make(dtype, 3, s.batch, s.length, s.channels, 0, 1),
                          .A = make(wide, 2, s.channels, s.states, 0, 0, -log(2)),
                          .B = make(dtype, 4, s.batch, s.length, s.groups, s.states, 1),
                          .C = make(dtype, 4, s.batch, s.length, s.groups, s.states, 1),
                          .y = make(dtype, 3, s.batch, s.length, s.channels, 0, NAN),
                          .h_final = make(wide, 3, s.batch, s.channels, s.states, 0, NAN),
                      }};
    return scan;
}

void hard_free(hard_scan *scan)
{
    rill_selective_scan_args *a = &scan->args;
    free(a->x.data);
    free(a->delta.data);
    free(a->A.data);
    free(a->B.data);
    free(a->C.data);
    free(a->y.data);
    free(a->h_final.data);
    *scan = (hard_scan){0};
}

hard_back hard_back_make(rill_dtype dtype, hard_sizes s)
{
    rill_dtype wide = dtype == RILL_F64 ? RILL_F64 : RILL_F32;
    hard_back back = {.args = {
                          .x = make(dtype, 3, s.batch, s.length, s.channels, 0, 1),
                          .delta = make(dtype, 3, s.batch, s.length, s.channels, 0, 1),
                          .A = make(wide, 2, s.channels, s.states, 0, 0, -log(2)),
                          .B = make(dtype, 4, s.batch, s.length, s.groups, s.states, 1),
                          .C = make(dtype, 4, s.batch, s.length, s.groups, s.states, 1),
                          .h_init = make(wide, 3, s.batch, s.channels, s.states, 0, 0),
                          .dy = make(dtype, 3, s.batch, s.length, s.channels, 0, 1),
                          .dx = make(dtype, 3, s.batch, s.length, s.channels, 0, NAN),
                          .ddelta = make(dtype, 3, s.batch, s.length, s.channels, 0, NAN),
                          .dA = make(wide, 2, s.channels, s.states, 0, 0, NAN),
                          .dB = make(dtype, 4, s.batch, s.length, s.groups, s.states, NAN),
                          .dC = make(dtype, 4, s.batch, s.length, s.groups, s.states, NAN),
                          .dh_init = make(wide, 3, s.batch, s.channels, s.states, 0, NAN),
                      }};
    return back;
}

void hard_back_free(hard_back *back)
{
    rill_selective_scan_backward_args *a = &back->args;
    rill_tensor *const all[] = {&a->x,  &a->delta,  &a->A,  &a->B,  &a->C,  &a->h_init, &a->dy,
                                &a->dx, &a->ddelta, &a->dA, &a->dB, &a->dC, &a->dh_init};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]->data);
    *back = (hard_back){0};
}

void set3(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, double value)
{
    view_store(tensor, (int64_t[]){i0, i1, i2, 0, 0, 0}, value);
}

double get3(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2)
{
    return view_load(tensor, (int64_t[]){i0, i1, i2, 0, 0, 0});
}

bool near(double found, double right, double tolerance)
{
    return fabs(found - right) <= tolerance * fabs(right);
}

bool is_on_gpu(const rill_context *context)
{
    rill_info info;
    return rill_context_info(context, &info) == RILL_OK && info.backend == RILL_BACKEND_CUDA;
}
