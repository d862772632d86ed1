/* A = -exp(A_log), which a product of the layer makes beside its own work. */
#ifndef RL_CUDA_PRODUCT_A_CUH
#define RL_CUDA_PRODUCT_A_CUH

#include "elements.cuh"
#include "product_args.h"

/* By block `first` and all behind it. */
__device__ inline void make_A(const rl_product_args &p, int64_t first)
{
    const rl_product_weight &from = p.A_log;
    const int64_t count = from.columns * p.A_states, stride = (gridDim.x - first) * blockDim.x;
    for (int64_t k = (blockIdx.x - first) * blockDim.x + threadIdx.x; k < count; k += stride) {
        const int64_t channel = k / p.A_states, state = k - channel * p.A_states;
        const int64_t at = channel * from.row + state * from.lane;
        p.A[k] = (float)-exp(load_any<double>(from.data, from.dtype, at));
    }
}

#endif
