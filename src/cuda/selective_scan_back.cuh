/*
 * The gradients of the selective scan.  Four kernels, and between them nothing but what s6_back_args.h tells of:
 *
 *   summary   all tiles forward, each chunk by itself: the state that it makes of zero, the gradient that it makes of
 *             zero against time, the states before its tiles
 *   carry     both from chunk to chunk, one after the other
 *   walk      all chunks at once: a tile at a time, the last one first; forward again from the state before it, its
 *             states and decays kept in registers, then back.  The usual problem has a kernel of its own, cut by
 * roles (selective_scan_back_roles.cu), before the general one, which then takes what that leaves to it sum over the
 * blocks of channels, and over chunks
 *
 * Those that walk have one picture.  A block serves up to 64 channels of one group, in tiles of 16 steps (the
 * summary: two at a time) and panels of 16 states:
 *
 *     warp   = 16 channels: 8 pairs of them x 4 lanes with 4 states each
 *     thread = (pair, lane)    2 channels x 4 states, so that B and C are read once for two channels, and dB and dC
 *                              are summed over two before lanes exchange anything; in the summary, which has no such
 *                              sums, one of the two: it has twice the threads
 *
 * A few short sequences have kernels of their own: selective_scan_back_short.cu.
 *
 * Blocks are small so that a multiprocessor holds several, of which some compute while others load.
 *
 * Lane bits, low to high: pair 0, the state lane's two, the pair's others.  Neighbouring threads read the same B and
 * C, threads two apart the same δ: shared memory serves such pairs in one access.
 */
#ifndef RL_CUDA_SELECTIVE_SCAN_BACK_CUH
#define RL_CUDA_SELECTIVE_SCAN_BACK_CUH

#include <machine/copies.cuh>
#include <machine/early.cuh>

#include "elements.cuh"
#include "s6.cuh"
#include "s6_back_args.h"
#include "s6_back_kernels.h"
#include "selective_scan_back_slopes.cuh"

namespace selective_scan_back
{

constexpr int TILE = RL_S6_BACK_STEPS, PANEL = RL_S6_PANEL, LANES = RL_S6_LANES, STATES = RL_S6_OWN;
constexpr int OWN = RL_S6_BACK_OWN, WARP = RL_S6_BACK_WARP;
constexpr int ROWS = 8;   /* of a tile that a block prepares at a time */
constexpr int ORDERS = 4; /* of the states of a lane: see Lane */

template <typename Acc> constexpr int CHANNELS = sizeof(Acc) == 4 ? RL_S6_BACK_CHANNELS : RL_S6_BACK_CHANNELS_F64;
template <typename Acc> constexpr int THREADS = CHANNELS<Acc> *RL_S6_BACK_CHANNEL_THREADS;

/* a / b of what is not negative: most numbers are short, and long divisions take their time. */
__device__ inline int64_t quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* A step of a channel.  What is clamped has no slope: -1. */
template <typename Acc> struct alignas(16) Step {
    Acc delta, input, du, slope; /* δ, δx, the gradient of Σ C h, of δ along what is stored */
};

/* What the fast order cannot take: of a step, in the states after it; in the gradients of it and of those before. */
enum Flag { STATES_WILD = 1, GRADIENTS_WILD = 2 };

template <typename Acc> __device__ inline bool is_wild_state(const Step<Acc> &step)
{
    return !is_tame(step.delta, step.input);
}
template <typename Acc> __device__ inline bool is_wild_gradient(const Step<Acc> &step)
{
    return !is_tame(step.delta, step.du);
}

template <typename Acc> struct alignas(16) Four {
    Acc state[STATES];
};

/* A chunk of a sequence, and where it starts: steps of the sequence, rows of `kept`. */
struct Chunk {
    Piece piece;
    int64_t kept, tiles;
};

/* As locate_piece in s6.cuh has them, but that chunks are a multiple of this operator's tiles long. */
__device__ inline Chunk locate_chunk(const rl_s6_args &args, int64_t sequence, int64_t index)
{
    int64_t begin = 0, end = args.length;
    if (args.offsets) {
        begin = args.offsets[sequence * args.offsets_stride];
        end = args.offsets[(sequence + 1) * args.offsets_stride];
        begin = begin < 0 ? 0 : begin > args.length ? args.length : begin;
        end = end < begin ? begin : end > args.length ? args.length : end;
    }
    const int64_t steps = end - begin;
    int64_t share = steps;
    if (args.chunks > 1) share = (quotient(steps + args.chunks - 1, args.chunks) + TILE - 1) / TILE * TILE;
    const int64_t first = index * share < steps ? index * share : steps;
    const int64_t last = first + share < steps ? first + share : steps;
    Chunk chunk;
    Piece &piece = chunk.piece;
    piece.sequence = sequence;
    piece.chunk = index;
    piece.batch = args.offsets ? 0 : sequence;
    piece.row = args.reverse ? end - 1 - first : begin + first;
    piece.count = last - first;
    piece.starts = index == 0;
    piece.ends = last == steps && (first < steps || index == 0);
    piece.empty = steps == 0;
    /* Tiles but the first of a sequence, whatever sequences lie before: none falls onto another's. */
    chunk.kept = (piece.batch * args.length + begin) / TILE + first / TILE;
    chunk.tiles = (piece.count + TILE - 1) / TILE;
    return chunk;
}

/* The channels of a block. */
struct Block {
    int64_t number, index, group, channel; /* of all, in the group; the first channel */
    int channels;                          /* that exist */
};

__device__ inline Block locate_block(const rl_s6_args &args, int64_t number)
{
    Block block;
    block.number = number;
    block.group = quotient(number, args.blocks_per_group);
    block.index = number - block.group * args.blocks_per_group;
    const int64_t in_group = block.index * args.block_channels, left = args.group_channels - in_group;
    block.channel = block.group * args.group_channels + in_group;
    block.channels = left < args.block_channels ? (int)left : args.block_channels;
    return block;
}

/*
 * Where a step of a channel lies in its row of a tile: so that neither the fours of channels that prepare steps nor
 * the neighbours that walk them meet in a bank.
 */
__device__ inline int slot_of(int column)
{
    return column ^ (column / 8 & 1) * 6 ^ (column / 16 & 3);
}

/*
 * A thread's place.  Its slot i of a panel holds the lane's state i ^ order: the pairs of a warp hold them in four
 * orders, so that adding over pairs gives away the same slots in every lane (add_channels in
 * selective_scan_back_walk.cuh).  So with the two channels: the upper two lanes hold the second one first.
 */
struct Lane {
    int lane, order, column; /* the column of the pair's first channel; the second's is 8 on */

    __device__ explicit Lane(int thread = threadIdx.x)
    {
        const int in_warp = thread & 31;
        lane = in_warp / 2 % LANES;
        order = in_warp / 8;
        column = thread / 32 * WARP + in_warp % 2 + 2 * order;
    }
    __device__ int column_of(int own) const
    {
        return column + (own ^ lane / 2) * (WARP / OWN);
    }
    __device__ int64_t state_of(int panel, int slot) const
    {
        return (int64_t)panel * PANEL + lane * STATES + (slot ^ order);
    }
};

/*
 * States in memory as threads hold them: [row, block, panel, own channel, thread], four slots each.  The first number
 * of a thread, and the step from one of its channels to the other.
 */
__device__ inline int64_t place_of(const rl_s6_args &args, const Block &block, int64_t row, int panel)
{
    return (((row * args.blocks + block.number) * args.panels + panel) * OWN * blockDim.x + threadIdx.x) * STATES;
}
__device__ inline int64_t place_step()
{
    return (int64_t)blockDim.x * STATES;
}

/* The same of one state of a channel. */
__device__ inline int64_t place_of_state(const rl_s6_args &args, int64_t row, int64_t channel, int64_t state)
{
    const int64_t group = quotient(channel, args.group_channels), in_group = channel - group * args.group_channels;
    const int64_t index = quotient(in_group, args.block_channels), block = group * args.blocks_per_group + index;
    const int column = (int)(in_group - index * args.block_channels),
              threads = args.block_channels * RL_S6_BACK_CHANNEL_THREADS;
    const int low = column % (WARP / OWN), lane = (int)(state % PANEL) / STATES;
    const int own = (column / (WARP / OWN) & 1) ^ lane / 2;
    const int order = low / 2, thread = column / WARP * 32 + low % 2 + 2 * lane + 8 * order;
    return (((row * args.blocks + block) * args.panels + state / PANEL) * OWN + own) * threads * STATES +
           thread * STATES + (state % STATES ^ order);
}

/* exp(δ A) of a tame step; rate_of(A) goes with it, and scale_of turns a sum with rates into one with A. */
__device__ inline float decay_of(float delta, float rate)
{
    return rough_decay(delta, rate);
}
__device__ inline double decay_of(double delta, double rate)
{
    return exp(delta * rate);
}
__device__ inline float rate_of(float a)
{
    const float rate = a * 1.44269504088896341f;
    return rate < -FLT_MAX ? -FLT_MAX : rate; /* NaN stays */
}
__device__ inline double rate_of(double a)
{
    return a;
}
__device__ inline float long_decay(float rate, float deltas)
{
    return power_of_two(rate * deltas);
}
__device__ inline double long_decay(double rate, double deltas)
{
    return exp(rate * deltas);
}
/* The same where its error goes no further than the state before one tile. */
__device__ inline float distant_decay(float rate, float deltas)
{
    return exp2_rough(rate * deltas);
}
__device__ inline double distant_decay(double rate, double deltas)
{
    return exp(rate * deltas);
}
/*
 * Whether a state loses so much on its way through a tile, whose step sizes come to `deltas`, that the errors of its
 * rough decays need not be taken out of a gradient there: a quarter of a binary digit (in double of a natural one).
 * Together they are then never more than those of 100 steps.
 */
template <typename Acc> __device__ inline bool fades(Acc rate, Acc deltas)
{
    return rate * deltas <= Acc(-0.25);
}
template <typename Acc> __device__ inline Acc rate_unit()
{
    return sizeof(Acc) == 4 ? Acc(0.693147180559945309) : Acc(1);
}

template <typename Acc> __device__ inline Acc load_A(const rl_s6_args &args, int64_t channel, int64_t state)
{
    return finite_range(((const Acc *)args.A)[channel * args.A_channel + state * args.A_state]);
}

#include "selective_scan_back_rows.cuh"

#include "selective_scan_back_prepare.cuh"

} // namespace selective_scan_back

#endif
