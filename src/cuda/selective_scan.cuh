/*
 * The selective scan's kernel.  A block serves up to 32 channels of one group over a piece of one sequence, in tiles
 * of 32 steps and panels of 16 states, so B and C are read once for all its channels.  [B,L,D] is read as it lies.
 *
 *              32 channels                           thread (channel, lane) of the consumers holds
 *            +-------------+                         4 of the channel's 16 states in registers and
 *   32 steps | δ, δx pairs |  32 x (16 B, 16 C)      walks down the tile's 32 steps; its part of y
 *            +-------------+                         goes to shared memory, 4 steps at a time
 *
 * That is the usual shape.  Where it would leave much of the device idle, blocks have 16 channels with 8 lanes of 2
 * states each (the middle shape), or 8 channels with 16 lanes of one state (the fine one): less work a step for each
 * thread, more of it in all.
 *
 * Warps have roles.  Four producer warps load raw tiles into registers two stages ahead, turn them into δ and δx in
 * shared memory one stage ahead (bias, softplus and clamp once a step and channel), put the skip D x beside the
 * lanes' parts of y, and write the y of the tile before: the sum of its parts, gated.  The other warps run the
 * recurrence. One barrier a stage separates the two; a stage is one panel of one tile.
 *
 * Buffers: δ, B/C and y are two deep (written one stage ahead of their use); of the flags those of tile k+1 are set
 * while k runs, and those of k+2 are cleared.
 *
 * Numbers: see walk_tame and walk_mixed in selective_scan_walks.cuh.
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_CUH
#define RL_CUDA_SELECTIVE_SCAN_CUH

#include <machine/ahead.cuh>
#include <machine/barriers.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "few.cuh"
#include "s6.cuh"
#include "s6_kernels.h"

namespace selective_scan
{

constexpr int STEPS = RL_S6_STEPS, PANEL = RL_S6_PANEL, PRODUCERS = RL_S6_PRODUCERS;
constexpr int GROUP = 4;      /* steps that a producer handles, and whose y a lane stores together */
constexpr int AHEAD = 2;      /* tiles between a fetch and what it brings near */
constexpr int TAIL = 256;     /* steps of a chunk that are summarised first; then four times as many */
constexpr int FADED = 48;     /* binary digits by which what came before has faded, for its summary to leave it out */
constexpr int LEAST_FAST = 8; /* steps: fewer gain nothing from the fast order */

/* How a block's threads share its work: `lanes` threads a channel, at most `channels` channels. */
template <int lanes, int channels> struct Shape {
    static constexpr int LANES = lanes, CHANNELS = channels, OWN = PANEL / lanes; /* states of a thread in a panel */
    static constexpr int WARP_CHANNELS = 32 / lanes;
    static constexpr int HELD = STEPS * channels / GROUP / PRODUCERS;
    static constexpr int ACROSS = HELD > 0 ? HELD : 1; /* channels of a producer */
    static constexpr int THREADS = PRODUCERS + channels * lanes;
};
using Usual = Shape<RL_S6_LANES, RL_S6_CHANNELS>;
using Middle = Shape<RL_S6_MIDDLE_LANES, RL_S6_MIDDLE_CHANNELS>;
using Fine = Shape<RL_S6_FINE_LANES, RL_S6_FINE_CHANNELS>;

/*
 * Binary digits that a tile must take off a channel's slowest state for the channel not to be slow in it.  So many
 * that errors of rough decays last some 90 steps at most, where an anchor would let them last 32; or, as 16 bits do
 * not show more, 1500.
 */
template <typename T> constexpr float LASTING = sizeof(T) > 2 ? 0.5f : LASTING_16;

/* What rules out the fast order for a channel's tile (walk_tame), or rough decays in it: SLOW, if all of it is so. */
enum Flag { WILD = 1, REPEATS = 2, SLOW = 4 };

/* What the kernels of whole work need not ask (rl_s6_args.whole). */
enum Work { ANY, WHOLE };

enum Pass { FULL, SUMMARY }; /* the summary of a chunk: its final states from zero, and its sum of step sizes */

template <typename Acc> struct alignas(2 * sizeof(Acc)) Pair {
    Acc delta, input;
};

template <typename Acc> struct alignas(16) TwoSteps {
    Pair<Acc> pair[2];
};

template <typename Acc, int count> struct alignas(count < 16 / sizeof(Acc) ? count * sizeof(Acc) : 16) States {
    Acc state[count];
};

/* What a block works on. */
struct Task {
    Piece piece;
    int64_t channel, group, in_group; /* the first channel, its group, its place in the group */
    int channels;                     /* of the block that exist */
    uint32_t tiles;                   /* enough for 2^37 steps */
    int last_steps;                   /* of the last tile */
};

/*
 * Where a channel stands in a row of parts of y.  Rows are two longer than channels, so that 4 lanes of 2 channels
 * fall into different banks; and every other eight have their neighbours exchanged, so that 8 channels two apart do.
 */
__device__ inline int slot_of(int channel)
{
    return channel ^ (channel >> 3 & 1);
}

template <typename Acc, typename Shape> struct Tiles {
    TwoSteps<Acc> step[2][STEPS / 2][Shape::CHANNELS];
    alignas(16) Acc bc[2][STEPS][2 * PANEL];                          /* lane by lane: B, then C of its states */
    Quad<Acc> y[2][STEPS / GROUP][Shape::LANES][Shape::CHANNELS + 2]; /* of a stage: the lanes' parts of 4 steps */
    Quad<Acc> begun[3][STEPS / GROUP][Shape::CHANNELS + 2];   /* of a tile: D x, and what earlier panels have of y */
    alignas(8) Acc deltas[2][STEPS / GROUP][Shape::CHANNELS]; /* sums of four step sizes */
    alignas(8) Acc slowest[Shape::CHANNELS], bias[Shape::CHANNELS], skip[Shape::CHANNELS];
    const void *gates[PRODUCERS];  /* where a producer's next z is: few have any, so no registers */
    Task task;                     /* the block's: what is seldom asked of it takes no registers */
    int flags[4][Shape::CHANNELS]; /* Flag */
};

/* The barrier of all threads of the block, whatever their role; bar.sync counts warps, not places in the code. */
__device__ inline void block_barrier(int threads)
{
    __syncwarp();
    barrier_meet<1>(threads);
}

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
    task.tiles = (uint32_t)((task.piece.count + STEPS - 1) / STEPS);
    task.last_steps = (int)(task.piece.count - (int64_t)(task.tiles - 1) * STEPS);
    if (pass == SUMMARY && task.piece.chunk + 1 == args.chunks) task.tiles = 0; /* nothing follows the last chunk */
    return task;
}

/* The last steps of a task, whole tiles of them. */
__device__ inline Task last_steps(const rl_s6_args &args, Task task, int64_t steps)
{
    const int64_t left_out = task.piece.count - steps;
    task.piece.row += args.reverse ? -left_out : left_out;
    task.piece.count = steps;
    task.tiles = (uint32_t)(steps / STEPS);
    return task;
}

/* A place in the walk over tiles and, within each, panels. */
struct Stage {
    uint32_t tile = 0;
    int panel = 0, turn = 0; /* turn: tile % 3 */

    __device__ void advance(int panels)
    {
        if (++panel < panels) return;
        panel = 0;
        tile++;
        turn = turn == 2 ? 0 : turn + 1;
    }
    /* Steps of the tile. */
    __device__ int steps(const Task &task) const
    {
        return tile + 1 < task.tiles ? STEPS : task.last_steps;
    }
};

#include "selective_scan_states.cuh" /* first: the others rest on it */

#include "selective_scan_walks.cuh"

#include "selective_scan_consumer.cuh"

#include "selective_scan_fetcher.cuh" /* as above */

#include "selective_scan_sizes.cuh"

#include "selective_scan_producer.cuh"

/* Blocks of a multiprocessor: as many as leave all threads the registers that they need. */
template <typename T, typename Shape, Pass pass, Work work>
constexpr int BLOCKS_AT_ONCE = sizeof(T) == 8                                        ? 1
                               : Shape::OWN == 4 && (pass == SUMMARY || work == ANY) ? 2
                                                                                     : 3;

/* Whether, as far as the thread knows, what came before the task has faded. */
template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work>
__device__ bool run_roles(const rl_s6_walk_args &walk, const Task &task, Tiles<Acc, Shape> &tiles, bool is_tail)
{
    if (threadIdx.x < PRODUCERS) {
        Producer<T, U, Acc, Shape, pass, work>(walk, task, tiles).run();
        return true;
    }
    Consumer<T, Acc, Shape, pass, work> consumer(walk.scan, pass == FULL ? tiles.task : task, tiles);
    consumer.run(is_tail);
    return consumer.has_faded();
}

template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work>
__global__ void __launch_bounds__(Shape::THREADS, BLOCKS_AT_ONCE<T, Shape, pass, work>)
    scan_kernel(const __grid_constant__ rl_s6_walk_args walk)
{
    const rl_s6_args &args = walk.scan;
    let_later_start();
    await_earlier();
    Tiles<Acc, Shape> &tiles = shared_as<Tiles<Acc, Shape>>();
    const Task task = locate_task<pass>(args, args.first_task + blockIdx.x);
    if (threadIdx.x == PRODUCERS) tiles.task = task;
    __syncthreads(); /* all know it */
    if constexpr (pass == SUMMARY && work == WHOLE) {
        int64_t tail = TAIL;
        while (args.fades && tail < task.piece.count && task.tiles > 0) {
            if (!barrier_meet_any_numbered(
                    1, Shape::THREADS,
                    !run_roles<T, U, Acc, Shape, pass, work>(walk, last_steps(args, task, tail), tiles, true)))
                return;
            tail *= 4;
        }
    }
    run_roles<T, U, Acc, Shape, pass, work>(walk, task, tiles, false);
}

template <typename T, typename U, typename Shape, Pass pass> rl_s6_kernel pick_work(bool whole)
{
    return {whole ? kernel_address<scan_kernel<T, U, float, Shape, pass, WHOLE>>()
                  : kernel_address<scan_kernel<T, U, float, Shape, pass, ANY>>(),
            sizeof(Tiles<float, Shape>)};
}

template <typename T, typename U> rl_s6_kernel pick_kernel(rl_s6_walk walk, bool whole)
{
    switch (walk) {
    case RL_S6_SUMMARY:
        return pick_work<T, U, Usual, SUMMARY>(whole);
    case RL_S6_MIDDLE_SUMMARY:
        return pick_work<T, U, Middle, SUMMARY>(whole);
    case RL_S6_FINE:
        return pick_work<T, U, Fine, FULL>(whole);
    case RL_S6_MIDDLE:
        return pick_work<T, U, Middle, FULL>(whole);
    default:
        return pick_work<T, U, Usual, FULL>(whole);
    }
}

} // namespace selective_scan

#endif
