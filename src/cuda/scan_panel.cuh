/* A panel of the scan in shared memory: some steps of some channels, and how a thread walks its channel's. */
#ifndef RL_CUDA_SCAN_PANEL_CUH
#define RL_CUDA_SCAN_PANEL_CUH

#include "scan_chain.cuh"
#include "scan_kernels.h"

namespace scan_panel
{

/* 8 words a thread in the accumulation type; a channel is a row, padded by one access, so that neither filling nor
 * walking meets a bank often. */
template <typename N, int CHANNELS> struct Panel {
    static constexpr int THREADS = rl_scan_panel_threads(CHANNELS), EACH = 32 / sizeof(N),
                         STEPS = THREADS * EACH / CHANNELS, CHUNK = 16 / sizeof(N);
    struct alignas(16) Chunk {
        N lane[CHUNK];
    };
    N at[CHANNELS][STEPS + CHUNK];

    template <int GROUP> __device__ void read(N (&value)[GROUP], int channel, int first) const
    {
#pragma unroll
        for (int k = 0; k < GROUP; k += CHUNK) {
            const Chunk chunk = *(const Chunk *)&at[channel][first + k];
#pragma unroll
            for (int i = 0; i < CHUNK; i++) value[k + i] = chunk.lane[i];
        }
    }
    template <int GROUP> __device__ void write(const N (&value)[GROUP], int channel, int first)
    {
#pragma unroll
        for (int k = 0; k < GROUP; k += CHUNK) {
            Chunk chunk;
#pragma unroll
            for (int i = 0; i < CHUNK; i++) chunk.lane[i] = value[k + i];
            *(Chunk *)&at[channel][first + k] = chunk;
        }
    }
};

template <typename N, int CHANNELS, bool BACKWARD> struct Panels {
    Panel<N, CHANNELS> a, input;
};
template <typename N, int CHANNELS> struct Panels<N, CHANNELS, true> {
    Panel<N, CHANNELS> a, input, before;
};

/* A thread's channel.  Results take the places of input, and backward of before. */
template <typename N, int CHANNELS, bool BACKWARD, int GROUP> struct Walker {
    static constexpr int STEPS = Panel<N, CHANNELS>::STEPS;
    static_assert(STEPS % (2 * GROUP) == 0, "a turn of the walk is two groups");

    Panels<N, CHANNELS, BACKWARD> &panels;
    Chain<N> chain;

    /* A group of steps in registers; its reads do not wait for the writes of the group before. */
    struct Group {
        N a[GROUP], input[GROUP], before[BACKWARD ? GROUP : 1];
    };
    __device__ void read(Group &group, int first) const
    {
        const int channel = threadIdx.x, at = first < STEPS ? first : 0;
        panels.a.read(group.a, channel, at);
        panels.input.read(group.input, channel, at);
        if constexpr (BACKWARD) panels.before.read(group.before, channel, at);
    }
    __device__ void walk_group(Group &group, int first)
    {
        const int channel = threadIdx.x;
        if constexpr (BACKWARD) {
            chain.template backward<true>(group.a, group.input, 0, GROUP);
            chain.template differentiate<true>(group.a, group.input, group.before, GROUP);
            panels.before.write(group.before, channel, first);
        } else {
            chain.template forward<true>(group.a, group.input, 0, GROUP);
        }
        panels.input.write(group.input, channel, first);
    }
    /* Of the panel's steps those before `left`, where the sequence ends. */
    __device__ void walk(int64_t left)
    {
        Group now, next;
        read(now, 0);
#pragma unroll 1
        for (int first = 0; first < STEPS && first < left; first += 2 * GROUP) {
            read(next, first + GROUP);
            walk_group(now, first);
            read(now, first + 2 * GROUP);
            walk_group(next, first + GROUP);
        }
        if (left <= STEPS) finish((int)left - 1);
    }
    /*
     * What the sequence's last step leaves, since groups run on beyond it.  Backward it is the first in time, which
     * comes after h_init, or after nothing: then its decay was never read.
     */
    __device__ void finish(int last)
    {
        const int channel = threadIdx.x;
        const N a = panels.a.at[channel][last], result = panels.input.at[channel][last];
        chain.state = result;
        if constexpr (BACKWARD) {
            chain.state = dropped(conjugate(a), result);
            panels.before.at[channel][last] = kept(chain.has_start, decay_gradient(a, chain.start, result));
        }
    }
    __device__ void leave(const rl_scan_args &args, const Span &span, int64_t sequence, int64_t channel) const
    {
        if (span.count == 0)
            pass_on<N>(args, sequence, channel);
        else
            store_state(args.leave, sequence, channel, chain.state);
    }
};

} // namespace scan_panel

#endif
