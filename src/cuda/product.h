/* rill's own matrix product: each row's bits depend on that row and the weights alone. */
#ifndef RL_CUDA_PRODUCT_H
#define RL_CUDA_PRODUCT_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * out[batch * length, columns] = x[batch, length, inner] w[columns, inner]ᵀ with any strides and type of x; w is
 * dense and, like out, float64 with float64 x, else float32.  Products are summed in one fixed order, in two levels.
 */
rill_status rl_cuda_product(rill_context *context, const rill_tensor *x, const void *w, int64_t columns, void *out,
                            int64_t out_row);

#ifdef __cplusplus
}
#endif

#endif
