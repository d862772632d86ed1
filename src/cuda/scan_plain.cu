/*
 * The scan for anything: any strides, any mix of types, sequences and channels of any number.
 *
 *     thread = one channel of one sequence, channels fastest; threads stride over what is beyond the grid
 *     time   = serial, STEPS at a time: their loads are issued together, and hide behind those of other warps
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_chain.cuh"
#include "scan_kernels.h"

namespace
{

constexpr int THREADS = RL_SCAN_PLAIN_THREADS;

/* Long sequences have 16 32-bit words of each tensor in flight a thread, short ones more threads. */
constexpr int LONG_WORDS = 16, SHORT_WORDS = 4;

template <typename N, int STEPS> struct Forward {
    const rl_scan_args &args;
    int64_t a, b, h;
    Chain<N> chain;

    __device__ Forward(const rl_scan_args &args, const Span &span, int64_t sequence, int64_t channel)
        : args(args), a(span.at(args.a, channel, args.down)), b(span.at(args.input, channel, args.down)),
          h(span.at(args.output, channel, args.down)), chain(args, sequence, channel)
    {
    }
    __device__ void run(int64_t left)
    {
        N decay[STEPS] = {}, value[STEPS] = {};
        load_steps(decay, args.a.data, args.a.dtype, a, args.a.step, left);
        load_steps(value, args.input.data, args.input.dtype, b, args.input.step, left);
        chain.template forward<false>(decay, value, 0, left);
        store_steps(value, args.output.data, args.output.dtype, h, args.output.step, left);
        a += STEPS * args.a.step;
        b += STEPS * args.input.step;
        h += STEPS * args.output.step;
    }
};

template <typename N, int STEPS> struct Backward {
    const rl_scan_args &args;
    int64_t a, dh, before, db, da;
    Chain<N> chain;

    __device__ Backward(const rl_scan_args &args, const Span &span, int64_t sequence, int64_t channel)
        : args(args), a(span.at(args.a, channel, args.down)), dh(span.at(args.input, channel, args.down)),
          before(span.at(args.before, channel, args.down) + args.before.step),
          db(span.at(args.output, channel, args.down)), da(span.at(args.decay, channel, args.down)),
          chain(args, sequence, channel)
    {
    }
    __device__ void run(int64_t left)
    {
        N decay[STEPS] = {}, g[STEPS] = {}, h[STEPS] = {};
        load_steps(decay, args.a.data, args.a.dtype, a, args.a.step, left);
        if (args.input.data) load_steps(g, args.input.data, args.input.dtype, dh, args.input.step, left);
        if (args.decay.data) load_steps(h, args.before.data, args.before.dtype, before, args.before.step, left - 1);
        chain.template backward<false>(decay, g, 0, left);
        if (args.output.data) store_steps(g, args.output.data, args.output.dtype, db, args.output.step, left);
        if (args.decay.data) {
            chain.template differentiate<false>(decay, g, h, left);
            store_steps(h, args.decay.data, args.decay.dtype, da, args.decay.step, left);
        }
        a += STEPS * args.a.step;
        dh += STEPS * args.input.step;
        before += STEPS * args.before.step;
        db += STEPS * args.output.step;
        da += STEPS * args.decay.step;
    }
};

template <typename Walk, typename N, int STEPS>
__device__ void walk(const rl_scan_args &args, int64_t sequence, int64_t channel)
{
    const Span span(args, sequence);
    if (span.count == 0) {
        pass_on<N>(args, sequence, channel);
        return;
    }
    Walk one(args, span, sequence, channel);
    for (int64_t left = span.count; left > 0; left -= STEPS) one.run(left);
    store_state(args.leave, sequence, channel, one.chain.state);
}

template <typename Walk, typename N, int STEPS>
__global__ void __launch_bounds__(THREADS, STEPS * sizeof(N) == 4 * LONG_WORDS ? 2 : 5)
    plain_kernel(const __grid_constant__ rl_scan_args args)
{
    let_later_start();
    await_earlier();
    const int64_t all = args.sequences * args.channels, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += stride) {
        int64_t sequence;
        if (all <= UINT32_MAX) /* a much shorter division */
            sequence = (uint32_t)k / (uint32_t)args.channels;
        else
            sequence = k / args.channels;
        walk<Walk, N, STEPS>(args, sequence, k - sequence * args.channels);
    }
}

template <typename N, int STEPS> const void *pick_direction(bool backward)
{
    return backward ? kernel_address<plain_kernel<Backward<N, STEPS>, N, STEPS>>()
                    : kernel_address<plain_kernel<Forward<N, STEPS>, N, STEPS>>();
}

template <typename N> const void *pick(bool backward, bool is_short)
{
    constexpr int words = sizeof(N) / 4, most = LONG_WORDS / words, least = (SHORT_WORDS + words - 1) / words;
    return is_short ? pick_direction<N, least>(backward) : pick_direction<N, most>(backward);
}

} // namespace

const void *rl_scan_plain_kernel(rill_dtype activations, bool backward, bool is_short)
{
    switch (activations) {
    case RILL_F64:
        return pick<double>(backward, is_short);
    case RILL_C64:
        return pick<Complex<float>>(backward, is_short);
    case RILL_C128:
        return pick<Complex<double>>(backward, is_short);
    default:
        return pick<float>(backward, is_short);
    }
}
