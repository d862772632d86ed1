/* Summaries of a strip: of its sub-chunks, a thread each, and of the tiles of a group. */
#ifndef RL_CUDA_SCAN_STRIP_SUM_CUH
#define RL_CUDA_SCAN_STRIP_SUM_CUH

#include "scan_split_chain.cuh"
#include "scan_strip.h"

namespace
{

constexpr int LANES = RL_STRIP_LANES;
typedef Summary<float> Sum;
typedef Told<double> Word;

template <typename Shuffle> __device__ __forceinline__ Sum moved(const Sum &sum, const Shuffle &shuffle)
{
    return {{}, shuffle(sum.P), shuffle(sum.S), shuffle(sum.mass)};
}

template <int channels> __device__ __forceinline__ bool all_finite(const Sum (&sum)[channels])
{
    bool is_finite = true;
#pragma unroll
    for (int j = 0; j < channels; j++) is_finite &= is_finite_sum(sum[j]);
    return __all_sync(~0u, is_finite);
}

/* Of each of the strip's channels, the sums up to and with each thread's own. */
template <int channels> __device__ __forceinline__ void sums_in_strip(Sum (&sum)[channels], int lane)
{
    const auto up = [&](const Sum &one, int distance) {
        return moved(one, [&](auto x) { return __shfl_up_sync(~0u, x, (unsigned)distance); });
    };
    if (all_finite(sum)) {
        unsigned resets[channels];
#pragma unroll
        for (int j = 0; j < channels; j++)
            resets[j] = __ballot_sync(~0u, has_reset(sum[j])) & (0xffffffffu >> (31 - lane));
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
            for (int j = 0; j < channels; j++) {
                const Sum both = joined_plainly(up(sum[j], distance), sum[j]);
                if (lane >= distance) sum[j] = both;
            }
        }
#pragma unroll
        for (int j = 0; j < channels; j++) mark(sum[j], resets[j]);
        return;
    }
#pragma unroll 1
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
        for (int j = 0; j < channels; j++) {
            const Sum both = joined(up(sum[j], distance), sum[j]);
            if (lane >= distance) sum[j] = both;
        }
    }
}

__device__ __forceinline__ Sum chosen_sum(bool first, const Sum &x, const Sum &y)
{
    return {{}, first ? x.P : y.P, first ? x.S : y.S, first ? x.mass : y.mass};
}

/*
 * The joined sum of all threads' of channel lane % 4.  Threads keep half of their channels, then a quarter, so that
 * it needs a third of the exchanges of sums_in_strip: it is what other blocks wait for.
 */
template <bool plain> __device__ __forceinline__ Sum joined_strip(const Sum (&sum)[4], int lane)
{
    const auto partner = [&](const Sum &one, int distance) {
        return moved(one, [&](auto x) { return __shfl_xor_sync(~0u, x, distance); });
    };
    const auto both = [&](const Sum &mine, const Sum &other, bool is_later) {
        const Sum earlier = chosen_sum(is_later, other, mine), later = chosen_sum(is_later, mine, other);
        return plain ? joined_plainly(earlier, later) : joined(earlier, later);
    };
    const bool odd = lane & 1, upper = lane & 2;
    Sum half[2];
#pragma unroll
    for (int j = 0; j < 2; j++)
        half[j] = both(chosen_sum(odd, sum[2 * j + 1], sum[2 * j]),
                       partner(chosen_sum(odd, sum[2 * j], sum[2 * j + 1]), 1), odd);
    Sum own = both(chosen_sum(upper, half[1], half[0]), partner(chosen_sum(upper, half[0], half[1]), 2), upper);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) own = both(own, partner(own, distance), lane & distance);
    return own;
}
__device__ __forceinline__ Sum whole_strip(const Sum (&sum)[4], int lane)
{
    if (!all_finite(sum)) return joined_strip<false>(sum, lane);
    bool resets = false;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const bool any = __any_sync(~0u, has_reset(sum[j]));
        if (lane % 4 == j) resets = any;
    }
    Sum own = joined_strip<true>(sum, lane);
    mark(own, resets);
    return own;
}

/*
 * How a warp's threads share out the summaries of a group of tiles: one has those of EACH tiles, and of one of the
 * strip's channels, which are neighbours.
 */
template <int channels, int tiles> struct Group {
    static constexpr int SHARES = 32 / channels, EACH = tiles / SHARES;
    static_assert(tiles % SHARES == 0, "every thread has some");

    __device__ static int first_tile(int lane)
    {
        return lane / channels * EACH;
    }

    /* Of channel lane % channels, the joined sum of what all threads have, in the first one of them. */
    __device__ static Sum whole(Sum sum, int lane)
    {
        constexpr unsigned alike = 0x11111111u; /* every fourth */
        static_assert(channels == 4, "neighbours");
        const auto down = [&](int distance) {
            return moved(sum, [&](auto x) { return __shfl_down_sync(~0u, x, (unsigned)distance); });
        };
        if (__all_sync(~0u, is_finite_sum(sum))) {
            const unsigned resets = __ballot_sync(~0u, has_reset(sum)) & (alike << lane % channels);
#pragma unroll
            for (int distance = channels; distance < 32; distance *= 2) sum = joined_plainly(sum, down(distance));
            mark(sum, resets);
            return sum;
        }
#pragma unroll 1
        for (int distance = channels; distance < 32; distance *= 2) sum = joined(sum, down(distance));
        return sum;
    }

    /* Waits for the first `count` of the thread's summaries. */
    __device__ static Sum heard(const Word *from, int count)
    {
        unsigned long long P[EACH] = {}, S[EACH] = {};
        bool misses;
        do {
            misses = false;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (k < count) load_relaxed((const unsigned long long *)(from + k * LANES), P[k], S[k]);
#pragma unroll
            for (int k = 0; k < EACH; k++) misses |= k < count && (P[k] == MISSING || S[k] == MISSING);
        } while (misses);
        Sum all = no_steps<float>();
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (k >= count) break;
            const Sum one =
                from_told<float>({__longlong_as_double((long long)P[k]), __longlong_as_double((long long)S[k])});
            all = k == 0 ? one : joined(all, one);
        }
        return all;
    }
};

} // namespace

#endif
