/* Sequences and gates of linear attention, and inputs of some steps brought into shared memory. */
#ifndef RL_CUDA_LINEAR_ATTENTION_INPUTS_CUH
#define RL_CUDA_LINEAR_ATTENTION_INPUTS_CUH

#include <machine/copies.cuh>

#include "elements.cuh"
#include "linear_attention_args.h"
#include "numbers.cuh"
#include "sequence.cuh"

namespace attention
{

/* A sequence, by the order in which its steps are run. */
struct Span : Sequence {
    bool down;

    __device__ Span(const rl_attention_inputs &in, int64_t sequence)
        : Sequence(in.offsets, in.offsets_stride, in.length, sequence), down(in.down)
    {
    }
    /* The element of the i-th step run; from there the view's own step leads on. */
    __device__ int64_t at(const rl_attention_view &view, int64_t head, int64_t i) const
    {
        return row * view.batch + (first(down) + i) * view.step + head * view.head;
    }
    /* The i-th step run, as a row of [batch, length]. */
    __device__ int64_t time(int64_t length, int64_t i) const
    {
        return row * length + (down ? begin + count - 1 - i : begin + i);
    }
};

/* One number as it lies, so that a load is not waited for. */
template <typename N> struct Bits {
    uint64_t bits;

    __device__ __forceinline__ void load(const rl_attention_view &view, int64_t at)
    {
        bits = 0;
        if (!view.data) return;
        if constexpr (sizeof(N) == 8)
            bits = ((const uint64_t *)view.data)[at];
        else if (view.dtype == RILL_F32)
            bits = ((const uint32_t *)view.data)[at];
        else
            bits = ((const uint16_t *)view.data)[at];
    }
    __device__ __forceinline__ N widened(const rl_attention_view &view) const
    {
        if constexpr (sizeof(N) == 8)
            return __longlong_as_double((long long)bits);
        else if (view.dtype == RILL_F32)
            return __uint_as_float((uint32_t)bits);
        else
            return view.dtype == RILL_BF16 ? widen(bf16{(uint16_t)bits}) : widen(f16{(uint16_t)bits});
    }
};

/* The gate of the i-th step run.  reset: what was before is dropped, or there is nothing; then value is 1. */
template <typename N> struct Factor {
    N value;
    bool reset;

    __device__ Factor(const rl_attention_inputs &in, const Span &span, int64_t head, int64_t i)
        : value(1), reset(i == 0 && !in.S_init.data)
    {
        if (!reset && in.gate.data) take(in, load_any<N>(in.gate.data, in.gate.dtype, span.at(in.gate, head, i)));
    }
    /* The same of a gate, if there are any, that is known. */
    __device__ Factor(const rl_attention_inputs &in, int64_t i, N gate) : value(1), reset(i == 0 && !in.S_init.data)
    {
        if (!reset && in.gate.data) take(in, gate);
    }

  private:
    __device__ void take(const rl_attention_inputs &in, N gate)
    {
        reset = in.gate_is_log ? gate == -INFINITY : gate == 0;
        if (!reset) value = in.gate_is_log ? (N)exp((double)gate) : gate; /* rounded once from float64 */
    }
};

template <typename N>
__device__ inline N beta_at(const rl_attention_inputs &in, const Span &span, int64_t head, int64_t i)
{
    return in.beta.data ? load_any<N>(in.beta.data, in.beta.dtype, span.at(in.beta, head, i)) : (N)1;
}

/* Rows of a tensor by time into shared memory, by all threads: some loads in flight before the first store. */
template <typename T, typename N>
__device__ inline void stage_as(N *to, int pitch, const T *from, int64_t step_stride, int64_t lane_stride, int steps,
                                int count)
{
    constexpr int BATCH = 4;
    const int threads = (int)blockDim.x, steps_on = threads / count, lanes_on = threads % count;
    int step = (int)threadIdx.x / count, lane = (int)threadIdx.x % count;
    while (step < steps) {
        T raw[BATCH] = {};
        int place[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            place[j] = step < steps ? step * pitch + lane : -1;
            if (step < steps) raw[j] = from[step * step_stride + lane * lane_stride];
            step += steps_on;
            lane += lanes_on;
            if (lane >= count) lane -= count, step++;
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (place[j] >= 0) to[place[j]] = (N)widen(raw[j]);
    }
}

template <typename N>
__device__ inline void copy_rows(N *to, int pitch, const N *from, int64_t step_stride, int64_t lane_stride, int steps,
                                 int count)
{
    const int threads = (int)blockDim.x, steps_on = threads / count, lanes_on = threads % count;
    int step = (int)threadIdx.x / count, lane = (int)threadIdx.x % count;
    while (step < steps) {
        copy_number(to + step * pitch + lane, from + (step * step_stride + lane * lane_stride));
        step += steps_on;
        lane += lanes_on;
        if (lane >= count) lane -= count, step++;
    }
}

/* `at`: the element of the first step and lane. */
template <typename N>
__device__ inline void stage(N *to, int pitch, const rl_attention_view &view, int64_t at, int64_t step_stride,
                             int steps, int count)
{
    if (count == 0) return;
    if (view.dtype == (sizeof(N) == 8 ? RILL_F64 : RILL_F32)) {
        copy_rows(to, pitch, (const N *)view.data + at, step_stride, view.lane, steps, count);
        return;
    }
    switch (view.dtype) {
    case RILL_F64:
        stage_as(to, pitch, (const double *)view.data + at, step_stride, view.lane, steps, count);
        break;
    case RILL_F32:
        stage_as(to, pitch, (const float *)view.data + at, step_stride, view.lane, steps, count);
        break;
    case RILL_BF16:
        stage_as(to, pitch, (const bf16 *)view.data + at, step_stride, view.lane, steps, count);
        break;
    default:
        stage_as(to, pitch, (const f16 *)view.data + at, step_stride, view.lane, steps, count);
        break;
    }
}

/* Inputs of some steps in shared memory; await_copies and a barrier follow a load. */
template <typename N> struct Inputs {
    int high, wide;          /* of a whole tile */
    N *q, *k;                /* [steps][high] */
    N *v;                    /* [steps][wide] */
    N *value, *reset, *beta; /* [steps]: the gate, 1 where it is a reset or 0, beta */

    /* Steps first .. first + steps - 1 in the order of running. */
    template <typename Place>
    __device__ void load(const rl_attention_inputs &in, const Span &span, const Place &place, int64_t first,
                         int steps, bool with_q)
    {
        const int64_t query_head = place.head / in.share;
        if (with_q)
            stage(q, high, in.q, span.at(in.q, query_head, first) + place.panel_key * in.q.lane, in.q.step, steps,
                  place.tile_rows);
        stage(k, high, in.k, span.at(in.k, query_head, first) + place.panel_key * in.k.lane, in.k.step, steps,
              place.tile_rows);
        stage(v, wide, in.v, span.at(in.v, place.head, first) + place.slab_value * in.v.lane, in.v.step, steps,
              place.tile_columns);
        for (int step = (int)threadIdx.x; step < steps; step += (int)blockDim.x) {
            const Factor<N> factor(in, span, place.head, first + step);
            value[step] = factor.value;
            reset[step] = factor.reset ? 1 : 0;
            beta[step] = beta_at<N>(in, span, place.head, first + step);
        }
    }
};

} // namespace attention

#endif
