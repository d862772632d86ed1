/*
 * Which results of a head a NaN or infinity may reach, where all others are to keep the bits that chunks gave them.
 * A block looks through the head's inputs once and keeps what kinds of them each step has.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_REACH_CUH
#define RL_CUDA_LINEAR_ATTENTION_REACH_CUH

#include "linear_attention_inputs.cuh"

namespace attention
{

enum { SPECIAL_Q = 1, SPECIAL_K = 2, SPECIAL_V = 4, SPECIAL_GATE = 8, SPECIAL_BETA = 16, SPECIAL_DY = 32 };

/* Whether any of the lanes' numbers is not finite: a warp's answer. */
__device__ inline bool row_is_special(const rl_attention_view &view, int64_t at, int64_t count)
{
    bool special = false;
    if (view.data)
        for (int64_t lane = threadIdx.x % 32; lane < count; lane += 32)
            special = special || !is_finite(load_any<float>(view.data, view.dtype, at + lane * view.lane));
    return __any_sync(0xffffffffu, special);
}

__device__ inline int kinds_of(const rl_attention_inputs &in, const rl_attention_view &dy, const Span &span,
                               int64_t head, int64_t step)
{
    const int64_t query_head = head / in.share;
    const Factor<float> factor(in, span, head, step);
    return (row_is_special(in.q, span.at(in.q, query_head, step), in.keys) ? SPECIAL_Q : 0) |
           (row_is_special(in.k, span.at(in.k, query_head, step), in.keys) ? SPECIAL_K : 0) |
           (row_is_special(in.v, span.at(in.v, head, step), in.values) ? SPECIAL_V : 0) |
           (row_is_special(dy, span.at(dy, head, step), in.values) ? SPECIAL_DY : 0) |
           (is_finite(beta_at<float>(in, span, head, step)) ? 0 : SPECIAL_BETA) |
           (factor.reset || is_finite(factor.value) ? 0 : SPECIAL_GATE);
}

/* By the whole block. */
__device__ inline bool state_is_special(const rl_attention_state &state, const rl_attention_inputs &in,
                                        int64_t sequence, int64_t head)
{
    bool special = false;
    if (state.data)
        for (int64_t i = threadIdx.x; i < in.keys * in.values; i += blockDim.x)
            special =
                special || !is_finite(load_any<float>(state.data, state.dtype,
                                                      sequence * state.sequence + head * state.head +
                                                          i / in.values * state.key + i % in.values * state.value));
    return __syncthreads_or(special);
}

/* What a head is marked by; 0: it is not run. By the whole block. */
__device__ inline int mark_of(const rl_attention_marks &marks, int64_t walk)
{
    if (marks.parts) {
        int mark = 0;
        for (int i = (int)threadIdx.x; i < marks.each; i += (int)blockDim.x)
            if (mark < marks.parts[walk * marks.each + i]) mark = marks.parts[walk * marks.each + i];
        if (!__syncthreads_or(mark)) return 0;
        return __syncthreads_or(mark == RL_ATTENTION_ALL) ? RL_ATTENTION_ALL : RL_ATTENTION_SPECIAL;
    }
    if (!marks.all || marks.all[walk]) return RL_ATTENTION_ALL;
    return marks.special && marks.special[walk] ? RL_ATTENTION_SPECIAL : 0;
}

/* Steps in the order of running; without `kinds` everything is to be stored. */
struct Reach {
    const uint8_t *kinds;
    int64_t from;          /* the first step whose state is reached */
    int64_t until, later;  /* the last step whose gradient is: by way of its own q and dy, or also of the next gate */
    int64_t first;         /* with any kind at all */
    int64_t own;           /* the first step whose y is the block's to store */
    bool gate, start, end; /* a gate is, or S_init, or dS_final */

    __device__ Reach()
        : kinds(NULL), from(0), until(0), later(0), first(0), own(0), gate(false), start(false), end(false)
    {
    }
    __device__ bool has(int64_t step, int which) const
    {
        return kinds[step] & which;
    }
    __device__ bool y(int64_t step) const
    {
        return step >= own && (!kinds || start || step >= first);
    }
    __device__ bool dq(int64_t step) const
    {
        return !kinds || start || step >= from || has(step, SPECIAL_DY);
    }
    __device__ bool dk(int64_t step) const
    {
        return !kinds || end || step <= until || has(step, SPECIAL_V | SPECIAL_BETA);
    }
    __device__ bool dv(int64_t step) const
    {
        return !kinds || end || step <= until || has(step, SPECIAL_K | SPECIAL_BETA);
    }
    __device__ bool dbeta(int64_t step) const
    {
        return !kinds || end || step <= until || has(step, SPECIAL_K | SPECIAL_V);
    }
    __device__ bool dgate(int64_t step) const
    {
        return !kinds || start || end || gate || step <= later || step > from;
    }
    __device__ bool dS_init() const
    {
        return !kinds || end || gate || until >= 0;
    }
};

/* By the whole block; `kinds` has room for the head's steps. */
__device__ inline Reach find_reach(const rl_attention_inputs &in, const rl_attention_view &dy,
                                   const rl_attention_state &dS_final, const Span &span, int64_t sequence,
                                   int64_t head, uint8_t *kinds)
{
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    Reach reach;
    for (int64_t step = warp; step < span.count; step += warps) {
        const int own = kinds_of(in, dy, span, head, step);
        if (threadIdx.x % 32 == 0) kinds[step] = (uint8_t)own;
    }
    reach.start = state_is_special(in.S_init, in, sequence, head);
    reach.end = state_is_special(dS_final, in, sequence, head); /* and all kinds are there */
    reach.kinds = kinds;
    reach.from = reach.first = span.count;
    reach.until = reach.later = -1;
    for (int64_t step = 0; step < span.count; step++) {
        const int own = kinds[step];
        if (own == 0) continue;
        if (reach.first > step) reach.first = step;
        if (reach.from > step && own & (SPECIAL_K | SPECIAL_V | SPECIAL_BETA | SPECIAL_GATE)) reach.from = step;
        if (own & SPECIAL_GATE) reach.gate = true, reach.until = step - 1;
        if (own & (SPECIAL_Q | SPECIAL_DY)) reach.until = reach.later = step;
    }
    return reach;
}

} // namespace attention

#endif
