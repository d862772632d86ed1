/*
 * The products of a chunk's gates.  Between two steps j < t, D = g_{j+1} … g_t is never a quotient nor an exponential
 * of a difference: it is the product of three, for the steps lie in blocks of 8,
 *
 *     from j to the end of its block  ·  of the whole blocks between  ·  from the begin of t's block through t
 *
 * and within one block a table of its own.  So a gate of 0, or of 1e-30, harms none but those products that have it.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_DECAYS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_DECAYS_CUH

#include "linear_attention_floats.h"
#include "linear_attention_inputs.cuh"
#include "linear_attention_running.cuh"
#include "numbers.cuh"

namespace attention_floats
{

using attention::Span;

constexpr unsigned ALL = 0xffffffffu;
constexpr int STEPS = RL_FLOATS_STEPS, BLOCK = 8, BLOCKS = STEPS / BLOCK, HALVES = STEPS / 32;

/* Products may not meet a run of gates that grows by more, nor, unless all numbers are moderate, fades by more. */
constexpr double GROWTH_MOST = 2, FADED = 0x1p-100;
constexpr double LEAST_SLOW = 0x1.7p-2, LEAST_SLOW_PRODUCT = 0x1p-48; /* two of them do not count as faded */
constexpr float MODERATE_INPUT = 0x1p10f, MODERATE_STATE = 0x1p20f, MODERATE_WEIGHT = 2;

struct Decays {
    float within[BLOCKS][BLOCK][BLOCK];           /* from the first step of a block to the second; 0 against time */
    float until[STEPS], after[STEPS];             /* from the begin of its block through the step, and behind it */
    float from_begin[STEPS], to_end[STEPS];       /* the same of the chunk */
    float worth[STEPS];                           /* after, times beta */
    float gate[STEPS], beta[STEPS];               /* the step's own; a gate that is a reset is 0 */
    float total[BLOCKS], between[BLOCKS][BLOCKS]; /* of the blocks between two */
    double carry[HALVES], growth[HALVES], fade[HALVES];
    bool heavy[HALVES];   /* a beta is above MODERATE_WEIGHT */
    bool special[HALVES]; /* a gate or beta is not finite: here they are 1 and 0 */

    __device__ __forceinline__ double product() const
    {
        return carry[0] * carry[1];
    }
    __device__ __forceinline__ bool is_steady() const
    {
        return growth[0] * growth[1] <= GROWTH_MOST;
    }
    __device__ __forceinline__ bool fades() const
    {
        return fade[0] * fade[1] < FADED;
    }
    __device__ __forceinline__ bool is_special() const
    {
        return special[0] || special[1];
    }
    /* From a step of one block to a step of another, or of the same one; 0 against time. */
    __device__ __forceinline__ float from_to(int earlier, int early, int later, int late) const
    {
        if (earlier > later) return 0;
        if (earlier == later) return within[earlier][early][late];
        return after[earlier * BLOCK + early] * between[earlier][later] * until[later * BLOCK + late];
    }
};

__device__ inline double product_over_warp(double value)
{
#pragma unroll
    for (int away = 16; away > 0; away /= 2) value *= __shfl_xor_sync(ALL, value, away);
    return value;
}

/* STEPS threads, each with a step of the chunk; finish_decays follows behind a barrier. */
__device__ inline void start_decays(Decays &to, const rl_attention_inputs &in, const Span &span, int64_t head,
                                    int64_t first, int i)
{
    const int block = i / BLOCK, own = i % BLOCK, half = i / 32;
    float g = 1, beta = 0;
    bool special = false;
    if (first + i < span.count) {
        const attention::Factor<float> factor(in, span, head, first + i);
        g = factor.reset ? 0 : factor.value;
        beta = attention::beta_at<float>(in, span, head, first + i);
        special = !is_finite(g) || !is_finite(beta);
        if (!is_finite(g)) g = 1;
        if (!is_finite(beta)) beta = 0;
    }
    to.gate[i] = g;
    to.beta[i] = beta;
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    float run = 1;
    to.until[i] = until;
    to.after[i] = after;
    to.worth[i] = after * beta;
    if (own == BLOCK - 1) to.total[block] = until;
    to.within[block][own][own] = 1;
#pragma unroll
    for (int away = 1; away < BLOCK; away++) {
        run *= __shfl_down_sync(ALL, g, away, BLOCK);
        to.within[block][own][(own + away) % BLOCK] = own + away < BLOCK ? run : 0;
    }
    const double size = fabs((double)g);
    const double carry = product_over_warp(g);
    const double growth = __any_sync(ALL, size > 1) ? product_over_warp(size <= 1 ? 1 : size) : 1;
    const double fade = __any_sync(ALL, size < LEAST_SLOW && size > 0)
                            ? product_over_warp(size < 1 && size > 0 ? size : 1)
                            : LEAST_SLOW_PRODUCT;
    const bool heavy = __any_sync(ALL, fabsf(beta) > MODERATE_WEIGHT);
    special = __any_sync(ALL, special);
    if (i % 32 > 0) return;
    to.carry[half] = carry, to.growth[half] = growth, to.fade[half] = fade;
    to.heavy[half] = heavy, to.special[half] = special;
}

/* The same threads, between two barriers. */
__device__ inline void finish_decays(Decays &to, int i)
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
}

} // namespace attention_floats

#endif
