/* A channel of the scan in registers: what is carried from step to step, and some steps at a time, in either
 * direction. */
#ifndef RL_CUDA_SCAN_CHAIN_CUH
#define RL_CUDA_SCAN_CHAIN_CUH

#include "scan_recurrence.cuh"

/*
 * Every kernel that walks time in the loop's own order does so through these, so their bits are the same.  WHOLE: all
 * of the STEPS steps are run, and the last of them is not the sequence's; else those from `from` on, and before
 * `left`, which is where the sequence ends.
 */
template <typename N> struct Chain {
    N state;        /* backward: conj(a) g of the step before, which the next one adds */
    N start;        /* backward: h_init */
    bool entered;   /* forward: there is a state for the next step to multiply */
    bool has_start; /* backward: h_init is given */

    __device__ Chain(const rl_scan_args &args, int64_t sequence, int64_t channel)
        : state(load_state<N>(args.enter, sequence, channel)), start(load_state<N>(args.start, sequence, channel)),
          entered(args.enter.data), has_start(args.start.data)
    {
    }

    /* b becomes h.  The decay of a first step that nothing enters is not looked at. */
    template <bool WHOLE, int STEPS> __device__ void forward(N (&a)[STEPS], N (&b)[STEPS], int from, int64_t left)
    {
        if (WHOLE) {
            a[0] = kept(entered, a[0]);
            entered = true;
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (WHOLE) {
                state = b[k] = advance(a[k], state, b[k]);
            } else if (k >= from && k < left) {
                state = b[k] = advance(kept(entered, a[k]), state, b[k]);
                entered = true;
            }
        }
    }

    /* dh becomes g. */
    template <bool WHOLE, int STEPS>
    __device__ void backward(const N (&a)[STEPS], N (&dh)[STEPS], int from, int64_t left)
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (!WHOLE && (k < from || k >= left)) continue;
            dh[k] = add(dh[k], state);
            state = dropped(conjugate(a[k]), dh[k]);
        }
    }

    /* The h before each step become the gradients of the decays.  Before the first in time, run last, is h_init. */
    template <bool WHOLE, int STEPS>
    __device__ void differentiate(const N (&a)[STEPS], const N (&g)[STEPS], N (&before)[STEPS], int64_t left) const
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            const bool first = !WHOLE && k == left - 1;
            const N gradient = decay_gradient(a[k], first ? start : before[k], g[k]);
            before[k] = kept(!first || has_start, gradient);
        }
    }
};

#endif
