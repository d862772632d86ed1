/*
 * The products of a chunk's gates as linear_attention_tiles_chain.cu needs them, made by 64 threads: those of
 * linear_attention_tiles_gates.cuh, with the table of products within blocks of 8 steps.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_LINK_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_LINK_CUH

#include "linear_attention_tiles_gates.cuh"

namespace attention_tiles
{

struct alignas(16) Link {
    float until[STEPS];                          /* from the begin of its block through the step */
    float worth[STEPS];                          /* behind the step to the end of its block, times beta and scale */
    float sum_weight[STEPS], back_weight[STEPS]; /* what a step's k, and q, is worth at the chunk's end, and begin */
    float between[BLOCKS][BLOCKS];               /* of the blocks between two */
    double carry[HALVES];
    float growth[HALVES], fade[HALVES];
    int unfit[HALVES];     /* a gate or beta is not finite: here they are 1 and 0 */
    int weighs[HALVES];    /* a beta is above MODERATE_WEIGHT */
    float carried[HALVES]; /* the product of all gates, as a sum of two */
    int steady;            /* products may be used, as far as gates say */
    int fades;             /* but for moderate numbers alone */
};

/* From a step of a block to one of the same, times the first one's beta and scale; 0 against time. */
struct Within {
    float at[BLOCKS][BLOCK][BLOCK];
};

/* The i-th of STEPS threads; finish_link follows behind a barrier.  MIXES: what P needs is made, too. */
template <bool MIXES>
__device__ inline void start_link(Link &to, Within *within, const rl_attention_inputs &in, const Coming &coming,
                                  bool there, int64_t step, int i)
{
    const int block = i / BLOCK, own = i % BLOCK;
    const float scale = (float)in.scale;
    const auto [g, beta, unfit] = arrived(in, coming, there, step);
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    const float worth = beta * scale;
    to.until[i] = until;
    to.sum_weight[i] = after * beta;
    if constexpr (MIXES) {
        float run = worth;
        to.worth[i] = after * worth;
        within->at[block][own][own] = run;
#pragma unroll
        for (int away = 1; away < BLOCK; away++) {
            run *= __shfl_down_sync(ALL, g, away, BLOCK);
            within->at[block][own][(own + away) % BLOCK] = own + away < BLOCK ? run : 0;
        }
    }
    note_products(to, g, beta, unfit, i);
}

/* The same threads, between two barriers. */
__device__ inline void finish_link(Link &to, float scale, int i)
{
    const int from = i / BLOCK, until = i % BLOCK;
    float product = 1, before = 1, behind = 1;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const float total = to.until[block * BLOCK + BLOCK - 1];
        if (block > from && block < until) product *= total;
        if (block < from) before *= total;
        if (block > from) behind *= total;
    }
    to.between[from][until] = product;
    to.sum_weight[i] *= behind;
    to.back_weight[i] = before * to.until[i] * scale;
    if (i > 0) return;
    const double carry = to.carry[0] * to.carry[1];
    to.carried[0] = (float)carry;
    to.carried[1] = (float)(carry - to.carried[0]);
    to.steady = to.growth[0] * to.growth[1] <= (float)attention_floats::GROWTH_MOST && !to.unfit[0] && !to.unfit[1];
    to.fades = to.fade[0] * to.fade[1] < (float)attention_floats::FADED;
}

} // namespace attention_tiles

#endif
