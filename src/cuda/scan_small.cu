/*
 * The scan of small problems, whose time is that of a launch, one load, one walk and one store: the shortest way
 * there is through these.
 *
 *     block = FEW channels (x) of one sequence (y)
 *     panel = STEPS steps of these, most often all
 *
 * All threads load and store, each tensor along its contiguous axis; the first FEW walk a channel each.  A thread's
 * places are found in 32 bits, which the launcher has made sure of, and before the kernel ahead in the stream has
 * ended.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_panel.cuh"

namespace
{

constexpr int FEW = RL_SCAN_PANEL_FEW, THREADS = rl_scan_panel_threads(FEW);

/* A thread's elements of a panel of one tensor: some steps of a channel, or where time is contiguous the reverse. */
template <typename T, typename N> struct Share {
    typedef scan_panel::Panel<N, FEW> Panel;
    static constexpr int STEPS = Panel::STEPS, EACH = Panel::EACH;
    static_assert(STEPS <= THREADS, "one turn of the threads covers a row");

    T *data; /* the thread's first element in the panel */
    bool along;
    int channel, step, stride;
    int64_t next; /* the panel after */

    __device__ Share(const rl_scan_view &view, int64_t base)
        : along(view.step == 1 || view.step == -1), channel(along ? threadIdx.x / STEPS : threadIdx.x % FEW),
          step(along ? threadIdx.x % STEPS : threadIdx.x / FEW),
          stride(along ? (int)view.channel * (THREADS / STEPS) : (int)view.step * (THREADS / FEW)),
          next(view.step * STEPS)
    {
        data = view.data ? (T *)view.data + base + (step * (int)view.step + channel * (int)view.channel) : NULL;
    }
    /* Where the thread's k-th element is, along the axis that its elements share. */
    __device__ int place(int k) const
    {
        return along ? channel + k * (THREADS / STEPS) : step + k * (THREADS / FEW);
    }
    /* Its elements exist at places below. */
    __device__ int limit(int steps, int channels) const
    {
        if (!data) return 0;
        return along ? (step < steps ? channels : 0) : (channel < channels ? steps : 0);
    }
    __device__ void load(N (&value)[EACH], int steps, int channels) const
    {
        const int most = limit(steps, channels);
        T raw[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) raw[k] = place(k) < most ? data[k * stride] : T{};
#pragma unroll
        for (int k = 0; k < EACH; k++) value[k] = (N)widen(raw[k]);
    }
    __device__ N *in(N (*rows)[STEPS + Panel::CHUNK], int k) const
    {
        return along ? &rows[channel + k * (THREADS / STEPS)][step] : &rows[channel][step + k * (THREADS / FEW)];
    }
    __device__ void put(const N (&value)[EACH], Panel &panel) const
    {
#pragma unroll
        for (int k = 0; k < EACH; k++) *in(panel.at, k) = value[k];
    }
    __device__ void store(Panel &panel, int steps, int channels) const
    {
        const int most = limit(steps, channels);
        T value[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) value[k] = rounded<T>(*in(panel.at, k));
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (place(k) < most) data[k * stride] = value[k];
    }
    __device__ void advance()
    {
        if (data) data += next;
    }
};

template <typename T, typename N, bool BACKWARD> struct Block {
    static constexpr int STEPS = scan_panel::Panel<N, FEW>::STEPS, EACH = scan_panel::Panel<N, FEW>::EACH;
    static constexpr int GROUP = sizeof(N) == 4 ? 16 : 8; /* steps in registers at a time */
    typedef ::Share<T, N> Share;

    scan_panel::Panels<N, FEW, BACKWARD> &panels;
    const int channels;
    Share a, input, before, output, decay;
    N raw_a[EACH], raw_input[EACH], raw_before[BACKWARD ? EACH : 1];

    __device__ Block(const rl_scan_args &args, scan_panel::Panels<N, FEW, BACKWARD> &panels, const Span &span,
                     int64_t channel)
        : panels(panels), channels(args.channels - channel < FEW ? (int)(args.channels - channel) : FEW),
          a(args.a, span.at(args.a, channel, args.down)), input(args.input, span.at(args.input, channel, args.down)),
          before(args.before, span.at(args.before, channel, args.down) + args.before.step),
          output(args.output, span.at(args.output, channel, args.down)),
          decay(args.decay, span.at(args.decay, channel, args.down))
    {
    }
    /* left: steps of the sequence from the panel on. */
    __device__ void load(int left)
    {
        a.load(raw_a, left, channels);
        input.load(raw_input, left, channels);
        if constexpr (BACKWARD) before.load(raw_before, left - 1, channels);
        a.advance();
        input.advance();
        if (BACKWARD) before.advance();
    }
    __device__ void put()
    {
        a.put(raw_a, panels.a);
        input.put(raw_input, panels.input);
        if constexpr (BACKWARD) before.put(raw_before, panels.before);
        __syncthreads(); /* the panel is filled */
    }
    __device__ void store(int left)
    {
        output.store(panels.input, left, channels);
        output.advance();
        if constexpr (BACKWARD) {
            decay.store(panels.before, left, channels);
            decay.advance();
        }
    }
    __device__ void run(scan_panel::Walker<N, FEW, BACKWARD, GROUP> &walker, int left)
    {
        load(left);
        put();
#pragma unroll 1
        for (;; left -= STEPS) {
            if (left > STEPS) load(left - STEPS);
            if (threadIdx.x < FEW) walker.walk(left);
            __syncthreads(); /* the panel is walked */
            store(left);
            if (left <= STEPS) break;
            __syncthreads(); /* it is stored */
            put();
        }
    }
};

template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(THREADS) small_kernel(const __grid_constant__ rl_scan_args args)
{
    typedef typename Accumulated<T>::type N;
    typedef ::Block<T, N, BACKWARD> Block;
    __shared__ scan_panel::Panels<N, FEW, BACKWARD> panels;
    const int64_t sequence = blockIdx.y, channel = (int64_t)blockIdx.x * FEW, own = channel + threadIdx.x;
    const bool walks = threadIdx.x < FEW && own < args.channels;
    let_later_start();
    if (args.offsets) await_earlier();
    const Span span(args, sequence);
    Block block(args, panels, span, channel);
    await_earlier();
    scan_panel::Walker<N, FEW, BACKWARD, Block::GROUP> walker = {panels, {args, sequence, walks ? own : 0}};
    if (span.count > 0) block.run(walker, (int)span.count);
    if (walks) walker.leave(args, span, sequence, own);
}

template <typename T> const void *pick(bool backward)
{
    return backward ? kernel_address<small_kernel<T, true>>() : kernel_address<small_kernel<T, false>>();
}

} // namespace

const void *rl_scan_small_kernel(rill_dtype dtype, bool backward)
{
    switch (dtype) {
    case RILL_F64:
        return pick<double>(backward);
    case RILL_F32:
        return pick<float>(backward);
    case RILL_BF16:
        return pick<bf16>(backward);
    case RILL_F16:
        return pick<f16>(backward);
    case RILL_C64:
        return pick<Complex<float>>(backward);
    default:
        return pick<Complex<double>>(backward);
    }
}
