/* cuBLAS for products of 16-bit matrices, opened at first need: the library starts and works without it. */
#ifndef RL_CUDA_CUBLAS_H
#define RL_CUDA_CUBLAS_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens cuBLAS into the context's state once.  NULL afterwards means that it cannot be had; that is no error. */
rill_status rl_cublas_open(rill_context *context);

void rl_cublas_close(rl_cublas *cublas);

/* The scratch that products need, taken from the context's workspace by each call that has products. */
size_t rl_cublas_scratch_bytes(void);

/* Before the products of a call: the context's stream, and the scratch. */
rill_status rl_cublas_begin(rill_context *context, void *scratch);

/*
 * out[rows, columns] = x[rows, inner] w[columns, inner]ᵀ, all row-major, leading dimensions in elements; x and w in
 * bfloat16 or float16, out and all sums in float32.  Sizes are at least 1 and fit in int.
 */
rill_status rl_cublas_product(rill_context *context, rill_dtype dtype, int64_t rows, int64_t columns, int64_t inner,
                              const void *x, int64_t x_row, const void *w, int64_t w_row, void *out, int64_t out_row);

#ifdef __cplusplus
}
#endif

#endif
