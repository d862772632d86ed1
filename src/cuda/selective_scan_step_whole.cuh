/*
 * The decode step of usual tensors: all of a channel's states, at most 16, lie as one and are read and written by
 * four threads, 16 bytes each.  It waits for the states alone, so a thread asks for those of several sequences, and
 * for all that goes with them, before it touches any.
 *
 *     block  = 32 channels of TOGETHER sequences; the next ones gridDim.y blocks on
 *     thread = (channel, lane), 4 lanes a channel, as in selective_scan_step.cuh
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_STEP_WHOLE_CUH
#define RL_CUDA_SELECTIVE_SCAN_STEP_WHOLE_CUH

#include "selective_scan_step.cuh"

namespace selective_scan_step
{

constexpr int TOGETHER = RL_S6_STEP_TOGETHER, WHOLE_THREADS = RL_S6_STEP_WHOLE_THREADS;

/* exp(δ A) of a thread's states. */
__device__ inline void decays_of(float delta, const Quad<float> &a, Quad<float> &decay)
{
    float size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        decay.lane[k] = delta * a.lane[k];
        size += fabsf(decay.lane[k]);
    }
    const bool small = size <= SMALL;
#pragma unroll
    for (int k = 0; k < OWN; k++)
        decay.lane[k] = small ? exponential_of_small(decay.lane[k]) : exponential(decay.lane[k]);
}
__device__ inline void decays_of(double delta, const Quad<double> &a, Quad<double> &decay)
{
#pragma unroll
    for (int k = 0; k < OWN; k++) decay.lane[k] = exponential(delta * a.lane[k]);
}

/* What a thread holds of its sequences. */
template <typename T, typename U, typename Acc> struct Held {
    const rl_s6_args &args;
    Quad<Acc> h[TOGETHER], a;
    Quad<U> b[TOGETHER], c[TOGETHER];
    T x[TOGETHER], z[TOGETHER];
    U delta[TOGETHER];
    Acc bias, skip;
    bool own; /* the thread has states */

    /* Issues every load. */
    __device__ Held(const rl_s6_args &args, const Place<T, U> &at, int64_t channel, int lane, int64_t left)
        : args(args), bias(0), skip(0), own(lane * OWN < args.states)
    {
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            h[k] = {};
            if (k >= left) continue;
            if (own && args.h_init.data)
                h[k] = *(const Quad<Acc> *)((const Acc *)args.h_init.data + at.init + k * args.h_init.sequence);
            delta[k] = at.delta[k * args.delta.batch];
            x[k] = at.x[k * args.x.batch];
            if (args.z.data) z[k] = at.z[k * args.z.batch];
            if (!own) continue;
            b[k] = *(const Quad<U> *)(at.B + k * args.B.batch);
            c[k] = *(const Quad<U> *)(at.C + k * args.C.batch);
        }
        if (own) a = *(const Quad<Acc> *)((const Acc *)args.A + channel * args.A_channel + lane * OWN);
        if (args.bias.data) bias = ((const Acc *)args.bias.data)[channel * args.bias.stride];
        if (args.D.data) skip = ((const Acc *)args.D.data)[channel * args.D.stride];
#pragma unroll
        for (int k = 0; k < OWN; k++) a.lane[k] = finite_range(a.lane[k]);
    }

    __device__ void size_steps(Acc (&step)[TOGETHER], int64_t left) const
    {
        const StepSize<Acc> step_size(args);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) step[k] = k < left ? (Acc)widen(delta[k]) + bias : Acc(0);
        step_size.any(step);
    }

    /* The step of sequence k; returns the thread's part of y. */
    __device__ Acc advance_states(int k, Acc step)
    {
        Acc sum = 0;
        Quad<Acc> decay = {};
        const Acc input = step * (Acc)widen(x[k]);
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

    __device__ void run(const Place<T, U> &at, int lane, int64_t left)
    {
        Acc step[TOGETHER];
        size_steps(step, left);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            Acc sum = 0;
            if (own && k < left) {
                sum = advance_states(k, step[k]);
                if (args.h_final.data)
                    *(Quad<Acc> *)((Acc *)args.h_final.data + at.final + k * args.h_final.sequence) = h[k];
            }
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (lane != 0 || k >= left) continue;
            if (args.D.data) sum = fma(skip, (Acc)widen(x[k]), sum);
            if (args.z.data) sum *= gate((Acc)widen(z[k]));
            at.y[k * args.y.batch] = narrow<T>(sum);
        }
    }
};

template <typename T, typename U, typename Acc>
__global__ void __launch_bounds__(WHOLE_THREADS, sizeof(Acc) == 4 ? 10 : 4)
    step_whole_kernel(const __grid_constant__ rl_s6_args args)
{
    const int lane = threadIdx.x % LANES;
    const int64_t channel = (int64_t)blockIdx.x * (WHOLE_THREADS / LANES) + threadIdx.x / LANES;
    const int64_t rows = (int64_t)gridDim.y * TOGETHER, here = channel < args.channels ? channel : 0;
    for (int64_t sequence = (int64_t)blockIdx.y * TOGETHER; sequence < args.sequences; sequence += rows) {
        const Place<T, U> at(args, sequence, here, lane * OWN);
        const int64_t left = channel < args.channels ? args.sequences - sequence : 0;
        Held<T, U, Acc>(args, at, here, lane, left).run(at, lane, left);
    }
}

} // namespace selective_scan_step

#endif
