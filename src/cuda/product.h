/*
 * rill's own matrix products.  Sums have one fixed order, and those over channels depend on their row and the weights
 * alone.  In what follows the accumulated type is float64 with float64 data, else float32.
 */
#ifndef RL_CUDA_PRODUCT_H
#define RL_CUDA_PRODUCT_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * out = a wᵀ + add, on the left [batch, length, columns]; a: [batch, length, inner]; any strides.  Weights are
 * [columns, inner]: one that is dense and of the accumulated type, or where rl_cuda_product_takes, up to three one
 * below the other as they lie, while A = -exp(A_log) is made beside.
 */
typedef struct rl_product {
    rill_tensor a;
    rill_tensor w[3];
    rill_tensor A_log; /* [channels, states], or absent */
    void *A;           /* dense */
    rill_tensor out;   /* of any real type: rounded once */
    rill_tensor add;   /* of the accumulated type, or absent; may be out itself */
    bool rough;        /* 16 bits of each factor will do, though the sums are of the accumulated type */
    rill_dtype exact;  /* of 16 bits, which all weights have or are known to fit; or absent */
} rl_product;

/* Whether it has few rows or is little work; whether weights are taken as they lie. */
bool rl_cuda_product_is_brief(const rill_context *context, int64_t rows, int64_t columns, int64_t inner);
bool rl_cuda_product_takes(const rill_context *context, rill_dtype a, rill_dtype exact, int64_t rows, int64_t columns,
                           int64_t inner);
rill_status rl_cuda_product(rill_context *context, const rl_product *product);

/*
 * total[columns, channels] = Σ over steps of gᵀ a, or that added to it.  Memory for sums of parts of the steps is
 * given: rl_cuda_step_sum_bytes says how much.
 */
typedef struct rl_step_sum {
    rill_tensor a; /* [batch, length, channels], any strides */
    const void *g; /* [batch, length, columns], of the accumulated type, rows `g_row` elements apart */
    int64_t columns, g_row;
    void *total; /* dense, of the accumulated type */
    void *parts;
    bool adds;
    bool rough; /* as in rl_product; of 16-bit `a` always */
} rl_step_sum;

size_t rl_cuda_step_sum_bytes(const rill_context *context, const rl_step_sum *sum);
rill_status rl_cuda_sum_steps(rill_context *context, const rl_step_sum *sum);

/* total = part, or total + part, numbers one by one. */
rill_status rl_cuda_add_part(rill_context *context, rill_dtype dtype, void *total, const void *part, int64_t numbers,
                             bool adds);

#ifdef __cplusplus
}
#endif

#endif
