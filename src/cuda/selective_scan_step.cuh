/*
 * The selective scan at length 1, the decode step: bound by reading and writing the states, so they are spread over
 * as many threads as there are groups of four.
 *
 *     block  = 64 channels; goes through every gridDim.y-th sequence
 *     thread = (channel, lane)      4 lanes a channel, each with 4 states of every 16; the lanes of a channel share δ
 *                                   and x, and add up y by shuffles
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_STEP_CUH
#define RL_CUDA_SELECTIVE_SCAN_STEP_CUH

#include <machine/early.cuh>

#include "elements.cuh"
#include "s6.cuh"

namespace selective_scan_step
{

constexpr int LANES = RL_S6_LANES, OWN = RL_S6_OWN, PANEL = RL_S6_PANEL;

template <typename Acc> __device__ Quad<Acc> load_four(const rl_s6_state &view, int64_t at, int64_t count)
{
    Quad<Acc> quad = {};
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) quad.lane[k] = load_any<Acc>(view.data, view.dtype, at + k * view.state);
    return quad;
}

template <typename Acc>
__device__ void store_four(const rl_s6_state &view, int64_t at, int64_t count, const Quad<Acc> &quad)
{
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) store_any(view.data, view.dtype, at + k * view.state, quad.lane[k]);
}

/* Where a thread's channel lies in one sequence, at its first state. */
template <typename T, typename U> struct Place {
    const T *x, *z;
    T *y;
    const U *delta, *B, *C;
    int64_t init, final;

    __device__ Place(const rl_s6_args &args, int64_t sequence, int64_t channel, int64_t state)
    {
        const int64_t group = args.group_channels == args.channels ? 0 : channel / args.group_channels;
        x = (const T *)args.x.data + sequence * args.x.batch + channel * args.x.lane;
        y = (T *)args.y.data + sequence * args.y.batch + channel * args.y.lane;
        z = (const T *)args.z.data + sequence * args.z.batch + channel * args.z.lane;
        delta = (const U *)args.delta.data + sequence * args.delta.batch + channel * args.delta.lane;
        B = (const U *)args.B.data + sequence * args.B.batch + group * args.B.group + state * args.B.lane;
        C = (const U *)args.C.data + sequence * args.C.batch + group * args.C.group + state * args.C.lane;
        init = sequence * args.h_init.sequence + channel * args.h_init.channel + state * args.h_init.state;
        final = sequence * args.h_final.sequence + channel * args.h_final.channel + state * args.h_final.state;
    }
    __device__ void advance(const rl_s6_args &args)
    {
        const int64_t sequences = gridDim.y;
        x += sequences * args.x.batch;
        y += sequences * args.y.batch;
        z += sequences * args.z.batch;
        delta += sequences * args.delta.batch;
        B += sequences * args.B.batch;
        C += sequences * args.C.batch;
        init += sequences * args.h_init.sequence;
        final += sequences * args.h_final.sequence;
    }
};

template <typename T, typename U, typename Acc> struct Step {
    const rl_s6_args &args;
    const Acc *A; /* at the thread's first state */
    Acc bias, skip;
    StepSize<Acc> step_size;

    __device__ Step(const rl_s6_args &args, int64_t channel, int64_t state)
        : args(args), bias(0), skip(0), step_size(args)
    {
        A = (const Acc *)args.A + channel * args.A_channel + state * args.A_state;
        if (args.bias.data) bias = ((const Acc *)args.bias.data)[channel * args.bias.stride];
        if (args.D.data) skip = ((const Acc *)args.D.data)[channel * args.D.stride];
    }

    /* Four states, `state` on from the thread's first, of which `count` exist; returns their part of y. */
    __device__ Acc run_four(const Place<T, U> &at, int64_t state, int64_t count, Acc delta, Acc input) const
    {
        const rl_s6_state &init = args.h_init, &final = args.h_final;
        const Acc *A_here = A + state * args.A_state;
        const U *B = at.B + state * args.B.lane, *C = at.C + state * args.C.lane;
        Quad<Acc> h = {}, a = {};
        Quad<U> b, c;
        if (args.states_wide) {
            if (init.data) h = *(const Quad<Acc> *)((const Acc *)init.data + at.init + state);
            a = *(const Quad<Acc> *)A_here;
            b = *(const Quad<U> *)B;
            c = *(const Quad<U> *)C;
            count = OWN;
        } else {
            if (init.data) h = load_four<Acc>(init, at.init + state * init.state, count);
            a = load_quad(A_here, args.A_state, count, args.A_wide);
            b = load_quad(B, args.B.lane, count, args.B.wide);
            c = load_quad(C, args.C.lane, count, args.C.wide);
        }
        Acc sum = 0;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (k >= count) continue;
            const Acc added = input * (Acc)widen(b.get(k));
            /* nothing multiplies a state that is not there */
            h.lane[k] = init.data ? advance(exponential(delta * finite_range(a.lane[k])), h.lane[k], added) : added;
            sum = fma((Acc)widen(c.get(k)), h.lane[k], sum);
        }
        if (final.data && args.states_wide)
            *(Quad<Acc> *)((Acc *) final.data + at.final + state) = h;
        else if (final.data)
            store_four<Acc>(final, at.final + state * final.state, count, h);
        return sum;
    }

    /* All of the thread's states in one sequence, and y by the channel's first lane. */
    __device__ void run(const Place<T, U> &at, bool exists, int lane) const
    {
        Acc sum = 0, x = 0;
        if (exists) {
            Acc delta[] = {(Acc)widen(*at.delta) + bias};
            x = widen(*at.x);
            step_size(delta);
            for (int64_t state = 0; state + lane * OWN < args.states; state += PANEL)
                sum += run_four(at, state, args.states - lane * OWN - state, delta[0], delta[0] * x);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (!exists || lane != 0) return;
        if (args.D.data) sum = fma(skip, x, sum);
        if (args.z.data) sum *= gate((Acc)widen(*at.z));
        *at.y = narrow<T>(sum);
    }
};

template <typename T, typename U, typename Acc>
__global__ void __launch_bounds__(256, sizeof(Acc) == 4 ? 4 : 2) step_kernel(const __grid_constant__ rl_s6_args args)
{
    let_later_start();
    await_earlier();
    const int lane = threadIdx.x % LANES;
    const int64_t channel = (int64_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    const bool exists = channel < args.channels;
    const Step<T, U, Acc> step(args, exists ? channel : 0, lane * OWN);
    Place<T, U> at(args, blockIdx.y, exists ? channel : 0, lane * OWN);
    for (int64_t sequence = blockIdx.y; sequence < args.sequences; sequence += gridDim.y) {
        step.run(at, exists, lane);
        at.advance(args);
    }
}

} // namespace selective_scan_step

#endif
