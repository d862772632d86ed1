/*
 * The selective scan at length 1, the decode step: bound by reading and writing the states, so they are spread over
 * as many threads as there are groups of four.
 *
 *     block  = 64 channels of one sequence
 *     thread = (channel, lane)      4 lanes a channel, each with 4 states of every 16; the lanes of a channel share δ
 *                                   and x, and add up y by shuffles
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_STEP_CUH
#define RL_CUDA_SELECTIVE_SCAN_STEP_CUH

#include "elements.cuh"
#include "s6.cuh"

namespace selective_scan_step
{

constexpr int LANES = RL_SCAN_LANES, OWN = RL_SCAN_OWN, PANEL = RL_SCAN_PANEL;

template <typename Acc> __device__ bool is_wide_acc(const rl_scan_state &view)
{
    return view.wide && view.dtype == (sizeof(Acc) == 8 ? RILL_F64 : RILL_F32);
}

/* Four states, in one access where they lie together in the accumulation type. */
template <typename Acc> __device__ Quad<Acc> load_four(const rl_scan_state &view, int64_t at, int64_t count)
{
    if (is_wide_acc<Acc>(view) && count >= OWN) return *(const Quad<Acc> *)((const Acc *)view.data + at);
    Quad<Acc> quad = {};
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) quad.lane[k] = load_any<Acc>(view.data, view.dtype, at + k * view.state);
    return quad;
}

template <typename Acc>
__device__ void store_four(const rl_scan_state &view, int64_t at, int64_t count, const Quad<Acc> &quad)
{
    if (is_wide_acc<Acc>(view) && count >= OWN) {
        *(Quad<Acc> *)((Acc *)view.data + at) = quad;
        return;
    }
#pragma unroll
    for (int k = 0; k < OWN; k++)
        if (k < count) store_any(view.data, view.dtype, at + k * view.state, quad.lane[k]);
}

template <typename Acc> struct Step {
    int64_t sequence, channel;
    Acc delta, input;
};

/* The thread's states of one panel; returns their part of y. */
template <typename U, typename Acc>
__device__ Acc step_panel(const rl_scan_args &args, const Step<Acc> &step, int64_t group, int64_t state)
{
    const int64_t count = args.states - state, sequence = step.sequence, channel = step.channel;
    const rl_scan_state &init = args.h_init, &final = args.h_final;
    const Acc *A = (const Acc *)args.A + channel * args.A_channel + state * args.A_state;
    const U *B = (const U *)args.B.data + sequence * args.B.batch + group * args.B.group + state * args.B.lane;
    const U *C = (const U *)args.C.data + sequence * args.C.batch + group * args.C.group + state * args.C.lane;
    Quad<Acc> h = {}, a = {};
    if (init.data) { /* nothing multiplies a state that is not there */
        h = load_four<Acc>(init, sequence * init.sequence + channel * init.channel + state * init.state, count);
        a = load_quad(A, args.A_state, count, args.A_wide);
    }
    const Quad<U> b = load_quad(B, args.B.lane, count, args.B.wide),
                  c = load_quad(C, args.C.lane, count, args.C.wide);
    Acc sum = 0;
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        if (k >= count) continue;
        const Acc input = step.input * (Acc)widen(b.get(k));
        h.lane[k] = init.data ? fma(exponential(step.delta * finite_range(a.lane[k])), h.lane[k], input) : input;
        sum = fma((Acc)widen(c.get(k)), h.lane[k], sum);
    }
    if (final.data)
        store_four<Acc>(final, sequence * final.sequence + channel * final.channel + state * final.state, count, h);
    return sum;
}

template <typename T, typename U, typename Acc>
__global__ void __launch_bounds__(256, sizeof(Acc) == 4 ? 4 : 2)
    step_kernel(const __grid_constant__ rl_scan_args args)
{
    const int width = blockDim.x / LANES, lane = threadIdx.x % LANES;
    const int64_t across = (args.channels + width - 1) / width, count = across * args.sequences;
    const StepSize<Acc> step_size(args);
    for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
        Step<Acc> step = {};
        step.sequence = k / across;
        step.channel = (k - step.sequence * across) * width + threadIdx.x / LANES;
        const bool exists = step.channel < args.channels;
        Acc sum = 0, x = 0;
        if (exists) {
            const int64_t group = args.group_channels == args.channels ? 0 : step.channel / args.group_channels;
            x = widen(((const T *)args.x.data)[step.sequence * args.x.batch + step.channel * args.x.lane]);
            Acc delta[] = {(Acc)widen(
                ((const U *)args.delta.data)[step.sequence * args.delta.batch + step.channel * args.delta.lane])};
            if (args.bias.data) delta[0] += ((const Acc *)args.bias.data)[step.channel * args.bias.stride];
            step_size(delta);
            step.delta = delta[0];
            step.input = delta[0] * x;
            for (int64_t state = lane * OWN; state < args.states; state += PANEL)
                sum += step_panel<U>(args, step, group, state);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (!exists || lane != 0) continue;
        if (args.D.data) sum = fma(((const Acc *)args.D.data)[step.channel * args.D.stride], x, sum);
        if (args.z.data)
            sum *=
                gate((Acc)widen(((const T *)args.z.data)[step.sequence * args.z.batch + step.channel * args.z.lane]));
        ((T *)args.y.data)[step.sequence * args.y.batch + step.channel * args.y.lane] = narrow<T>(sum);
    }
}

} // namespace selective_scan_step

#endif
