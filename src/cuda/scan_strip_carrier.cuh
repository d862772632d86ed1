/*
 * The carriers of the strips' scan: blocks that find, one after the other, the states which enter a chain's groups of
 * tiles.  A warp has four channels; a thread the summary of one of the next few groups, so that these are on their
 * way before they are needed.
 */
#ifndef RL_CUDA_SCAN_STRIP_CARRIER_CUH
#define RL_CUDA_SCAN_STRIP_CARRIER_CUH

#include "scan_strip_place.cuh"

namespace
{

struct Carrier {
    static constexpr int WINDOW = 8; /* groups at a time */

    const rl_strip_args &args;
    const int lane, mine, own; /* the thread's group of the window, and its channel of the chain */
    const int64_t groups;      /* but the last one, which nothing follows */
    unsigned long long P, S, next_P, next_S;

    __device__ explicit Carrier(const rl_strip_args &args)
        : args(args), lane((int)threadIdx.x % 32), mine(lane / 4), own((int)threadIdx.x / 32 * 4 + lane % 4),
          groups(args.groups - 1), P(MISSING), S(MISSING), next_P(MISSING), next_S(MISSING)
    {
    }
    __device__ int64_t chain() const
    {
        return blockIdx.x;
    }
    __device__ void tell(int64_t group, double state) const
    {
        put_word((unsigned long long *)args.states + (chain() * args.groups + group) * LANES + own, state);
    }
    __device__ void ask(int64_t group, unsigned long long &its_P, unsigned long long &its_S) const
    {
        if (group >= groups) return;
        load_relaxed(
            (const unsigned long long *)((const Word *)args.joined + (chain() * groups + group) * LANES + own), its_P,
            its_S);
    }

    /* Waits until more than `done` of the window's first groups are there, and says how many are. */
    __device__ __forceinline__ int await_some(int64_t first, int done, int most)
    {
        for (;;) {
            const bool misses = P == MISSING || S == MISSING;
            const unsigned holes = __ballot_sync(~0u, misses);
            const int ready = holes ? min(most, (__ffs((int)holes) - 1) / 4) : most;
            if (ready > done) return ready;
            if (misses) ask(first + mine, P, S);
        }
    }

    /* From the state that enters group `done` of the window, in turn: folds that are accepted. */
    __device__ __forceinline__ bool folds_plainly(int done, int ready, double &state, double &after) const
    {
        const Sum sum = from_told<float>({__longlong_as_double((long long)P), __longlong_as_double((long long)S)});
        bool accepted = true;
#pragma unroll
        for (int k = 0; k < WINDOW; k++) {
            const Sum its = moved(sum, [&](auto x) { return __shfl_sync(~0u, x, 4 * k + lane % 4); });
            if (k < done || k >= ready) continue;
            accepted &= fold_plainly<float>(its, state, state);
            if (mine == k) after = state;
        }
        return __all_sync(~0u, accepted);
    }

    /* The same with care.  Where a fold is not accepted, the walk of the group's last tile tells. */
    __device__ __forceinline__ void fold_with_care(int64_t first, int done, int ready, double &state,
                                                   double &after) const
    {
        const Sum sum = from_told<float>({__longlong_as_double((long long)P), __longlong_as_double((long long)S)});
#pragma unroll 1
        for (int k = done; k < ready; k++) {
            const Sum its = moved(sum, [&](auto x) { return __shfl_sync(~0u, x, 4 * k + lane % 4); });
            const int64_t last = (first + k + 1) * args.group_tiles - 1;
            if (!fold<float>(its, state, state))
                state =
                    await_word((const unsigned long long *)args.ends + (chain() * args.tiles + last) * LANES + own);
            if (mine == k) after = state;
            if (mine == k) tell(first + k + 1, state);
            __syncwarp();
        }
    }

    __device__ void run()
    {
        const int each = args.chains / (int)args.scan.sequences, channel = (int)chain() % each * LANES;
        if (channel + own - lane % 4 >= args.scan.channels) return;
        double state = load_state<float>(args.scan.enter, chain() / each, channel + own);
        if (mine == 0) tell(0, state);
        ask(mine, P, S);
        for (int64_t first = 0; first < groups; first += WINDOW) {
            const int most = (int)min((int64_t)WINDOW, groups - first);
            next_P = next_S = MISSING;
            ask(first + WINDOW + mine, next_P, next_S);
            for (int done = 0; done < most;) {
                const int ready = await_some(first, done, most);
                const double entering = state;
                double after = 0;
                if (ready == done + 1 || !folds_plainly(done, ready, state, after)) { /* one is sooner done alone */
                    state = entering;
                    fold_with_care(first, done, ready, state, after);
                } else if (mine >= done && mine < ready) {
                    tell(first + mine + 1, after);
                }
                __syncwarp();
                done = ready;
            }
            P = next_P;
            S = next_S;
        }
    }
};

} // namespace

#endif
