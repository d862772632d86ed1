/*
 * The products of a chunk's gates, as linear_attention_floats_decays.cuh has them, but without the table of products
 * within blocks of 8 steps: who needs some of them makes them.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_GATES_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_GATES_CUH

#include "linear_attention_chunk_decays.cuh"
#include "linear_attention_floats_decays.cuh"
#include "linear_attention_tiles.h"

namespace attention_tiles
{

using attention::Span;
using attention_floats::ALL;
using attention_floats::BLOCK;
using attention_floats::BLOCKS;
using attention_floats::HALVES;
using attention_floats::STEPS;

struct alignas(16) Gates {
    float gate[STEPS], beta[STEPS];              /* the step's own; a gate that is a reset is 0 */
    float until[STEPS], after[STEPS];            /* from the begin of its block through the step, and behind it */
    float from_begin[STEPS], to_end[STEPS];      /* the same of the chunk */
    float worth[STEPS];                          /* after, times beta */
    float sum_weight[STEPS], back_weight[STEPS]; /* what a step's k, and q, is worth at the chunk's end, and begin */
    float between[BLOCKS][BLOCKS];               /* of the blocks between two */
    float total[BLOCKS];
    float carried; /* product() */
    int steady;    /* products may be used, as far as gates say */
    int fades;     /* but for moderate numbers alone */
    int heavy;     /* a beta is none */
    double carry[HALVES];
    float growth[HALVES], fade[HALVES];
    int unfit[HALVES];  /* a gate or beta is not finite: here they are 1 and 0 */
    int weighs[HALVES]; /* a beta is above MODERATE_WEIGHT */

    __device__ __forceinline__ double product() const
    {
        return carry[0] * carry[1];
    }
    /* From step `early` of a block to each of two neighbours of the same block, 0 against time. */
    __device__ __forceinline__ float2 within(int block, int early, int late) const
    {
        float2 product = {late >= early ? 1.0f : 0.0f, late + 1 >= early ? 1.0f : 0.0f};
#pragma unroll
        for (int i = 1; i < BLOCK; i++) {
            const float own = i > early && i <= late + 1 ? gate[block * BLOCK + i] : 1;
            if (i <= late) product.x *= own;
            product.y *= own;
        }
        return product;
    }
    /* From each of two neighbours to step `late` of the same block. */
    __device__ __forceinline__ float2 within_until(int block, int early, int late) const
    {
        float2 product = {late >= early ? 1.0f : 0.0f, late >= early + 1 ? 1.0f : 0.0f};
#pragma unroll
        for (int i = 1; i < BLOCK; i++) {
            const float own = i > early && i <= late ? gate[block * BLOCK + i] : 1;
            if (i > early + 1) product.y *= own;
            product.x *= own;
        }
        return product;
    }
};

/* STEPS threads, each with a step of the chunk; finish_gates follows behind a barrier. */
__device__ inline void start_gates(Gates &to, const rl_attention_inputs &in, const Span &span, int64_t head,
                                   int64_t first, int i)
{
    const int block = i / BLOCK, own = i % BLOCK, half = i / 32;
    float g = 1, beta = 0;
    bool unfit = false;
    if (first + i < span.count) {
        const attention::Factor<float> factor(in, span, head, first + i);
        g = factor.reset ? 0 : factor.value;
        beta = attention::beta_at<float>(in, span, head, first + i);
        unfit = !is_finite(g) || !is_finite(beta);
        if (!is_finite(g)) g = 1;
        if (!is_finite(beta)) beta = 0;
    }
    to.gate[i] = g;
    to.beta[i] = beta;
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    to.until[i] = until;
    to.after[i] = after;
    to.worth[i] = after * beta;
    if (own == BLOCK - 1) to.total[block] = until;
    const float size = fabsf(g);
    const double carry = attention_floats::product_over_warp(g);
    const float growth = attention_chunks::product_over_warp(size <= 1 ? 1 : size);
    const float fade = attention_chunks::product_over_warp(size < 1 && size > 0 ? size : 1);
    const bool heavy = __any_sync(ALL, fabsf(beta) > attention_floats::MODERATE_WEIGHT);
    unfit = __any_sync(ALL, unfit);
    if (i % 32 > 0) return;
    to.carry[half] = carry, to.growth[half] = growth, to.fade[half] = fade;
    to.weighs[half] = heavy, to.unfit[half] = unfit;
}

/* The same threads, between two barriers. */
__device__ inline void finish_gates(Gates &to, float scale, int i)
{
    const int from = i / BLOCK, until = i % BLOCK;
    float product = 1, before = 1, behind = 1;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const float total = to.total[block];
        if (block > from && block < until) product *= total;
        if (block < from) before *= total;
        if (block > from) behind *= total;
    }
    to.between[from][until] = product;
    to.from_begin[i] = before * to.until[i];
    to.to_end[i] = to.after[i] * behind;
    to.sum_weight[i] = to.to_end[i] * to.beta[i];
    to.back_weight[i] = to.from_begin[i] * scale;
    if (i > 0) return;
    to.carried = (float)to.product();
    to.steady = to.growth[0] * to.growth[1] <= (float)attention_floats::GROWTH_MOST && !to.unfit[0] && !to.unfit[1];
    to.fades = to.fade[0] * to.fade[1] < (float)attention_floats::FADED;
    to.heavy = to.weighs[0] || to.weighs[1];
}

} // namespace attention_tiles

#endif
