/*
 * The scan by panels in shared memory, for tensors that the copy engine cannot move: any strides, any mix of types.
 *
 *     block = CHANNELS channels of one sequence; blocks stride over what is beyond the grid
 *     panel = STEPS steps of these
 *
 * All threads load and store, each tensor along its contiguous axis; the first CHANNELS walk a channel each.  The
 * next panel's loads are issued before the walk of this one.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_panel.cuh"

namespace
{

constexpr int CHANNELS = RL_SCAN_PANEL_MANY, THREADS = rl_scan_panel_threads(CHANNELS);
constexpr int GROUP = 8; /* steps in registers at a time */

/* A thread's elements of a panel of one tensor: (channel, step), then on by (channels, steps), EACH in all. */
template <typename N> struct Share {
    typedef scan_panel::Panel<N, CHANNELS> Panel;
    static constexpr int STEPS = Panel::STEPS, EACH = Panel::EACH;
    static_assert(STEPS <= THREADS && CHANNELS <= THREADS, "one turn of the threads covers a row");

    const rl_scan_view &view;
    int channel, step, channels, steps;
    int64_t at, stride;

    /* base: where the first panel begins. */
    __device__ Share(const rl_scan_view &view, int64_t base) : view(view)
    {
        const bool along = view.step == 1 || view.step == -1;
        channel = along ? threadIdx.x / STEPS : threadIdx.x % CHANNELS;
        step = along ? threadIdx.x % STEPS : threadIdx.x / CHANNELS;
        channels = along ? THREADS / STEPS : 0;
        steps = along ? 0 : THREADS / CHANNELS;
        at = base + step * view.step + channel * view.channel;
        stride = steps * view.step + channels * view.channel;
    }
    __device__ int count(int64_t left, int64_t channels_left) const
    {
        const int steps_here = left < STEPS ? (int)left : STEPS;
        const int channels_here = channels_left < CHANNELS ? (int)channels_left : CHANNELS;
        if (step >= steps_here || channel >= channels_here) return 0;
        return channels ? (channels_here - channel - 1) / channels + 1 : (steps_here - step - 1) / steps + 1;
    }
    /* Elements that do not exist become 0. */
    template <typename T> __device__ void load(N (&value)[EACH], int64_t left, int64_t channels_left) const
    {
        const int here = view.data ? count(left, channels_left) : 0;
        if (here < EACH) {
#pragma unroll
            for (int k = 0; k < EACH; k++) value[k] = N{};
        }
        if (here == 0) return;
        if constexpr (__is_same(T, void))
            load_steps(value, view.data, view.dtype, at, stride, here);
        else
            load_steps_as<T>(value, view.data, at, stride, here);
    }
    __device__ void put(const N (&value)[EACH], Panel &panel) const
    {
#pragma unroll
        for (int k = 0; k < EACH; k++) panel.at[channel + k * channels][step + k * steps] = value[k];
    }
    template <typename T> __device__ void store(const Panel &panel, int64_t left, int64_t channels_left) const
    {
        N value[EACH];
        if (!view.data) return;
#pragma unroll
        for (int k = 0; k < EACH; k++) value[k] = panel.at[channel + k * channels][step + k * steps];
        if constexpr (__is_same(T, void))
            store_steps(value, view.data, view.dtype, at, stride, count(left, channels_left));
        else
            store_steps_as<T>(value, view.data, at, stride, count(left, channels_left));
    }
    __device__ void advance()
    {
        at += STEPS * view.step;
    }
};

/* T: the type of all tensors over time, or void where they have several. */
template <typename T, typename N, bool BACKWARD> struct Block {
    typedef ::Share<N> Share;
    typedef scan_panel::Panels<N, CHANNELS, BACKWARD> Panels;
    static constexpr int STEPS = Share::STEPS, EACH = Share::EACH;

    const rl_scan_args &args;
    Panels &panels;
    Span span;
    int64_t channels_left;
    Share a, input, before, output, decay;
    scan_panel::Walker<N, CHANNELS, BACKWARD, GROUP> walker;
    N raw_a[EACH], raw_input[EACH], raw_before[BACKWARD ? EACH : 1];

    __device__ Block(const rl_scan_args &args, Panels &panels, int64_t sequence, int64_t channel)
        : args(args), panels(panels), span(args, sequence), channels_left(args.channels - channel),
          a(args.a, span.at(args.a, channel, args.down)), input(args.input, span.at(args.input, channel, args.down)),
          before(args.before, span.at(args.before, channel, args.down) + args.before.step),
          output(args.output, span.at(args.output, channel, args.down)),
          decay(args.decay, span.at(args.decay, channel, args.down)),
          walker{panels,
                 {args, sequence, threadIdx.x < channels_left && threadIdx.x < CHANNELS ? channel + threadIdx.x : 0}}
    {
    }
    __device__ void load(int64_t left)
    {
        a.template load<T>(raw_a, left, channels_left);
        input.template load<T>(raw_input, left, channels_left);
        if constexpr (BACKWARD) before.template load<T>(raw_before, left - 1, channels_left);
        a.advance();
        input.advance();
        if (BACKWARD) before.advance();
    }
    __device__ void put()
    {
        a.put(raw_a, panels.a);
        input.put(raw_input, panels.input);
        if constexpr (BACKWARD) before.put(raw_before, panels.before);
    }

    __device__ void store(int64_t left)
    {
        output.template store<T>(panels.input, left, channels_left);
        output.advance();
        if constexpr (BACKWARD) {
            decay.template store<T>(panels.before, left, channels_left);
            decay.advance();
        }
    }

    /* Each turn loads a panel, and meanwhile walks the one before. */
    __device__ void run()
    {
        int64_t left = span.count + STEPS; /* of the panel to walk, which the first turn does not have */
#pragma unroll 1
        while (left > 0) {
            const bool walks = left <= span.count, loads = left > STEPS;
            if (loads) load(left - STEPS);
            if (walks) {
                if (threadIdx.x < CHANNELS) walker.walk(left);
                __syncthreads(); /* the panel is walked */
                store(left);
            }
            if (loads) {
                __syncthreads(); /* the panel before is stored */
                put();
                __syncthreads(); /* the next is filled */
            }
            left -= STEPS;
        }
    }
};

template <typename T, typename N, bool BACKWARD>
__global__ void __launch_bounds__(THREADS, sizeof(N) == 4 ? 2 : 1)
    panel_kernel(const __grid_constant__ rl_scan_args args)
{
    __shared__ scan_panel::Panels<N, CHANNELS, BACKWARD> panels;
    let_later_start();
    await_earlier();
    const int64_t blocks = (args.channels - 1) / CHANNELS + 1, tasks = args.sequences * blocks;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t sequence = args.sequences == 1 ? 0 : task / blocks;
        const int64_t channel = (task - sequence * blocks) * CHANNELS;
        Block<T, N, BACKWARD> block(args, panels, sequence, channel);
        block.run();
        if (threadIdx.x < CHANNELS && threadIdx.x < block.channels_left)
            block.walker.leave(args, block.span, sequence, channel + threadIdx.x);
    }
}

template <typename T, typename N> const void *pick_as(bool backward)
{
    return backward ? kernel_address<panel_kernel<T, N, true>>() : kernel_address<panel_kernel<T, N, false>>();
}

template <typename T> const void *pick(bool mixed, bool backward)
{
    typedef typename Accumulated<T>::type N;
    return mixed ? pick_as<void, N>(backward) : pick_as<T, N>(backward);
}

} // namespace

const void *rl_scan_panel_kernel(rill_dtype activations, bool mixed, bool backward)
{
    switch (activations) {
    case RILL_F64:
        return pick<double>(mixed, backward);
    case RILL_F32:
        return pick<float>(mixed, backward);
    case RILL_BF16:
        return pick<bf16>(mixed, backward);
    case RILL_F16:
        return pick<f16>(mixed, backward);
    case RILL_C64:
        return pick_as<Complex<float>, Complex<float>>(backward);
    default:
        return pick_as<Complex<double>, Complex<double>>(backward);
    }
}
