/*
 * The carriers of the strips' scan: blocks that find, one after the other, the states which enter a chain's groups of
 * tiles.  A warp has four channels; a thread, of one of them, its share of the summaries of the next two groups, so
 * that these are on their way before they are needed.
 */
#ifndef RL_CUDA_SCAN_STRIP_CARRIER_CUH
#define RL_CUDA_SCAN_STRIP_CARRIER_CUH

#include "scan_strip_place.cuh"

namespace
{

struct Carrier {
    static constexpr int CHANNELS = 4, AHEAD = 2; /* groups at a time */
    typedef Group<CHANNELS, RL_STRIP_TILES> Tiles;
    static constexpr int EACH = Tiles::EACH;

    const rl_strip_args &args;
    const int lane, own;  /* the latter: the thread's channel of the chain */
    const int64_t groups; /* but the last one, which nothing follows */
    unsigned long long P[AHEAD][EACH], S[AHEAD][EACH];

    __device__ explicit Carrier(const rl_strip_args &args)
        : args(args), lane((int)threadIdx.x % 32), own((int)threadIdx.x / 32 * CHANNELS + lane % CHANNELS),
          groups(args.groups - 1)
    {
    }
    __device__ int64_t chain() const
    {
        return blockIdx.x;
    }
    __device__ void tell(int64_t group, double state) const
    {
        if (lane < CHANNELS)
            put_word((unsigned long long *)args.states + (chain() * args.groups + group) * LANES + own, state);
    }
    __device__ __forceinline__ bool misses(int k) const
    {
        bool any = false;
#pragma unroll
        for (int e = 0; e < EACH; e++) any |= P[k][e] == MISSING || S[k][e] == MISSING;
        return any;
    }
    __device__ __forceinline__ void ask(int64_t group, int k)
    {
        const Word *from = (const Word *)args.told +
                           (chain() * args.tiles + group * RL_STRIP_TILES + Tiles::first_tile(lane)) * LANES + own;
#pragma unroll
        for (int e = 0; e < EACH; e++) load_relaxed((const unsigned long long *)(from + e * LANES), P[k][e], S[k][e]);
    }
    __device__ __forceinline__ Sum share(int k) const
    {
        Sum all = no_steps<float>();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const Sum one = from_told<float>(
                {__longlong_as_double((long long)P[k][e]), __longlong_as_double((long long)S[k][e])});
            all = e == 0 ? one : joined(all, one);
        }
        return all;
    }

    /* The state after a group, in the first threads.  Where no fold may tell, the walk of its last tile does. */
    __device__ __forceinline__ double after(int64_t group, const Sum &sum, double state) const
    {
        const int64_t last = (group + 1) * RL_STRIP_TILES - 1;
        if (lane < CHANNELS && !fold<float>(sum, state, state))
            state = await_word((const unsigned long long *)args.ends + (chain() * args.tiles + last) * LANES + own);
        __syncwarp();
        return state;
    }

    __device__ void run()
    {
        const int each = args.chains / (int)args.scan.sequences, channel = (int)chain() % each * LANES;
        if (channel + own - lane % CHANNELS >= args.scan.channels) return;
        double state = load_state<float>(args.scan.enter, chain() / each, channel + own);
        tell(0, state);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k < groups) ask(k, k);
        for (int64_t first = 0; first < groups; first += AHEAD) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int64_t group = first + k;
                if (group >= groups) break;
                while (__any_sync(~0u, misses(k))) {
                    if (misses(k)) ask(group, k);
                    __syncwarp();
                }
                const Sum sum = Tiles::whole(share(k), lane);
                if (group + AHEAD < groups) ask(group + AHEAD, k);
                state = after(group, sum, state);
                tell(group + 1, state);
            }
        }
    }
};

} // namespace

#endif
