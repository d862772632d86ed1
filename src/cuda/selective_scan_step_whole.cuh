/*
 * The decode step of usual tensors: all of a channel's states, at most 16, lie as one and are read and written by
 * four threads, 16 bytes each.  It waits for the states alone, so a thread asks for those of four sequences before it
 * touches any.
 *
 *     block  = 32 channels of four sequences; the next ones four gridDim.y on
 *     thread = (channel, lane), 4 lanes a channel: has a quarter of the states of all four sequences, and works out
 *              δ and y of one, its own; the lanes of a channel exchange these by shuffles
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_STEP_WHOLE_CUH
#define RL_CUDA_SELECTIVE_SCAN_STEP_WHOLE_CUH

#include <machine/stores.cuh>

#include "selective_scan_step.cuh"

namespace selective_scan_step
{

constexpr int WHOLE_THREADS = RL_S6_STEP_WHOLE_THREADS;

/* exp(δ A) of a thread's states. */
__device__ inline void decays_of(float delta, const Quad<float> &a, Quad<float> &decay)
{
    float size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        decay.lane[k] = delta * a.lane[k];
        size += fabsf(decay.lane[k]);
    }
    if (size <= SMALL) {
#pragma unroll
        for (int k = 0; k < OWN; k++) decay.lane[k] = exponential_of_small(decay.lane[k]);
    } else {
#pragma unroll
        for (int k = 0; k < OWN; k++) decay.lane[k] = exponential(decay.lane[k]);
    }
}
__device__ inline void decays_of(double delta, const Quad<double> &a, Quad<double> &decay)
{
#pragma unroll
    for (int k = 0; k < OWN; k++) decay.lane[k] = exponential(delta * a.lane[k]);
}

/* In accesses of 16 bytes. */
__device__ inline void store_whole(float *to, const Quad<float> &h)
{
    store_together(to, h.lane[0], h.lane[1], h.lane[2], h.lane[3]);
}
__device__ inline void store_whole(double *to, const Quad<double> &h)
{
    ((double2 *)to)[0] = make_double2(h.lane[0], h.lane[1]);
    ((double2 *)to)[1] = make_double2(h.lane[2], h.lane[3]);
}

/* What a thread holds of its sequences: their states, and the rest of its own one. */
template <typename T, typename U, typename Acc> struct Held {
    const rl_s6_args &args;
    const int lane;
    const int left; /* sequences that exist */
    const bool own; /* the thread has states */
    Quad<Acc> h[LANES], a;
    Quad<U> b[LANES], c[LANES];
    T x, z;
    U delta;
    Acc bias, skip;

    /* Issues every load; the states', which come from afar, first. */
    __device__ Held(const rl_s6_args &args, const Place<T, U> &at, int64_t channel, int lane, int left)
        : args(args), lane(lane), left(left), own(lane * OWN < args.states), x{}, z{}, delta{}, bias(0), skip(0)
    {
        const Acc *init = (const Acc *)args.h_init.data + at.init;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            h[k] = {};
            if (own && k < left && args.h_init.data) h[k] = *(const Quad<Acc> *)(init + k * args.h_init.sequence);
        }
        if (lane < left) {
            delta = at.delta[lane * args.delta.batch];
            x = at.x[lane * args.x.batch];
            if (args.z.data) z = at.z[lane * args.z.batch];
        }
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            if (!own || k >= left) continue;
            b[k] = *(const Quad<U> *)(at.B + k * args.B.batch);
            c[k] = *(const Quad<U> *)(at.C + k * args.C.batch);
        }
        if (own) a = *(const Quad<Acc> *)((const Acc *)args.A + channel * args.A_channel + lane * OWN);
        if (args.bias.data) bias = ((const Acc *)args.bias.data)[channel * args.bias.stride];
        if (args.D.data) skip = ((const Acc *)args.D.data)[channel * args.D.stride];
#pragma unroll
        for (int k = 0; k < OWN; k++) a.lane[k] = finite_range(a.lane[k]);
    }

    /* The step of sequence k; returns the thread's part of y. */
    __device__ Acc advance_states(int k, Acc step, Acc input)
    {
        Acc sum = 0;
        Quad<Acc> decay = {};
        if (args.h_init.data) decays_of(step, a, decay);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Acc added = input * (Acc)widen(b[k].get(j));
            /* nothing multiplies a state that is not there */
            h[k].lane[j] = args.h_init.data ? advance(decay.lane[j], h[k].lane[j], added) : added;
            sum = fma((Acc)widen(c[k].get(j)), h[k].lane[j], sum);
        }
        return sum;
    }

    /* Adds up the lanes' parts of y; each ends with its own sequence's.  What it gives away, it keeps no part of. */
    __device__ Acc add_up(const Acc (&part)[LANES]) const
    {
        Acc pair[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const Acc keep = lane & 2 ? part[k + 2] : part[k], give = lane & 2 ? part[k] : part[k + 2];
            pair[k] = keep + __shfl_xor_sync(~0u, give, 2);
        }
        const Acc keep = lane & 1 ? pair[1] : pair[0], give = lane & 1 ? pair[0] : pair[1];
        return keep + __shfl_xor_sync(~0u, give, 1);
    }

    __device__ void run(const Place<T, U> &at)
    {
        const StepSize<Acc> step_size(args);
        Acc step[] = {lane < left ? (Acc)widen(delta) + bias : Acc(0)}, part[LANES] = {};
        step_size.any(step);
        const Acc value = widen(x), input = step[0] * value;
        Acc *final = (Acc *)args.h_final.data + at.final;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            const Acc its_step = __shfl_sync(~0u, step[0], k, LANES), its_input = __shfl_sync(~0u, input, k, LANES);
            if (!own || k >= left) continue;
            part[k] = advance_states(k, its_step, its_input);
            if (args.h_final.data) store_whole(final + k * args.h_final.sequence, h[k]);
        }
        Acc sum = add_up(part);
        if (lane >= left) return;
        if (args.D.data) sum = fma(skip, value, sum);
        if (args.z.data) sum *= gate((Acc)widen(z));
        at.y[lane * args.y.batch] = narrow<T>(sum);
    }
};

template <typename T, typename U, typename Acc>
__global__ void __launch_bounds__(WHOLE_THREADS, sizeof(Acc) == 4 ? 8 : 4)
    step_whole_kernel(const __grid_constant__ rl_s6_args args)
{
    let_later_start();
    await_earlier();
    const int lane = threadIdx.x % LANES;
    const int64_t channel = (int64_t)blockIdx.x * (WHOLE_THREADS / LANES) + threadIdx.x / LANES;
    const int64_t rows = (int64_t)gridDim.y * LANES, here = channel < args.channels ? channel : 0;
    for (int64_t sequence = (int64_t)blockIdx.y * LANES; sequence < args.sequences; sequence += rows) {
        const Place<T, U> at(args, sequence, here, lane * OWN);
        const int left = channel >= args.channels            ? 0
                         : args.sequences - sequence < LANES ? (int)(args.sequences - sequence)
                                                             : LANES;
        Held<T, U, Acc>(args, at, here, lane, left).run(at);
    }
}

} // namespace selective_scan_step

#endif
