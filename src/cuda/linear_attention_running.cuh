/* What runs along the steps of a chunk, a step or two a lane: products of gates, and the sums of their gradients. */
#ifndef RL_CUDA_LINEAR_ATTENTION_RUNNING_CUH
#define RL_CUDA_LINEAR_ATTENTION_RUNNING_CUH

namespace attention
{

struct Running {
    float until, after;
};

/* Of a lane's gate and those before it in its block of lanes, and of those behind it.  `own`: its place there. */
template <int BLOCK> __device__ __forceinline__ Running running_products(float gate, int own)
{
    Running product = {gate, __shfl_down_sync(~0u, gate, 1, BLOCK)};
    if (own == BLOCK - 1) product.after = 1;
#pragma unroll
    for (int away = 1; away < BLOCK; away *= 2) {
        const float earlier = __shfl_up_sync(~0u, product.until, away, BLOCK);
        const float later = __shfl_down_sync(~0u, product.after, away, BLOCK);
        if (own >= away) product.until *= earlier;
        if (own + away < BLOCK) product.after *= later;
    }
    return product;
}

struct Around {
    float earlier, later;
};

/* Sums over the lanes before this one, and over those behind it. */
__device__ __forceinline__ Around sums_around(float earlier, float later, int lane)
{
#pragma unroll
    for (int away = 1; away < 32; away *= 2) {
        const float below = __shfl_up_sync(~0u, earlier, away), above = __shfl_down_sync(~0u, later, away);
        if (lane >= away) earlier += below;
        if (lane + away < 32) later += above;
    }
    earlier = __shfl_up_sync(~0u, earlier, 1);
    later = __shfl_down_sync(~0u, later, 1);
    return {lane == 0 ? 0 : earlier, lane == 31 ? 0 : later};
}

} // namespace attention

#endif
