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
    float to_end[STEPS];                         /* behind the step to the chunk's end */
    float sum_weight[STEPS], back_weight[STEPS]; /* what a step's k, and q, is worth at the chunk's end, and begin */
    float between[BLOCKS][BLOCKS];               /* of the blocks between two */
    float total[BLOCKS];
    float carried[HALVES]; /* product(), as a sum of two */
    int steady;            /* products may be used, as far as gates say */
    int fades;             /* but for moderate numbers alone */
    int heavy;             /* a beta is none */
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

/* A step's numbers on their way from memory, as they lie. */
struct Coming {
    uint32_t gate, beta;

    __device__ static __forceinline__ uint32_t load(const rl_attention_view &view, int64_t at)
    {
        attention::Bits<float> bits;
        bits.load(view, at);
        return (uint32_t)bits.bits;
    }
    __device__ static __forceinline__ float widened(const rl_attention_view &view, uint32_t bits)
    {
        return attention::Bits<float>{bits}.widened(view);
    }
    __device__ __forceinline__ void load(const rl_attention_inputs &in, const Span &span, int64_t head, int64_t step)
    {
        gate = beta = 0;
        if (step >= span.count) return;
        gate = load(in.gate, span.at(in.gate, head, step));
        beta = load(in.beta, span.at(in.beta, head, step));
    }
};

/* The step's gate and beta, 1 and 0 where it is not there or they are not finite; a reset is 0. */
struct Arrived {
    float gate, beta;
    bool unfit;
};
__device__ __forceinline__ Arrived arrived(const rl_attention_inputs &in, const Coming &coming, bool there,
                                           int64_t step)
{
    if (!there) return {1, 0, false};
    const attention::Factor<float> factor(in, step, Coming::widened(in.gate, coming.gate));
    const float g = factor.reset ? 0 : factor.value;
    const float beta = in.beta.data ? Coming::widened(in.beta, coming.beta) : 1.0f;
    return {is_finite(g) ? g : 1, is_finite(beta) ? beta : 0, !is_finite(g) || !is_finite(beta)};
}

/* What a warp's steps, half of a chunk, multiply to, and what forbids products; `to` is Gates or the like. */
template <typename Room>
__device__ __forceinline__ void note_products(Room &to, float g, float beta, bool unfit, int i)
{
    const int half = i / 32;
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

/* STEPS threads, each with a step of the chunk; finish_gates follows behind a barrier. */
__device__ inline void start_gates(Gates &to, const rl_attention_inputs &in, const Coming &coming, bool there,
                                   int64_t step, int i)
{
    const int block = i / BLOCK, own = i % BLOCK;
    const auto [g, beta, unfit] = arrived(in, coming, there, step);
    to.gate[i] = g;
    to.beta[i] = beta;
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    to.until[i] = until;
    to.after[i] = after;
    if (own == BLOCK - 1) to.total[block] = until;
    note_products(to, g, beta, unfit, i);
}
/* The same of a chunk that begins with the `first` step. */
__device__ inline void start_gates(Gates &to, const rl_attention_inputs &in, const Span &span, int64_t head,
                                   int64_t first, int i)
{
    Coming coming;
    coming.load(in, span, head, first + i);
    start_gates(to, in, coming, first + i < span.count, first + i, i);
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
    to.to_end[i] = to.after[i] * behind;
    to.sum_weight[i] = to.to_end[i] * to.beta[i];
    to.back_weight[i] = before * to.until[i] * scale;
    if (i > 0) return;
    const double whole = to.product();
    to.carried[0] = (float)whole;
    to.carried[1] = (float)(whole - to.carried[0]);
    to.steady = to.growth[0] * to.growth[1] <= (float)attention_floats::GROWTH_MOST && !to.unfit[0] && !to.unfit[1];
    to.fades = to.fade[0] * to.fade[1] < (float)attention_floats::FADED;
    to.heavy = to.weighs[0] || to.weighs[1];
}

} // namespace attention_tiles

#endif
