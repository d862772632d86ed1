/* The smallest selective_scan calls: everything 1, A = -ln 2, to be changed element by element. */
#ifndef CONFORMANCE_HARD_H
#define CONFORMANCE_HARD_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

typedef struct hard_sizes {
    int64_t batch, length, channels, states, groups;
} hard_sizes;

typedef struct hard_scan {
    rill_selective_scan_args args; /* x, delta, A, B, C, y, h_final are made; the rest is the caller's to add */
} hard_scan;

/* Contiguous host tensors of one type (A in the accumulation type, as h_final). */
hard_scan hard_make(rill_dtype dtype, hard_sizes sizes);
void hard_free(hard_scan *scan);

/* The gradients of such a call, of y_1 + y_2 + ...: dy is 1, h_init 0; without D, z, delta_bias and dh_final. */
typedef struct hard_back {
    rill_selective_scan_backward_args args;
} hard_back;

hard_back hard_back_make(rill_dtype dtype, hard_sizes sizes);
void hard_back_free(hard_back *back);

void set3(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, double value);
double get3(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2);

/* Whether the context computes on a GPU, which some problems are made to fill; elsewhere a few of their kind do. */
bool is_on_gpu(const rill_context *context);

/* |found - right| <= tolerance |right|; a NaN never is. */
bool near(double found, double right, double tolerance);

#endif
