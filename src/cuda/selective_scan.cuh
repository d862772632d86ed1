/*
 * The selective scan's kernel.  A block serves up to 32 channels of one group over a piece of one sequence, in tiles
 * of 32 steps and panels of 16 states, so B and C are read once for all its channels.  [B,L,D] is read as it lies.
 *
 *              32 channels                           thread (channel, lane) of the consumers holds
 *            +-------------+                         4 of the channel's 16 states in registers and
 *   32 steps | δ, δx pairs |  32 x (16 B, 16 C)      walks down the tile's 32 steps; the 4 lanes of
 *            +-------------+                         a channel add up y by shuffles, 4 steps at once
 *
 * That is the usual shape.  The fine one has 16 lanes a channel with one state each, which add up 16 steps at once,
 * and 8 channels: less work a step for each thread, for problems that leave most of the device idle.
 *
 * Warps have roles.  Four producer warps load raw tiles into registers two stages ahead, turn them into δ and δx in
 * shared memory one stage ahead (bias, softplus and clamp once a step and channel), put the skip D x into the tile of
 * y, and write the finished y of the tile before, gated.  The other warps run the recurrence.  One barrier a stage
 * separates the two; a stage is one panel of one tile.
 *
 * Buffers: δ and B/C are two deep (written one stage ahead of their use); y and the flags are three deep, since
 * tile k+1 is begun while k is summed up and k-1 is written out.
 *
 * Numbers: see walk_tame and walk_mixed in selective_scan_consumer.cuh.
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_CUH
#define RL_CUDA_SELECTIVE_SCAN_CUH

#include <machine/barriers.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "s6.cuh"
#include "s6_kernels.h"

namespace selective_scan
{

constexpr int STEPS = RL_S6_STEPS, PANEL = RL_S6_PANEL, PRODUCERS = RL_S6_PRODUCERS;
constexpr int CHANNELS = RL_S6_CHANNELS;
constexpr int ANCHORED = 16;        /* steps of the fast order between accurate states */
constexpr int LEAST_FAST = 8;       /* steps: fewer gain nothing from the fast order */
constexpr int Y_ROW = CHANNELS + 8; /* so that 4 rows x 8 channels fall into 32 banks */

/* How a block's threads share its work: `lanes` threads a channel, at most `channels` channels. */
template <int lanes, int channels> struct Shape {
    static constexpr int LANES = lanes, OWN = PANEL / lanes; /* states of a thread in a panel */
    static constexpr int WARP_CHANNELS = 32 / lanes;
    static constexpr int QUADS =
        (STEPS * channels / 4 + PRODUCERS - 1) / PRODUCERS; /* of x, delta, z, y a producer handles */
    static constexpr int THREADS = PRODUCERS + channels * lanes;
};
using Usual = Shape<RL_S6_LANES, RL_S6_CHANNELS>;
using Fine = Shape<RL_S6_FINE_LANES, RL_S6_FINE_CHANNELS>;

/* What rules out the fast order for a channel's tile (walk_tame), or rough decays in it. */
enum Flag { WILD = 1, REPEATS = 2 };

enum Pass { FULL, SUMMARY }; /* the summary of a chunk: its final states from zero, and its sum of step sizes */

template <typename Acc> struct alignas(2 * sizeof(Acc)) Pair {
    Acc delta, input;
};

template <typename Acc> struct alignas(16) Pairs { /* of neighbouring channels: what a producer stores at a time */
    Pair<Acc> pair[16 / sizeof(Pair<Acc>)];
};

template <typename Acc, int count> struct alignas(count < 16 / sizeof(Acc) ? count * sizeof(Acc) : 16) States {
    Acc state[count];
};

template <typename Acc> struct Tiles {
    alignas(16) Pair<Acc> step[2][STEPS][CHANNELS];
    alignas(16) Acc bc[2][STEPS][2 * PANEL];
    alignas(16) Acc y[3][STEPS][Y_ROW];
    int flags[3][CHANNELS]; /* Flag */
};

static_assert(sizeof(Tiles<float>) <= 48 * 1024, "more than a kernel may have unasked: see selective_scan.c");

/* The barrier of all threads of the block, whatever their role; bar.sync counts warps, not places in the code. */
__device__ inline void block_barrier(int threads)
{
    barrier_meet<1>(threads);
}

/* What a block works on. */
struct Task {
    Piece piece;
    int64_t channel, group, in_group; /* the first channel, its group, its place in the group */
    int channels;                     /* of the block that exist */
    int64_t tiles;
};

template <Pass pass> __device__ Task locate_task(const rl_s6_args &args, int64_t index)
{
    /* 64-bit divisions take long: none where there is but one of a kind. */
    const int64_t rest = args.blocks == 1 ? index : index / args.blocks, block = index - rest * args.blocks;
    const int64_t sequence = args.chunks == 1 ? rest : rest / args.chunks;
    Task task;
    task.group = args.blocks_per_group == args.blocks ? 0 : block / args.blocks_per_group;
    task.in_group = (block - task.group * args.blocks_per_group) * args.block_channels;
    task.channel = task.group * args.group_channels + task.in_group;
    int64_t left = args.group_channels - task.in_group;
    task.channels = left < args.block_channels ? (int)left : args.block_channels;
    task.piece = locate_piece(args, sequence, rest - sequence * args.chunks);
    task.tiles = (task.piece.count + STEPS - 1) / STEPS;
    if (pass == SUMMARY && task.piece.chunk + 1 == args.chunks) task.tiles = 0; /* nothing follows the last chunk */
    return task;
}

/* A place in the walk over tiles and, within each, panels. */
struct Stage {
    int64_t tile = 0;
    int panel = 0, parity = 0; /* of the stage */
    int third = 0;             /* tile % 3 */

    __device__ void advance(int panels)
    {
        parity ^= 1;
        if (++panel < panels) return;
        panel = 0;
        tile++;
        third = third == 2 ? 0 : third + 1;
    }
};

#include "selective_scan_consumer.cuh"
#include "selective_scan_producer.cuh"

template <typename T, typename U, typename Acc, typename Shape, Pass pass>
__global__ void __launch_bounds__(Shape::THREADS, sizeof(Acc) == 4 ? 2 : 1)
    scan_kernel(const __grid_constant__ rl_s6_args args)
{
    unsigned char *const memory = dynamic_shared;
    Tiles<Acc> &tiles = *reinterpret_cast<Tiles<Acc> *>(memory);
    for (int64_t index = blockIdx.x; index < args.tasks; index += gridDim.x) {
        Task task = locate_task<pass>(args, index);
        if (threadIdx.x < PRODUCERS)
            Producer<T, U, Acc, Shape, pass>(args, task, tiles).run();
        else
            Consumer<T, Acc, Shape, pass>(args, task, tiles).run();
        block_barrier(blockDim.x); /* the next task's consumers may clear the flags */
    }
}

template <typename T, typename U> const void *pick_kernel(rl_s6_walk walk)
{
    switch (walk) {
    case RL_S6_SUMMARY:
        return kernel_address<scan_kernel<T, U, float, Usual, SUMMARY>>();
    case RL_S6_FINE:
        return kernel_address<scan_kernel<T, U, float, Fine, FULL>>();
    default:
        return kernel_address<scan_kernel<T, U, float, Usual, FULL>>();
    }
}

} // namespace selective_scan

#endif
