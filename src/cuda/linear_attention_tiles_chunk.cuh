/*
 * Chunks of bfloat16 data in shared memory, and what a warpgroup makes of them by products of tiles.
 *
 * A tile is 64 rows, the steps of a chunk, of 64 lanes, in lines of 128 bytes swizzled as products have them.  Lanes
 * and steps that are not there are 0.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_TILES_CHUNK_CUH
#define RL_CUDA_LINEAR_ATTENTION_TILES_CHUNK_CUH

#include <machine/arithmetic.cuh>
#include <machine/bulk_heads.cuh>
#include <machine/held.cuh>
#include <machine/mma.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_tiles_gates.cuh"

namespace attention_tiles
{

constexpr int WIDE = RL_TILES_WIDE, CHUNKS = RL_TILES_CHUNKS, THREADS = RL_TILES_THREADS;
constexpr int LINE = WIDE * 2, TILE = STEPS * LINE, PIECE = 16, PIECES = LINE / PIECE; /* bytes */
constexpr int TURN = 16, TURNS = WIDE / TURN;                                          /* of a product's sum */
constexpr int SEGMENT = CHUNKS * STEPS, WARPS = THREADS / 32;
constexpr int GATES_ROOM = ((int)sizeof(Gates) + 1023) / 1024 * 1024; /* tiles behind them are aligned */

__device__ __forceinline__ float low_of(uint32_t word)
{
    return __uint_as_float(word << 16);
}
__device__ __forceinline__ float high_of(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}
/* Two numbers as sums of two bfloat16 numbers each. */
__device__ __forceinline__ void split(float first, float second, uint32_t &high, uint32_t &low)
{
    high = pack_bfloats(first, second);
    low = pack_bfloats(first - low_of(high), second - high_of(high));
}

/* Which segment of which head. */
struct Task {
    const rl_tiles_args &tiles;
    const rl_floats_args &args;
    const int walk, segment, sequence, head; /* walk: of [sequences, heads] */

    __device__ explicit Task(const rl_tiles_args &tiles)
        : tiles(tiles), args(tiles.all), walk(blockIdx.x / (unsigned)args.chunks),
          segment(blockIdx.x - (unsigned)walk * (unsigned)args.chunks),
          sequence((unsigned)walk / (unsigned)args.in.heads),
          head((unsigned)walk - (unsigned)sequence * (unsigned)args.in.heads)
    {
    }
    /* For a block that has one chunk of a head. */
    __device__ Task(const rl_tiles_args &tiles, int walk, int chunk)
        : tiles(tiles), args(tiles.all), walk(walk), segment(chunk / CHUNKS),
          sequence((unsigned)walk / (unsigned)args.in.heads),
          head((unsigned)walk - (unsigned)sequence * (unsigned)args.in.heads)
    {
    }
    __device__ __forceinline__ int query_head() const
    {
        return (unsigned)head / (unsigned)args.in.share;
    }
    __device__ __forceinline__ int first(int chunk) const
    {
        return segment * SEGMENT + chunk * STEPS;
    }
    /* Of a chunk; none behind the sequence's end. */
    __device__ __forceinline__ int steps(int chunk) const
    {
        const int left = (int)args.in.length - first(chunk);
        return left < 0 ? 0 : left < STEPS ? left : STEPS;
    }
    __device__ __forceinline__ int chunks() const
    {
        const int left = (int)args.in.length - first(0);
        return left < SEGMENT ? (left + STEPS - 1) / STEPS : CHUNKS;
    }
    __device__ __forceinline__ int64_t at(const rl_attention_view &view, int head, int chunk) const
    {
        return sequence * view.batch + first(chunk) * view.step + head * view.head;
    }
    __device__ __forceinline__ Gates *gates(int chunk) const
    {
        return (Gates *)tiles.gates + (int64_t)blockIdx.x * CHUNKS + chunk;
    }
    /* A chunk's tile, by one thread. */
    __device__ __forceinline__ void load(char *to, const CUtensorMap &map, int head, int chunk, uint64_t *full) const
    {
        tile_load(to, map, HeadTileAt{0, first(chunk), head, sequence}, full);
    }
};

/* A thread of a warpgroup: its place in sums of products [64, 64] and in their operands. */
struct Place {
    int thread;

    __device__ Place() : thread((int)threadIdx.x % THREADS)
    {
    }
    __device__ __forceinline__ int warp() const
    {
        return thread / 32;
    }
    /* Rows are row(0) and row(1); of each 8 columns there are 2 pair() and the next. */
    __device__ __forceinline__ int row(int upper) const
    {
        return warp() * 16 + thread % 32 / 4 + upper * 8;
    }
    __device__ __forceinline__ int pair() const
    {
        return thread % 4;
    }
};

__device__ __forceinline__ char *piece_of(char *tile, int row, int piece)
{
    return tile + row * LINE + ((piece ^ (row & 7)) * PIECE);
}

/* Operands: the axis that is summed runs along the tile's lines, or across them.  Addresses are in units of 16 bytes.
 */
__device__ __forceinline__ uint64_t along(const char *tile, int turn)
{
    return tile_descriptor(tile, 0, BLOCK * LINE, SWIZZLE_128) + (uint64_t)(turn * (TURN * 2 / 16));
}
__device__ __forceinline__ uint64_t across(const char *tile, int turn)
{
    return tile_descriptor(tile, TILE, BLOCK * LINE, SWIZZLE_128) + (uint64_t)(turn * (TURN * LINE / 16));
}

/* The address of the thread's row for a load or store of four blocks of 8 x 8: two of the warp's 16 rows by two
 * columns of blocks; turned, of its 16 lanes by two blocks of rows. */
__device__ __forceinline__ char *blocks_at(char *tile, const Place &own, int column, bool turned)
{
    const int lane = own.thread % 32, block = lane / 8, row = lane % 8;
    if (turned) return piece_of(tile, (column + block / 2) * 8 + row, own.warp() * 2 + block % 2);
    return piece_of(tile, own.warp() * 16 + block % 2 * 8 + row, column + block / 2);
}

/* A tile's lanes as rows of the left operand, steps summed: as they are, or times a weight of each step. */
__device__ __forceinline__ void lanes_left(uint32_t (&to)[TURNS][4], char *tile, const Place &own)
{
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) matrices_load<4, true>(to[turn], blocks_at(tile, own, turn * 2, true));
}
template <bool BOTH>
__device__ __forceinline__ void weigh_left(uint32_t (&high)[TURNS][4], uint32_t (&low)[BOTH ? TURNS : 1][4],
                                           const float *weights, const Place &own)
{
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const float2 weight = ((const float2 *)weights)[block * 4 + own.pair()];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int k = block % 2 * 2 + upper;
            const uint32_t word = high[block / 2][k];
            const float first = low_of(word) * weight.x, second = high_of(word) * weight.y;
            if constexpr (BOTH)
                split(first, second, high[block / 2][k], low[block / 2][k]);
            else
                high[block / 2][k] = pack_bfloats(first, second);
        }
    }
}

/* state [values, keys] += Σ_j left_j weight_j right_jᵀ; what is split keeps 16 bits.  Ends with products under way.
 */
template <bool BOTH> struct Addition {
    uint32_t high[TURNS][4], low[BOTH ? TURNS : 1][4];

    __device__ __forceinline__ void prepare(char *left, const float *weights, const Place &own)
    {
        lanes_left(high, left, own);
        weigh_left<BOTH>(high, low, weights, own);
        stay();
    }
    __device__ __forceinline__ void start(float (&state)[32], const char *right)
    {
        hold(state);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            product_of_registers<BF16, WIDE, true>(state, high[turn], across(right, turn), true);
            if constexpr (BOTH) product_of_registers<BF16, WIDE, true>(state, low[turn], across(right, turn), true);
        }
        products_commit();
    }
    __device__ __forceinline__ void stay()
    {
        hold(high);
        if constexpr (BOTH) hold(low);
    }
};

/* Stays 0 while all numbers it meets are finite. */
__device__ __forceinline__ void look_at(float &finite, const float (&sums)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++) finite = fmaf(sums[i], 0.0f, finite);
}
__device__ __forceinline__ void scale_all(float (&sums)[32], float factor)
{
#pragma unroll
    for (int i = 0; i < 32; i++) sums[i] *= factor;
}
__device__ __forceinline__ void clear(float (&sums)[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++) sums[i] = 0;
}

/* States of the workspace are [values, keys], as products have them. */
__device__ __forceinline__ int state_place(const Place &own)
{
    return own.row(0) * WIDE + own.pair() * 2;
}
__device__ __forceinline__ void load_state(float (&state)[32], const float *from, const Place &own)
{
    from += state_place(own);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const float2 two = *(const float2 *)(from + i / 2 % 2 * (8 * WIDE) + i / 4 * 8);
        state[i] = two.x, state[i + 1] = two.y;
    }
}
__device__ __forceinline__ void store_state(float *to, const float (&state)[32], const Place &own)
{
    to += state_place(own);
#pragma unroll
    for (int i = 0; i < 32; i += 2)
        *(float2 *)(to + i / 2 % 2 * (8 * WIDE) + i / 4 * 8) = float2{state[i], state[i + 1]};
}

/* Whether a tile has a number that products may not meet beside gates that fade; by a warpgroup. */
__device__ inline bool exceeds(char *tile, float most = attention_floats::MODERATE_INPUT)
{
    bool found = false;
    for (int i = (int)threadIdx.x % THREADS; i < TILE / 4; i += THREADS) {
        const uint32_t word = ((const uint32_t *)tile)[i];
        found = found || !(fabsf(low_of(word)) <= most) || !(fabsf(high_of(word)) <= most);
    }
    return found;
}
__device__ inline bool exceeds(const float (&state)[32])
{
    bool found = false;
#pragma unroll
    for (int i = 0; i < 32; i++) found = found || !(fabsf(state[i]) <= attention_floats::MODERATE_STATE);
    return found;
}

/* A chunk's rows from a tile to a tensor, 16 bytes at a time, by a warpgroup. */
__device__ __forceinline__ void store_tile(char *tile, const rl_attention_view &view, int64_t base, int steps,
                                           int64_t lanes)
{
    const int thread = (int)threadIdx.x % THREADS, piece = thread % PIECES;
    if (piece * 8 >= lanes) return;
    int row = thread / PIECES;
    uint16_t *to = (uint16_t *)view.data + base + piece * 8 + row * view.step;
    const char *from = piece_of(tile, row, piece); /* rows of the same place in a line */
    const int64_t on = THREADS / PIECES * view.step;
#pragma unroll
    for (int i = 0; i < STEPS * PIECES / THREADS; i++, row += THREADS / PIECES, to += on)
        if (row < steps) *(uint4 *)to = *(const uint4 *)(from + i * (THREADS / PIECES) * LINE);
}

} // namespace attention_tiles

#endif
