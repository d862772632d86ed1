/* Which strip a warp of the strips' scan has. */
#ifndef RL_CUDA_SCAN_STRIP_PLACE_CUH
#define RL_CUDA_SCAN_STRIP_PLACE_CUH

#include "scan_recurrence.cuh"
#include "scan_strip_sum.cuh"

namespace
{

constexpr int THREADS = 32 * RL_STRIP_WARPS;

enum Room { BEFORE = 2 }; /* beside DECAYS and INPUTS */

__device__ inline unsigned quotient(unsigned x, unsigned y) /* which is 1 most of the time */
{
    return y == 1 ? x : x / y;
}

struct Place {
    const rl_strip_args &args;
    const rl_scan_args &scan;
    const int warp, lane, own_lane;         /* the last: of the chain's channels the warp's first */
    int64_t chain, tile, sequence, channel; /* the block's first one */
    int count;                              /* of the tile's steps that the sequence has */
    bool is_last;                           /* the tile, in the order of running */

    __device__ Place(const rl_strip_args &args, int tile_steps)
        : args(args), scan(args.scan), warp((int)threadIdx.x / 32), lane((int)threadIdx.x % 32), own_lane(warp * 4)
    {
        const unsigned place = blockIdx.x - (unsigned)args.chains, each = (unsigned)(args.chains / scan.sequences);
        const unsigned row = quotient(place, (unsigned)args.chains), its_chain = place - row * (unsigned)args.chains;
        tile = row;
        chain = its_chain;
        sequence = quotient(its_chain, each);
        channel = (its_chain - (unsigned)sequence * each) * LANES;
        is_last = tile == args.tiles - 1;
        count = is_last ? (int)(scan.length - tile * tile_steps) : tile_steps;
    }
    __device__ bool has_channels() const
    {
        return channel + own_lane < scan.channels;
    }
};

} // namespace

#endif
