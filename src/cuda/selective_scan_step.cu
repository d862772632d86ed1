/*
 * The selective scan at length 1, the decode step: bound by reading and writing the states, so they are spread over
 * as many threads as there are groups of four.
 *
 *     thread = (sequence, channel, lane)      4 lanes a channel, each with 4 states of every 16; the lanes of a
 * channel share δ and x, and add up y by shuffles
 */
#include "elements.cuh"
#include "s6.cuh"
#include "scan_kernels.h"

namespace
{

constexpr int LANES = RL_SCAN_LANES, OWN = RL_SCAN_OWN, PANEL = RL_SCAN_PANEL;

/* Four states, in one access where they lie together in the accumulation type. */
template <typename Acc> __device__ Quad<Acc> load_four(const rl_scan_state &view, int64_t at, int64_t count)
{
    if (view.dtype == (sizeof(Acc) == 8 ? RILL_F64 : RILL_F32))
        return load_quad((const Acc *)view.data + at, view.state, count, view.wide);
    Quad<Acc> quad = {};
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) quad.lane[k] = load_any<Acc>(view.data, view.dtype, at + k * view.state);
    return quad;
}

template <typename Acc>
__device__ void store_four(const rl_scan_state &view, int64_t at, int64_t count, const Quad<Acc> &quad)
{
    if (view.dtype == (sizeof(Acc) == 8 ? RILL_F64 : RILL_F32)) {
        store_quad((Acc *)view.data + at, view.state, count, view.wide, quad);
        return;
    }
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) store_any(view.data, view.dtype, at + k * view.state, quad.lane[k]);
}

template <typename Acc> __device__ Acc load_channel(const rl_scan_view &view, int64_t sequence, int64_t channel)
{
    return load_any<Acc>(view.data, view.dtype, sequence * view.batch + channel * view.lane);
}

/* The thread's states of one panel; returns their part of y. */
template <typename Acc>
__device__ Acc step_panel(const rl_scan_args &args, int64_t sequence, int64_t channel, int64_t state, Acc delta,
                          Acc input)
{
    const int64_t count = args.states - state, group = channel / args.group_channels;
    const rl_scan_state &init = args.h_init, &final = args.h_final;
    const int64_t A_at = channel * args.A_channel + state * args.A_state;
    const int64_t B_at = sequence * args.B.batch + group * args.B.group + state * args.B.lane;
    const int64_t C_at = sequence * args.C.batch + group * args.C.group + state * args.C.lane;
    Quad<Acc> h = {};
    if (init.data)
        h = load_four<Acc>(init, sequence * init.sequence + channel * init.channel + state * init.state, count);
    Acc sum = 0;
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        if (k >= count) continue;
        const Acc b = load_any<Acc>(args.B.data, args.B.dtype, B_at + k * args.B.lane);
        const Acc c = load_any<Acc>(args.C.data, args.C.dtype, C_at + k * args.C.lane);
        if (init.data) { /* nothing multiplies a state that is not there */
            const Acc a = finite_range(((const Acc *)args.A)[A_at + k * args.A_state]);
            h.lane[k] = fma(exponential(delta * a), h.lane[k], input * b);
        } else {
            h.lane[k] = input * b;
        }
        sum = fma(c, h.lane[k], sum);
    }
    if (final.data)
        store_four<Acc>(final, sequence * final.sequence + channel * final.channel + state * final.state, count, h);
    return sum;
}

template <typename Acc> __global__ void __launch_bounds__(256) step_kernel(const __grid_constant__ rl_scan_args args)
{
    const int64_t count = args.sequences * args.channels, stride = (int64_t)gridDim.x * (blockDim.x / LANES);
    const int lane = threadIdx.x % LANES;
    const StepSize<Acc> step_size(args);
    /* The bound is rounded up so that whole warps stay together for the shuffles. */
    for (int64_t k = (int64_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
         k - threadIdx.x % 32 / LANES < count; k += stride) {
        const bool exists = k < count;
        const int64_t sequence = exists ? k / args.channels : 0, channel = exists ? k - sequence * args.channels : 0;
        Acc sum = 0, value = 0;
        if (exists) {
            value = load_channel<Acc>(args.x, sequence, channel);
            const Acc bias = args.bias.data ? ((const Acc *)args.bias.data)[channel * args.bias.stride] : Acc(0);
            const Acc delta = step_size(load_channel<Acc>(args.delta, sequence, channel), bias);
            for (int64_t state = lane * OWN; state < args.states; state += PANEL)
                sum += step_panel(args, sequence, channel, state, delta, delta * value);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (!exists || lane != 0) continue;
        if (args.D.data) sum = fma(((const Acc *)args.D.data)[channel * args.D.stride], value, sum);
        if (args.z.data) sum *= gate(load_channel<Acc>(args.z, sequence, channel));
        store_any(args.y.data, args.y.dtype, sequence * args.y.batch + channel * args.y.lane, sum);
    }
}

} // namespace

const void *rl_scan_step_kernel(bool f64)
{
    return f64 ? (const void *)step_kernel<double> : (const void *)step_kernel<float>;
}
