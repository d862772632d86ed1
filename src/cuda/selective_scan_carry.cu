/*
 * Between the two walks of a split selective scan: carries each state from chunk to chunk.  One thread a state
 * (channel, state), so the threads of a warp share a channel's step sizes.
 *
 *     carry[0] = h_init;   carry[c + 1] = exp(A Σδ_c) carry[c] + local[c]
 *
 * Where the decays of a chunk may grow, or its values are not finite, the product could lose or spoil what the plain
 * loop computes; such a chunk is run here again, step by step in the loop's own order.  Slow, but right.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "s6.cuh"
#include "s6_kernels.h"

namespace
{

constexpr int AHEAD = 8; /* chunks whose summaries are loaded together */

template <typename Acc>
__device__ Acc run_chunk(const rl_s6_args &args, const Piece &piece, int64_t channel, int64_t state, Acc a, Acc h)
{
    const int64_t group = channel / args.group_channels;
    const Acc bias = args.bias.data ? ((const Acc *)args.bias.data)[channel * args.bias.stride] : Acc(0);
    const StepSize<Acc> step_size(args);
    const rl_s6_view &x = args.x, &delta = args.delta, &B = args.B;
    const int64_t x_at = first_row(args, x, piece) + channel * x.lane;
    const int64_t delta_at = first_row(args, delta, piece) + channel * delta.lane;
    const int64_t B_at = first_row(args, B, piece) + group * B.group + state * B.lane;
    bool fresh = piece.starts && !args.h_init.data;
    for (int64_t k = 0; k < piece.count; k++) {
        Acc step[] = {load_any<Acc>(delta.data, delta.dtype, delta_at + k * delta.step) + bias};
        const Acc value = load_any<Acc>(x.data, x.dtype, x_at + k * x.step);
        const Acc b = load_any<Acc>(B.data, B.dtype, B_at + k * B.step);
        step_size(step);
        const Acc input = step[0] * value * b;
        h = fresh ? input : advance(exponential(step[0] * a), h, input);
        fresh = false;
    }
    return h;
}

template <typename Acc>
__device__ void carry_state(const rl_s6_args &args, int64_t sequence, int64_t channel, int64_t state)
{
    const rl_s6_state &init = args.h_init;
    const int64_t place = args.channels, first = sequence * args.chunks * place + channel;
    const Acc a = finite_range(((const Acc *)args.A)[channel * args.A_channel + state * args.A_state]);
    Acc h = 0;
    if (init.data)
        h = load_any<Acc>(init.data, init.dtype,
                          sequence * init.sequence + channel * init.channel + state * init.state);
    for (int64_t chunk = 0; chunk < args.chunks; chunk += AHEAD) {
        Acc local[AHEAD];
        double sum[AHEAD];
        int wild[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (chunk + k >= args.chunks) continue;
            const int64_t at = first + (chunk + k) * place;
            local[k] = ((const Acc *)args.local)[at * args.states + state];
            sum[k] = args.step_sums[at];
            wild[k] = args.wild[at];
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (chunk + k >= args.chunks) continue;
            ((Acc *)args.carry)[(first + (chunk + k) * place) * args.states + state] = h;
            if (chunk + k + 1 == args.chunks) continue;
            const Acc decay = sum[k] < 0 ? Acc(0) : exponential((Acc)(a * sum[k]));
            const Acc next = fma(decay, h, local[k]);
            if (!wild[k] && a <= 0 && is_finite(h) && is_finite(next))
                h = next;
            else
                h = run_chunk(args, locate_piece(args, sequence, chunk + k), channel, state, a, h);
        }
    }
}

template <typename Acc> __global__ void carry_kernel(const __grid_constant__ rl_s6_args args)
{
    let_later_start();
    await_earlier();
    const int64_t per_sequence = args.channels * args.states, count = args.sequences * per_sequence;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += stride) {
        const int64_t sequence = k / per_sequence, rest = k - sequence * per_sequence;
        carry_state<Acc>(args, sequence, rest / args.states, rest % args.states);
    }
}

} // namespace

const void *rl_s6_carry_kernel(bool f64)
{
    return f64 ? kernel_address<carry_kernel<double>>() : kernel_address<carry_kernel<float>>();
}
