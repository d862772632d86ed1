/* The carriers of the strips' scan: blocks that find, one after the other, the states which enter groups of tiles. */
#ifndef RL_CUDA_SCAN_STRIP_CARRIER_CUH
#define RL_CUDA_SCAN_STRIP_CARRIER_CUH

#include "scan_strip_sum.cuh"

namespace
{

/*
 * The states that enter the groups of some chains' tiles, one after the other.  A warp has a strip of each chain; a
 * thread, of a channel, one of the next few groups' summaries, so that these are on their way before they are needed.
 */
struct Carrier {
    const rl_strip_args &args;
    int lane, window, mine; /* groups at a time, and which of them the thread's is */
    int chain;
    int64_t groups; /* but the last one, which nothing follows */
    bool has_any;
    const Word *joined;        /* of the thread's group */
    const double *end;         /* of the first group's last tile */
    unsigned long long *state; /* that leaves the thread's group */

    __device__ explicit Carrier(const rl_strip_args &args)
        : args(args), lane((int)threadIdx.x % 32), groups(args.groups - 1)
    {
        const int count = (args.chains - (int)blockIdx.x + args.carriers - 1) / args.carriers;
        for (window = 8; window * count > 8;) window /= 2;
        mine = lane / 4 % window;
        chain = (int)blockIdx.x + lane / 4 / window * args.carriers;
        has_any = chain < args.chains && channel() < args.scan.channels;
        const int64_t own = (int)threadIdx.x / 32 * 4 + lane % 4;
        joined = (const Word *)args.joined + (chain * groups + mine) * LANES + own;
        end = (const double *)args.ends + (chain * args.tiles + args.group_tiles - 1) * LANES + own;
        state = (unsigned long long *)args.states + (chain * (groups + 1) + mine + 1) * LANES + own;
    }
    __device__ int each() const
    {
        return args.chains / (int)args.scan.sequences;
    }
    __device__ int channel() const
    {
        return chain % each() * LANES + (int)threadIdx.x / 32 * 4 + lane % 4;
    }
    __device__ bool is_there(int64_t group) const
    {
        return has_any && group + mine < groups;
    }

    __device__ void run()
    {
        double carried = has_any ? load_state<float>(args.scan.enter, chain / each(), channel()) : 0;
        if (has_any && mine == 0) put_word(state - LANES, carried);
        unsigned long long P = 0, S = 0, next_P = 0, next_S = 0;
        if (is_there(0)) load_relaxed((const unsigned long long *)joined, P, S);
        for (int64_t group = 0; group < groups; group += window) {
            const Word *const next = joined + window * LANES;
            if (is_there(group + window)) load_relaxed((const unsigned long long *)next, next_P, next_S);
#pragma unroll 1
            for (int k = 0; k < window && group + k < groups; k++, end += args.group_tiles * LANES) {
                for (;;) {
                    const bool misses = is_there(group) && (P == MISSING || S == MISSING);
                    if (!__any_sync(~0u, misses && mine == k)) break;
                    if (misses) load_relaxed((const unsigned long long *)joined, P, S);
                }
                const int from = (lane & ~(4 * window - 1)) + 4 * k + lane % 4;
                const Word told = {__longlong_as_double((long long)__shfl_sync(~0u, P, from)),
                                   __longlong_as_double((long long)__shfl_sync(~0u, S, from))};
                if (has_any && !fold<float>(from_told<float>(told), carried, carried))
                    carried = await_word((const unsigned long long *)end);
                if (has_any && mine == k) put_word(state, carried);
                __syncwarp();
            }
            P = next_P;
            S = next_S;
            joined = next;
            state += window * LANES;
        }
    }
};

} // namespace

#endif
