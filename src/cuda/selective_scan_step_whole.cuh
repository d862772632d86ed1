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

/* The slowest and the fastest of a thread's A, where all make states decay; else NaN. */
struct Range {
    float slow, fast;

    __device__ explicit Range(const Quad<float> &a) : slow(a.lane[0]), fast(a.lane[0])
    {
        bool decays = a.lane[0] <= 0;
#pragma unroll
        for (int k = 1; k < OWN; k++) {
            decays = decays && a.lane[k] <= 0;
            slow = fmaxf(slow, a.lane[k]);
            fast = fminf(fast, a.lane[k]);
        }
        if (!decays) slow = nanf("");
    }

    /* Whether all of 2^(scaled A) lie where rough decays do. */
    __device__ bool is_usual(float scaled) const
    {
        return scaled * slow <= -LASTING_16 / RL_S6_STEPS && scaled * fast >= -120.0f;
    }
};

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

/* Where a thread's sequences lie.  In place of what does not exist stands what does: no load waits for a question. */
template <typename T, typename U, typename Acc> struct Places {
    int there; /* sequences that exist, one at least */
    bool own;  /* the thread has states */
    const Acc *h[LANES], *a, *bias, *skip;
    const U *delta, *b[LANES], *c[LANES];
    const T *x, *z;

    __device__ Places(const rl_s6_args &args, int64_t sequence, int64_t channel, int lane)
        : there(args.sequences - sequence < LANES ? (int)(args.sequences - sequence) : LANES),
          own(lane * OWN < args.states)
    {
        const int64_t state = own ? lane * OWN : 0, mine = sequence + (lane < there ? lane : there - 1);
        const int64_t group = args.group_channels == args.channels ? 0 : channel / args.group_channels;
        h[0] =
            (const Acc *)args.h_init.data + sequence * args.h_init.sequence + channel * args.h_init.channel + state;
        b[0] = (const U *)args.B.data + sequence * args.B.batch + group * args.B.group + state;
        c[0] = (const U *)args.C.data + sequence * args.C.batch + group * args.C.group + state;
#pragma unroll
        for (int k = 1; k < LANES; k++) {
            h[k] = h[k - 1] + (k < there ? args.h_init.sequence : 0);
            b[k] = b[k - 1] + (k < there ? args.B.batch : 0);
            c[k] = c[k - 1] + (k < there ? args.C.batch : 0);
        }
        delta = (const U *)args.delta.data + mine * args.delta.batch + channel * args.delta.lane;
        x = (const T *)args.x.data + mine * args.x.batch + channel * args.x.lane;
        z = (const T *)args.z.data + mine * args.z.batch + channel * args.z.lane;
        a = (const Acc *)args.A + channel * args.A_channel + state;
        bias = (const Acc *)args.bias.data + channel * args.bias.stride;
        skip = (const Acc *)args.D.data + channel * args.D.stride;
    }
};

/* What a thread holds of its sequences: their states, and the rest of its own one. */
template <typename T, typename U, typename Acc> struct Held {
    const rl_s6_args &args;
    const int64_t channel, sequence;
    const int lane, there;
    const bool own;
    Quad<Acc> h[LANES], a;
    Quad<U> b[LANES], c[LANES];
    T x, z;
    U delta;
    Acc bias, skip;

    /* Issues every load; the states', which come from afar, first. */
    __device__ Held(const rl_s6_args &args, const Places<T, U, Acc> &at, int64_t sequence, int64_t channel, int lane)
        : args(args), channel(channel), sequence(sequence), lane(lane), there(at.there), own(at.own), h{}, z{},
          bias(0), skip(0)
    {
        if (args.h_init.data) {
#pragma unroll
            for (int k = 0; k < LANES; k++) h[k] = *(const Quad<Acc> *)at.h[k];
        }
        delta = *at.delta;
        x = *at.x;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            b[k] = *(const Quad<U> *)at.b[k];
            c[k] = *(const Quad<U> *)at.c[k];
        }
        a = *(const Quad<Acc> *)at.a;
        if (args.z.data) z = *at.z;
        if (args.bias.data) bias = *at.bias;
        if (args.D.data) skip = *at.skip;
    }

    /* The step of sequence k; returns the thread's part of y. */
    template <bool rough> __device__ Acc advance_states(int k, Acc step, Acc input)
    {
        Acc sum = 0;
        Quad<Acc> decay = {};
        if (!rough && args.h_init.data) decays_of(step, a, decay);
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const Acc added = input * (Acc)widen(b[k].get(j));
            if constexpr (rough)
                h[k].lane[j] = fma(rough_decay(step, a.lane[j]), h[k].lane[j], added);
            else /* nothing multiplies a state that is not there */
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

    /* All sequences; `exists`: the channel does. */
    __device__ void run(bool exists)
    {
        const StepSize<Acc> step_size(args);
#pragma unroll
        for (int k = 0; k < OWN; k++) a.lane[k] = finite_range(a.lane[k]);
        Acc step[] = {(Acc)widen(delta) + bias}, part[LANES] = {};
        step_size.any(step);
        const Acc value = widen(x), input = step[0] * value;
        Acc *final = (Acc *)args.h_final.data + channel * args.h_final.channel + lane * OWN;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
            const Acc its_step = __shfl_sync(~0u, step[0], k, LANES), its_input = __shfl_sync(~0u, input, k, LANES);
            bool rough = false;
            if constexpr (sizeof(T) == 2) { /* does not show what rough decays bring */
                const Acc scaled = its_step * Acc(1.44269504088896341);
                rough = args.h_init.data && Range(a).is_usual(scaled);
                if (rough) part[k] = advance_states<true>(k, scaled, its_input);
            }
            if (!rough) part[k] = advance_states<false>(k, its_step, its_input);
            if (!own) part[k] = 0;
            if (own && exists && k < there && args.h_final.data)
                store_whole(final + (sequence + k) * args.h_final.sequence, h[k]);
        }
        Acc sum = add_up(part);
        if (args.D.data) sum = fma(skip, value, sum);
        if (args.z.data) sum *= gate((Acc)widen(z));
        if (exists && lane < there)
            ((T *)args.y.data)[(sequence + lane) * args.y.batch + channel * args.y.lane] = narrow<T>(sum);
    }
};

/* Blocks of a multiprocessor: as many as leave a thread registers for all that it holds.  U is that of B and C. */
template <typename U, typename Acc> constexpr int WHOLE_BLOCKS = sizeof(Acc) == 8 ? 4 : sizeof(U) == 4 ? 6 : 8;

template <typename T, typename U, typename Acc>
__global__ void __launch_bounds__(WHOLE_THREADS, WHOLE_BLOCKS<U, Acc>)
    step_whole_kernel(const __grid_constant__ rl_s6_args args)
{
    let_later_start();
    const int lane = threadIdx.x % LANES;
    const int64_t channel = (int64_t)blockIdx.x * (WHOLE_THREADS / LANES) + threadIdx.x / LANES;
    const int64_t rows = (int64_t)gridDim.y * LANES, here = channel < args.channels ? channel : 0;
    bool awaits = true;
    for (int64_t sequence = (int64_t)blockIdx.y * LANES; sequence < args.sequences; sequence += rows) {
        const Places<T, U, Acc> at(args, sequence, here, lane); /* before the wait, where it costs nothing */
        if (awaits) await_earlier();
        awaits = false;
        Held<T, U, Acc>(args, at, sequence, here, lane).run(channel < args.channels);
    }
}

} // namespace selective_scan_step

#endif
