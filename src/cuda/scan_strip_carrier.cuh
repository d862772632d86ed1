/*
 * The carriers of the strips' scan: a few blocks that find the state which enters each tile.  A warp of them folds
 * the summaries of GROUP tiles at a time, each from the state that enters the first, which it has from the group
 * before: where chains are few, from the warp before it, for warps take turns at the groups of four channels.
 */
#ifndef RL_CUDA_SCAN_STRIP_CARRIER_CUH
#define RL_CUDA_SCAN_STRIP_CARRIER_CUH

#include <machine/barriers.cuh>

#include "scan_strip_sum.cuh"

namespace
{

constexpr int GROUP_TILES = 8, WARPS = RL_STRIP_WARPS;

/* What a carrying block shares. */
struct Handed {
    double state[WARPS][4];                          /* to the warp whose turn is next */
    double carried[RL_STRIP_MOST_SHARE][32 * WARPS]; /* by each thread itself, where a warp has several chains */
};

/* Two warps meet, of which the first is `sender`. */
__device__ inline void hand_over(int sender)
{
    __syncwarp(); /* a warp comes as one */
    if (sender == 0) barrier_meet<1, 64>();
    if (sender == 1) barrier_meet<2, 64>();
    if (sender == 2) barrier_meet<3, 64>();
    if (sender == 3) barrier_meet<4, 64>();
}

/* A thread has a tile of each group, and one of four channels. */
struct Carrier {
    const rl_strip_args &args;
    Handed &shared;
    const int warp, lane;
    int turns, mine; /* warps that take turns, and which of them this one is */
    int first, own;  /* the first chain, and which of its channels is the thread's */
    int chains;      /* of the warp, args.carriers apart */
    unsigned long long P, S;

    __device__ Carrier(const rl_strip_args &args, Handed &shared)
        : args(args), shared(shared), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32), P(MISSING), S(MISSING)
    {
        const int all = args.carriers * WARPS / 4, place = (int)blockIdx.x * WARPS + warp; /* chains at a time */
        turns = args.chains * 4 <= all ? 4 : args.chains * 2 <= all ? 2 : 1;
        const int four = place / turns;
        mine = place % turns;
        first = four / 4;
        own = four % 4 * 4 + lane % 4;
        chains = (args.chains - first + all - 1) / all;
    }
    __device__ int each() const
    {
        return args.chains / (int)args.scan.sequences;
    }
    __device__ int chain(int k) const
    {
        return first + k * (args.carriers * WARPS / 4);
    }
    __device__ int channel(int k) const
    {
        return chain(k) % each() * LANES + own;
    }
    /* The thread's tile, and whether it has a summary: the last one of all is followed by nothing. */
    __device__ int64_t tile(int64_t group) const
    {
        return group * GROUP_TILES + lane / 4;
    }
    __device__ bool is_there(int64_t group, int k) const
    {
        return tile(group) < args.tiles - 1 && channel(k) < args.scan.channels;
    }
    __device__ int64_t slot(int64_t tile, int k) const
    {
        return (chain(k) * args.tiles + tile) * LANES + own;
    }
    __device__ void put_state(int64_t tile, int k, double state) const
    {
        put_word((unsigned long long *)args.states + slot(tile, k), state);
    }
    __device__ void begin() const
    {
        for (int k = 0; k < chains; k++) {
            double state = 0;
            if (channel(k) < args.scan.channels)
                state = load_state<float>(args.scan.enter, chain(k) / each(), channel(k));
            shared.carried[k][threadIdx.x] = state;
            if (mine == 0 && lane < 4) put_state(0, k, state);
        }
    }
    __device__ bool misses() const
    {
        return P == MISSING || S == MISSING;
    }
    __device__ __forceinline__ void ask(int64_t group, int k)
    {
        if (is_there(group, k) && misses())
            load_relaxed((const unsigned long long *)((const Word *)args.told + slot(tile(group), k)), P, S);
    }
    /* Waits until the group's first tiles have told, more than `done` of them, and says how many have. */
    __device__ __forceinline__ int await_some(int64_t group, int k, int done, int most)
    {
        for (;;) {
            const unsigned holes = __ballot_sync(~0u, is_there(group, k) && misses());
            const int ready = holes ? min(most, (__ffs((int)holes) - 1) / 4) : most;
            if (ready > done) return ready;
            ask(group, k);
        }
    }

    /* The joined summaries of the group's tiles up to and with each thread's own; whatever else has been told. */
    __device__ __forceinline__ Sum sums_in_group(Sum sum) const
    {
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
            const Sum earlier = moved(sum, [&](auto x) { return __shfl_up_sync(~0u, x, (unsigned)distance); });
            const Sum both = joined(earlier, sum);
            if (lane >= distance) sum = both;
        }
        return sum;
    }

    /* The state that enters the group. */
    __device__ __forceinline__ double receive(int64_t group, int k) const
    {
        if (turns == 1 || group == 0) return shared.carried[k][threadIdx.x];
        const int sender = warp - mine + (mine + turns - 1) % turns;
        hand_over(sender); /* its state is there */
        return shared.state[sender][lane % 4];
    }

    /*
     * Tells what leaves the thread's tile, from what enters the group.  Where a fold is not accepted, the tile's own
     * walk tells that; it may wait for a neighbour's, so each is told as soon as it is there.
     */
    __device__ __forceinline__ void pass_tiles(bool tells, const Sum &sum, int64_t group, int k, double &state) const
    {
        bool is_open = tells && !fold<float>(sum, state, state);
        if (tells && !is_open) put_state(tile(group) + 1, k, state);
        while (__any_sync(~0u, is_open)) {
            unsigned long long word = MISSING;
            if (is_open) load_relaxed((const unsigned long long *)args.ends + slot(tile(group), k), word);
            if (word == MISSING) continue;
            state = __longlong_as_double((long long)word);
            put_state(tile(group) + 1, k, state);
            is_open = false;
        }
    }

    __device__ __forceinline__ void pass_group(int64_t group, int k)
    {
        const int most = (int)min((int64_t)GROUP_TILES, args.tiles - 1 - group * GROUP_TILES);
        const bool has_tile = is_there(group, k);
        double entering = 0, state = 0;
        for (int done = 0; done < most;) {
            const int ready = await_some(group, k, done, most);
            const Sum own_sum =
                has_tile && lane / 4 < ready
                    ? from_told<float>({__longlong_as_double((long long)P), __longlong_as_double((long long)S)})
                    : no_steps<float>();
            if (ready == most) {
                P = S = MISSING;
                ask(k + 1 < chains ? group : group + turns, k + 1 < chains ? k + 1 : 0);
            }
            const Sum sum = sums_in_group(own_sum);
            if (done == 0) entering = receive(group, k);
            const bool tells = has_tile && lane / 4 >= done && lane / 4 < ready;
            if (tells) state = entering;
            pass_tiles(tells, sum, group, k, state);
            done = ready;
        }
        state = __shfl_sync(~0u, state, 28 + lane % 4);
        shared.carried[k][threadIdx.x] = state;
        if (turns == 1 || (group + 1) * GROUP_TILES >= args.tiles - 1) return;
        if (lane < 4) shared.state[warp][lane] = state;
        hand_over(warp);
    }

    __device__ void run()
    {
        if (chains <= 0) return;
        begin();
        ask(mine, 0);
        for (int64_t group = mine; group * GROUP_TILES < args.tiles - 1; group += turns)
#pragma unroll 1
            for (int k = 0; k < chains; k++) pass_group(group, k);
    }
};

} // namespace

#endif
