/* The carriers of a split scan's block: warps that find the states which enter its tiles, a round ahead of the walk.
 */
#ifndef RL_CUDA_SCAN_SPLIT_CARRY_CUH
#define RL_CUDA_SCAN_SPLIT_CARRY_CUH

#include "scan_split_sum.cuh"

namespace
{

/*
 * The carriers: fold what other blocks tell onto `base`, the state that enters tile `from`, up to the state that
 * enters this tile, which becomes `carry`; `base` then is that of its group of tiles.
 */
template <typename N, bool backward>
__device__ void fold_earlier(Shared<N, backward> &shared, const rl_split_args &args, const Tile &tile, int lanes_log2,
                             int64_t from, typename Wide<N>::W &base, typename Wide<N>::W *carry)
{
    typedef Told<typename Wide<N>::W> T;
    typedef typename Wide<N>::Factor Factor;
    const int lanes = 1 << lanes_log2, thread = (int)threadIdx.x - WORKERS;
    const int most = (Shared<N, backward>::TOLD >> lanes_log2) / GROUP<N> * GROUP<N>;
    const int64_t start = tile.group * args.most_tiles + tile.place - tile.ordinal;
    do {
        const int count = (int)min(tile.ordinal - from, (int64_t)most), groups = count / GROUP<N>;
        const int64_t slot = (start + from) << lanes_log2;
        await_all<CARRIERS>(shared.told, (const T *)args.summaries + slot, count << lanes_log2, thread);
        meet<AMONG_CARRIERS>(); /* told is complete */
        if (GROUP < N >> 1) {
            for (int k = thread; k < groups << lanes_log2; k += CARRIERS) {
                const T *some = shared.told + ((k >> lanes_log2) * GROUP<N> << lanes_log2) + (k & (lanes - 1));
                shared.groups[k] = as_told(joined_told<N>(some, lanes));
            }
            meet<AMONG_CARRIERS>(); /* groups are complete */
        }
        if (thread < lanes) {
            const T *told = shared.told + thread;
            const Factor *ends = (const Factor *)args.ends + slot + thread;
            base = after_groups<N>(GROUP<N> > 1 ? shared.groups + thread : told, told, ends, lanes, groups, base);
            const int done = groups * GROUP<N> << lanes_log2;
            if (from + count == tile.ordinal)
                carry[thread] = after_tiles<N>(told + done, ends + done, lanes, count - groups * GROUP<N>, base);
        }
        from += count;
        if (from < tile.ordinal) meet<AMONG_CARRIERS>(); /* told may be written again */
    } while (from < tile.ordinal);
}

/* Whether a block's two tiles belong to one chain of states. */
__device__ inline bool continues(const Tile &tile, const Tile &before)
{
    return tile.group == before.group && tile.sequence == before.sequence;
}

constexpr int MASK = 7; /* of tiles */

template <typename N, bool backward>
__device__ void carry_rounds(Shared<N, backward> &shared, const rl_split_args &args, int lanes_log2)
{
    typedef typename Wide<N>::W W;
    const int thread = (int)threadIdx.x - WORKERS, lanes = 1 << lanes_log2;
    const bool deals = thread >= CARRIERS - 32;
    uint32_t ticket = 0;
    if (deals) ticket = shared.dealer.ask(args);
    for (int round = 0; round < 3; round++) {
        if (deals) {
            shared.dealer.deal(args, ticket, shared.tiles[round]);
            ticket = shared.dealer.ask(args);
        }
        meet<EVERYBODY>(); /* a tile is dealt; at last, the state before the first one is known as well */
    }
    W base = {};
    for (int round = 0;; round++) {
        const Tile &tile = shared.tiles[round & MASK];
        if (tile.place < 0) break;
        const bool goes_on = round > 0 && continues(tile, shared.tiles[(round - 1) & MASK]);
        const int64_t from = goes_on ? shared.tiles[(round - 1) & MASK].ordinal / GROUP<N> * GROUP<N> : 0;
        if (!goes_on && thread < lanes) base = Wide<N>::open(shared.enter[round & 1][thread]);
        fold_earlier(shared, args, tile, lanes_log2, from, base, shared.carry[round & 1]);
        if (deals) {
            shared.dealer.deal(args, ticket, shared.tiles[(round + 3) & MASK]);
            ticket = shared.dealer.ask(args);
        }
        meet<EVERYBODY>(); /* the carry and the tile after the next two */
    }
}

} // namespace

#endif
