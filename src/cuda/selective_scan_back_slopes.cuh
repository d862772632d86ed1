/* Scalar functions that the kernels of the selective scan's gradients share, and what an empty sequence hands on. */
#ifndef RL_CUDA_SELECTIVE_SCAN_BACK_SLOPES_CUH
#define RL_CUDA_SELECTIVE_SCAN_BACK_SLOPES_CUH

#include "elements.cuh"
#include "s6.cuh"
#include "s6_back_args.h"

/* Products that stay products: the compiler must not merge them into sums in one place and not in another. */
__device__ inline float product(float x, float y)
{
    return __fmul_rn(x, y);
}
__device__ inline double product(double x, double y)
{
    return __dmul_rn(x, y);
}

/* Softplus in the way that suits the size of the value: one value has one result. */
__device__ inline float softplus_of_any(float value)
{
    return fabsf(value) <= SMALL ? softplus_of_small(value) : softplus(value);
}
__device__ inline double softplus_of_any(double value)
{
    return softplus(value);
}

/* Its slope σ(value), of a value whose size is at most SMALL. */
__device__ inline float slope_of_small(float value)
{
    return reciprocal_rough(1.0f + exp2_rough(-1.44269504f * value));
}
__device__ inline float softplus_slope(float value)
{
    const float t = expf(-fabsf(value)), inverse = reciprocal_rough(1.0f + t);
    return value > 0.0f ? inverse : t * inverse;
}

__device__ inline void soften(float raw, float &value, float &slope)
{
    value = softplus_of_any(raw);
    slope = fabsf(raw) <= SMALL ? slope_of_small(raw) : softplus_slope(raw);
}
__device__ inline void soften(double raw, double &value, double &slope)
{
    value = softplus(raw);
    slope = raw > 20.0 ? 1.0 : 1.0 / (1.0 + exp(-raw));
}

/* Out of line, for there are few such. */
__device__ __attribute__((noinline)) static float2 soften_rare(float raw)
{
    float2 both;
    soften(raw, both.x, both.y);
    return both;
}

/* Four at a time, with slopes or without. */
template <bool slopes> __device__ inline void soften_four(float (&value)[4], float (&slope)[4])
{
    float size = 0; /* a NaN has no say: either way passes it on */
#pragma unroll
    for (int k = 0; k < 4; k++) size = fmaxf(size, fabsf(value[k]));
    if (size > SMALL) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 both = soften_rare(value[k]);
            value[k] = both.x;
            slope[k] = both.y;
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float raw = value[k];
        value[k] = softplus_of_small(raw);
        if (slopes) slope[k] = slope_of_small(raw);
    }
}
template <bool slopes> __device__ inline void soften_four(double (&value)[4], double (&slope)[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) soften(value[k], value[k], slope[k]);
}

/* The slope of value σ(value). */
__device__ inline float gate_slope(float value)
{
    const float sigma = reciprocal_rough(1.0f + expf(-value));
    return sigma * (1.0f + value * (1.0f - sigma));
}
__device__ inline double gate_slope(double value)
{
    const double sigma = 1.0 / (1.0 + exp(-value));
    return sigma * (1.0 + value * (1.0 - sigma));
}

/* A gradient from where it enters a sequence without steps to where it leaves: bit for bit where both have one type.
 */
template <typename Acc>
__device__ inline void hand_on_gradient(const rl_s6_back_args &args, int64_t at, int64_t source)
{
    const rl_s6_state &to = args.dh_init, &from = args.dh_final;
    if (!from.data)
        store_any(to.data, to.dtype, at, Acc(0));
    else if (from.dtype != to.dtype)
        store_any(to.data, to.dtype, at, load_any<Acc>(from.data, from.dtype, source));
    else if (to.dtype == RILL_F64)
        ((uint64_t *)to.data)[at] = ((const uint64_t *)from.data)[source];
    else if (to.dtype == RILL_F32)
        ((uint32_t *)to.data)[at] = ((const uint32_t *)from.data)[source];
    else
        ((uint16_t *)to.data)[at] = ((const uint16_t *)from.data)[source];
}

#endif
