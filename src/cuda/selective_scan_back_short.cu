/*
 * The gradients of a few short sequences of up to 16 states: two kernels, where launches and latency are all the
 * cost.  A block takes a whole sequence of two channels of one group, so that a warp is a step of both:
 *
 *     lane = (channel, state)      16 lanes each
 *
 * and holds all of time in shared memory.  What runs along time, one warp forward and one back, is two roundings a
 * step; decays before it and sums after it take all warps.  Everything is in the plain loop's own order, so that no
 * value needs another way.  The second kernel sums over blocks and sequences; or blocks come in clusters, which add
 * up their dB and dC, and the caller's next kernel does the rest.
 */
#include <machine/cluster.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "s6.cuh"
#include "s6_back_kernels.h"
#include "selective_scan_back_slopes.cuh"

namespace
{

constexpr int PAIR = RL_S6_BACK_SHORT_CHANNELS, STATES = RL_S6_BACK_SHORT_STATES, LANES = PAIR * STATES;
constexpr int THREADS = RL_S6_BACK_SHORT_THREADS, WARPS = THREADS / 32, MATES = RL_S6_BACK_SHORT_MATES;
template <typename Acc>
constexpr int AHEAD_OF = sizeof(Acc) == 4 ? 8 : 4; /* steps whose numbers are loaded together */

#include "selective_scan_back_short_room.cuh"

#include "selective_scan_back_short_inputs.cuh"

/* `floats`: all tensors by time are float32. */
template <typename Acc, bool floats> struct Short {
    static constexpr int AHEAD = AHEAD_OF<Acc>;
    using Group = GroupOf<Acc>;

    const rl_s6_back_args &args;
    const Room<Acc> room;
    Piece piece;
    int64_t block, channel, group; /* of all pairs; the pair's first channel */
    int channels, steps;           /* of the pair that exist */
    int lane, warp, own, state;    /* the thread's: `own` is its channel of the pair */
    bool exists;                   /* its channel and state do */
    Acc a, start;                  /* A, and the state before the first step */
    Acc bias, skip;                /* of the channel whose steps the thread prepares and finishes */

    /* Before the wait for earlier kernels: what there is to find without reading. */
    __device__ Short(const rl_s6_back_args &args, const Room<Acc> &room, int64_t task) : args(args), room(room)
    {
        const rl_s6_args &scan = args.scan;
        const int64_t sequence = (int)task / (int)scan.blocks; /* there are few */
        if (scan.offsets) await_earlier();
        block = task - sequence * scan.blocks;
        group = (int)block / (int)scan.blocks_per_group;
        const int64_t in_group = (block - group * scan.blocks_per_group) * PAIR,
                      left = scan.group_channels - in_group;
        channel = group * scan.group_channels + in_group;
        channels = left < PAIR ? (int)left : PAIR;
        piece = locate_piece(scan, sequence, 0);
        steps = (int)piece.count;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        own = lane / STATES;
        state = lane % STATES;
        exists = own < channels && state < scan.states;
    }

    __device__ void load_constants()
    {
        const rl_s6_args &scan = args.scan;
        static_assert(THREADS / 2 % PAIR == 0, "a thread keeps to one channel");
        const int of = threadIdx.x % PAIR;
        a = exists ? ((const Acc *)scan.A)[(channel + own) * scan.A_channel + state * scan.A_state] : Acc(0);
        bias = of < channels ? load_vector(scan.bias, of) : Acc(0);
        skip = of < channels ? load_vector(scan.D, of) : Acc(0);
        start = exists ? load_state(scan.h_init) : Acc(0);
    }

    __device__ static Acc load_number(const rl_s6_view &view, int64_t at)
    {
        return load_any<Acc>(view.data, floats ? (int)RILL_F32 : view.dtype, at);
    }
    __device__ int64_t place_in(const rl_s6_state &view) const
    {
        return piece.sequence * view.sequence + (channel + own) * view.channel + state * view.state;
    }
    __device__ Acc load_state(const rl_s6_state &view) const
    {
        return view.data ? load_any<Acc>(view.data, view.dtype, place_in(view)) : Acc(0);
    }
    __device__ int64_t place_of(const rl_s6_view &view, int t, int of) const
    {
        return first_row(args.scan, view, piece) + t * view.step + (channel + of) * view.lane;
    }
    __device__ Acc load(const rl_s6_view &view, int t, int of) const
    {
        return load_number(view, place_of(view, t, of));
    }
    __device__ int64_t place_of_input(const rl_s6_view &view, int t, int of) const
    {
        return first_row(args.scan, view, piece) + t * view.step + group * view.group + of * view.lane;
    }
    __device__ Acc load_vector(const rl_s6_vector &vector, int of) const
    {
        return vector.data ? ((const Acc *)vector.data)[(channel + of) * vector.stride] : Acc(0);
    }

    __device__ void size_step(Step<Acc> &step, Acc raw) const
    {
        step.delta = raw;
        step.slope = 1;
        if (args.scan.softplus) soften(raw, step.delta, step.slope);
        if (!args.clamps) return;
        const Acc low = (Acc)args.scan.delta_min, high = (Acc)args.scan.delta_max, value = step.delta;
        if (value < low || value > high) step.slope = -1;
        step.delta = value < low ? low : value > high ? high : value;
    }

    /* Half of the threads take the steps, half B and C, so that all of it is on its way together. */
    __device__ void prepare() const
    {
        constexpr int HALF = THREADS / 2;
        if ((int)threadIdx.x < HALF)
            prepare_steps<HALF>(threadIdx.x);
        else
            prepare_inputs<HALF>(threadIdx.x - HALF);
    }
    template <int stride> __device__ void prepare_inputs(int from) const
    {
        constexpr int EACH = stride / STATES; /* steps from one of the thread's to the next */
        const int of = from % STATES, first = from / STATES;
        const bool there = of < args.scan.states, flows = there && args.dy.data;
        int64_t B = place_of_input(args.scan.B, first, of), C = place_of_input(args.scan.C, first, of);
        for (int t = first; t < steps; t += AHEAD * EACH) {
            Acc b[AHEAD], c[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++, B += EACH * args.scan.B.step, C += EACH * args.scan.C.step) {
                const bool exists = t + k * EACH < steps;
                b[k] = exists && there ? load_number(args.scan.B, B) : Acc(0);
                c[k] = exists && flows ? load_number(args.scan.C, C) : Acc(0);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int at = (t + k * EACH) * STATES + of;
                if (t + k * EACH < steps) room.B[at] = b[k], room.C[at] = c[k];
            }
        }
    }
    template <int stride> __device__ void prepare_steps(int from) const
    {
        for (int i = from; i < steps * PAIR; i += stride) {
            const int t = i / PAIR, of = i % PAIR;
            Step<Acc> step = {};
            if (of < channels) {
                const Acc raw = load(args.scan.delta, t, of), dy = args.dy.data ? load(args.dy, t, of) : Acc(0);
                step.x = load(args.scan.x, t, of);
                const bool gates = args.scan.z.data && args.dy.data;
                size_step(step, raw + bias);
                step.input = step.delta * step.x;
                step.du = gates ? dy * gate(load(args.scan.z, t, of)) : dy;
            }
            room.step[i] = step;
        }
    }

    /* What each step does to a state, and what it adds. */
    __device__ void find_decays() const
    {
#pragma unroll 4
        for (int t = warp; t < steps; t += WARPS) {
            const Acc b = room.B[t * STATES + state], c = room.C[t * STATES + state];
            const Step<Acc> &step = room.step[t * PAIR + own];
            const int at = t * LANES + lane;
            room.decay[at] = exponential(step.delta * a);
            room.h[at] = exists ? step.input * b : Acc(0);
            room.G[at] = exists ? step.du * c : Acc(0);
        }
    }

    __device__ bool is_fresh(int t) const
    {
        return t == 0 && !args.scan.h_init.data;
    }

    /* One warp: the states after all steps. */
    __device__ void run_forward() const
    {
        Acc h = start;
        int t = 0;
        Group next;
        if (t + AHEAD <= steps) next = Group(room.decay, room.h, lane, LANES);
#pragma unroll 1
        for (; t + AHEAD <= steps; t += AHEAD) {
            const int at = t * LANES + lane;
            const Group group = next;
            if (t + 2 * AHEAD <= steps) next = Group(room.decay, room.h, at + AHEAD * LANES, LANES);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                h = is_fresh(t + k) ? group.added[k] : advance(group.decay[k], h, group.added[k]);
                room.h[at + k * LANES] = h;
            }
        }
        for (; t < steps; t++) {
            const Acc added = room.h[t * LANES + lane];
            h = is_fresh(t) ? added : advance(room.decay[t * LANES + lane], h, added);
            room.h[t * LANES + lane] = h;
        }
    }

    /* Another: the gradients of those states, and of the one before the first, if there is one. */
    __device__ void run_back() const
    {
        Acc G = exists ? load_state(args.dh_final) : Acc(0);
        int t = steps - 1;
        Group next;
        if (t + 1 >= AHEAD) next = Group(room.decay, room.G, t * LANES + lane, -LANES);
#pragma unroll 1
        for (; t + 1 >= AHEAD; t -= AHEAD) {
            const int at = t * LANES + lane;
            const Group group = next;
            if (t + 1 >= 2 * AHEAD) next = Group(room.decay, room.G, at - AHEAD * LANES, -LANES);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (args.dy.data) G += group.added[k];
                room.G[at - k * LANES] = G;
                G = product(group.decay[k], G);
            }
        }
        for (; t >= 0; t--) {
            if (args.dy.data) G += room.G[t * LANES + lane];
            room.G[t * LANES + lane] = G;
            G = product(room.decay[t * LANES + lane], G);
        }
        if (args.dh_init.data && exists && steps > 0)
            store_any(args.dh_init.data, args.dh_init.dtype, place_in(args.dh_init), G);
    }

    /* All sums over states and over the pair; leaves the warp's part of dA. */
    __device__ void sum_steps() const
    {
        const bool has_dy = args.dy.data;
        Acc dA = 0;
#pragma unroll 2
        for (int t = warp; t < steps; t += WARPS) {
            const Acc b = room.B[t * STATES + state], c = room.C[t * STATES + state];
            const Step<Acc> step = room.step[t * PAIR + own];
            const int at = t * LANES + lane;
            const bool fresh = is_fresh(t);
            const Acc h = room.h[at], G = room.G[at], before = t > 0 ? room.h[at - LANES] : start;
            const Acc held = fresh || !exists ? Acc(0) : room.decay[at] * before;
            Along<Acc> along = {};
            if (exists) {
                along.B = G * b;
                along.delta = G * (fresh ? b * step.x : product(a, held) + product(b, step.x));
                along.output = c * h;
                if (!fresh) dA += product(G, step.delta * held);
            }
            along.B = sum_states(along.B);
            along.delta = sum_states(along.delta);
            if (args.needs_outputs) along.output = sum_states(along.output);
            if (state == 0) room.along[t * PAIR + own] = along;
            if (args.bc_parts)
                share_inputs(*this, t, exists ? G * step.input : Acc(0), exists && has_dy ? step.du * h : Acc(0));
        }
        room.shares[warp * LANES + lane] = dA;
    }

    __device__ void store(const rl_s6_view &view, int t, int of, Acc value) const
    {
        if (view.data) store_any(view.data, floats ? (int)RILL_F32 : view.dtype, place_of(view, t, of), value);
    }

    /* dx, ddelta, dz of a step of a channel; adds to dD and ddelta_bias. */
    __device__ void finish_step(int t, int of, Acc &dD, Acc &dbias) const
    {
        const Step<Acc> &step = room.step[t * PAIR + of];
        const Along<Acc> &along = room.along[t * PAIR + of];
        const bool skips = args.dy.data && args.scan.D.data;
        const Acc ddelta = step.slope < 0 ? Acc(0) : step.slope * along.delta;
        Acc dx = step.delta * along.B, dz = 0;
        dbias += ddelta;
        if (skips) {
            dx += step.du * skip;
            dD += step.du * step.x;
        }
        if (args.needs_outputs)
            dz = load(args.dy, t, of) * (skips ? along.output + skip * step.x : along.output) *
                 gate_slope(load(args.scan.z, t, of));
        store(args.dx, t, of, dx);
        store(args.ddelta, t, of, ddelta);
        store(args.dz, t, of, dz);
    }

    /* Of a channel of the pair, over the lanes that have it; those of even numbers have the first. */
    __device__ static Acc sum_lanes(Acc value)
    {
#pragma unroll
        for (int half = 16; half >= PAIR; half /= 2) value += __shfl_xor_sync(~0u, value, half);
        return value;
    }

    __device__ int64_t part(int64_t numbers) const
    {
        return (piece.sequence * args.scan.channels + channel) * numbers;
    }
    __device__ void store_dA() const
    {
        if (warp != 0 || !exists) return;
        Acc sum = 0;
        for (int k = 0; k < WARPS; k++) sum += room.shares[k * LANES + lane];
        ((Acc *)args.A_parts)[part(args.scan.states) + own * args.scan.states + state] = sum;
    }

    __device__ void finish() const
    {
        Acc dD = 0, dbias = 0;
        for (int i = threadIdx.x; i < steps * PAIR; i += THREADS)
            if (i % PAIR < channels) finish_step(i / PAIR, i % PAIR, dD, dbias);
        dD = sum_lanes(dD);
        dbias = sum_lanes(dbias);
        store_dA();
        __syncthreads(); /* the shares of dA have been read */
        if (lane < PAIR) {
            room.shares[(warp * 2 + 0) * PAIR + lane] = dD;
            room.shares[(warp * 2 + 1) * PAIR + lane] = dbias;
        }
        __syncthreads(); /* all warps' are there */
        if (threadIdx.x >= 2 * PAIR || (int)threadIdx.x % PAIR >= channels) return;
        Acc sum = 0;
        for (int k = 0; k < WARPS; k++) sum += room.shares[k * 2 * PAIR + threadIdx.x];
        Acc *const to = (Acc *)(threadIdx.x < PAIR ? args.D_parts : args.bias_parts);
        to[part(1) + threadIdx.x % PAIR] = sum;
    }

    __device__ void run()
    {
        await_earlier();
        let_later_start(); /* which may count on what this kernel has waited for */
        load_constants();
        prepare();
        a = finite_range(a);
        __syncthreads(); /* the steps are there */
        find_decays();
        __syncthreads(); /* and what they do to states */
        if (warp == 0) run_forward();
        if (warp == 1) run_back();
        __syncthreads(); /* states and gradients are there */
        sum_steps();
        meet_mates<Acc>(*this); /* their sums are */
        finish();
        leave_mates(*this);
        if (piece.empty && warp == 0 && exists && args.dh_init.data)
            hand_on_gradient<Acc>(args, place_in(args.dh_init), place_in(args.dh_final));
    }
};

template <typename Acc, bool floats>
__global__ void __launch_bounds__(THREADS) short_kernel(const __grid_constant__ rl_s6_back_args args)
{
    for (int64_t task = blockIdx.x; task < args.scan.tasks; task += gridDim.x) {
        Short<Acc, floats>(args, Room<Acc>(dynamic_shared, args.scan.length), task).run();
        __syncthreads(); /* before the next task takes the room */
    }
}

#include "selective_scan_back_short_sum.cuh"

} // namespace

const void *rl_s6_back_short_kernel(bool f64, bool floats)
{
    if (f64) return kernel_address<short_kernel<double, false>>();
    return floats ? kernel_address<short_kernel<float, true>>() : kernel_address<short_kernel<float, false>>();
}

const void *rl_s6_back_short_sums_kernel(bool f64)
{
    return f64 ? kernel_address<short_sums_kernel<double>>() : kernel_address<short_sums_kernel<float>>();
}

size_t rl_s6_back_short_shared(bool f64, int64_t length)
{
    const size_t numbers = (size_t)length * (3 * LANES + 2 * STATES + PAIR * 8) + WARPS * LANES;
    static_assert(sizeof(Step<float>) + sizeof(Along<float>) == 8 * sizeof(float), "no gaps");
    return numbers * (f64 ? sizeof(double) : sizeof(float));
}
