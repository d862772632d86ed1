/* Products whose rows the copy engine brings: product_flow.cu. */
#ifndef RL_CUDA_PRODUCT_FLOW_H
#define RL_CUDA_PRODUCT_FLOW_H

#include <cuda.h>

#include "product_args.h"

enum { RL_FLOW_GROUPS = 2 };

/* a and what is added as the copy engine brings them: 64 rows by 32 numbers. */
typedef struct rl_product_flow_args {
    rl_product_args product;
    CUtensorMap a, add;
} rl_product_flow_args;

#ifdef __cplusplus
extern "C" {
#endif

/* False where there is none for the way, or the weights have no room. */
bool rl_product_flow_kernel(rl_parts_way way, int64_t inner, int64_t columns, rl_product_kernel_of *kernel);

#ifdef __cplusplus
}
#endif

#endif
