/*
 * A block of linear attention in float32 that goes through a head (linear_attention_floats_heads.h):
 *
 *     answerers   two warpgroups, which take every second chunk: P = A Bᵀ · D and the answer
 *     keepers     a warpgroup: the state [64 lanes of b, 32 of c] in registers
 *     splitters   a warpgroup that makes parts of b and c a chunk ahead
 *     a loader    tiles of the chunks to come, and the products of their gates
 *     a finisher  a warp that adds up what the gates' gradients are made of
 *
 *     answer = A S · decay + P C                S = S · b_64 + Bᵀ (weight · C)
 *
 * A number is the sum of three of bfloat16, which are cut from it one after the other, so that none of its bits is
 * lost.  Six of the nine products of two such numbers are added; the others are 2^-24 of theirs.
 *
 * Lanes of a and b, and so the rows of the state, lie in the order in which threads find lanes of a tile: of eight,
 * position 2 p is lane p, and 2 p + 1 is p + 4.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_CUH

#include <machine/barriers.cuh>
#include <machine/bulk.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/mma.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_floats_heads.h"

namespace attention_heads
{

using namespace attention_floats;

constexpr int WIDE = RL_FLOATS_MOST_WIDE, LANES = RL_HEADS_LANES, GROUP = 128;
constexpr int LINE = 128, PANEL = STEPS * LINE; /* bytes; a panel has 32 lanes */
constexpr int STAGES = 2, RECORDS = 4, EIGHTS = WIDE / 8, TURN = 16, PARTS = 3;
constexpr int PART = STEPS * WIDE * 2, SHORT_LINE = LANES * 2, SHORT_PART = STEPS * SHORT_LINE; /* of b; of c */

/*
 * The products of a chunk's gates as a walk in one direction uses them, made ahead.  Where they are mild, c is
 * weighed by the inverse of what decays since its step, and P C by the row's decay as what comes of the state is: b_t
 * / b_j. Else P of two steps is weighed by side (of the row) times between (of their blocks) times across (of the
 * column), within a block by own.
 */
struct alignas(16) Record {
    float between[BLOCKS][BLOCKS];   /* of the row's block and the column's; 0 within one, and against time */
    float own[BLOCKS][BLOCK][BLOCK]; /* by rows of a block; 0 against time */
    float across[STEPS];
    float side[STEPS];
    float decay[STEPS], out[STEPS]; /* of an answer's row: of what comes of the state; and of all */
    float weight[STEPS];            /* of a step in the state's sum; mild: before that is decayed */
    float first, second;            /* which add up to the product of all */
    bool steady, fades, heavy, special, mild;
};

/*
 * By what they tell; each has two places, for every second chunk, and one phase a chunk.  Who waits for a phase has
 * to know that the one before it is over, which would not be so with a single place and groups that take turns.
 */
struct Signals {
    uint64_t full[STAGES], empty[STAGES]; /* tiles have come; they were used */
    uint64_t split_b[2], used_b[2];       /* parts are made; they were used */
    uint64_t split_c[2], used_c[2];
    uint64_t state[2], read[2];   /* the state of a chunk is there; it was used */
    uint64_t summed[2], taken[2]; /* sums for the gates are there; they were taken */
};

/* What all of a warp have, so that the compiler knows it. */
__device__ __forceinline__ int same(int number)
{
    return __shfl_sync(ALL, number, 0);
}

/* A tensor's part in it. */
struct Side {
    const rl_attention_view &view;
    int head;
    int64_t lanes;
    bool wide;
};

/* What a cut after bfloat16's bits leaves. */
__device__ __forceinline__ float rest(float number)
{
    return number - __uint_as_float(__float_as_uint(number) & 0xffff0000u);
}
/* Two numbers' bfloat16 parts, lower half first. */
__device__ __forceinline__ uint32_t cut(float even, float odd)
{
    return __byte_perm(__float_as_uint(even), __float_as_uint(odd), 0x7632);
}
/* All parts of two; what is left of both says whether they are finite, times 0. */
__device__ __forceinline__ void cut(float even, float odd, uint32_t &high, uint32_t &middle, uint32_t &low)
{
    const float rests[2] = {rest(even), rest(odd)};
    high = cut(even, odd);
    middle = cut(rests[0], rests[1]);
    low = cut(rest(rests[0]), rest(rests[1]));
}
__device__ __forceinline__ void clean(float &number)
{
    if (!is_finite(number)) number = 0;
}
__device__ __forceinline__ bool is_large(float number, float most)
{
    return fabsf(number) > most; /* and finite: others became 0 */
}

/* 16 bytes of a tile. */
__device__ __forceinline__ char *piece_at(char *tile, int row, int piece)
{
    return tile + row * LINE + ((piece ^ (row & 7)) * 16);
}
/* The same with lines of 64 bytes. */
__device__ __forceinline__ char *short_piece_at(char *tile, int row, int piece)
{
    return tile + row * SHORT_LINE + ((piece ^ (row / 2 & 3)) * 16);
}
/* The lane at a position. */
__device__ __forceinline__ int lane_at(int position)
{
    return (position & ~7) + position % 2 * 4 + position / 2 % 4;
}

/* The parts of a tile as products read them. */
enum Lines {
    LONG,  /* of 64 lanes, which are contracted */
    SHORT, /* of 32 lanes, which are contracted */
    ACROSS /* of 32 lanes; the lines are contracted */
};
template <Lines LINES> __device__ __forceinline__ uint64_t part_of(const char *parts, int part, int turn)
{
    if (LINES == LONG)
        return tile_descriptor(parts + part * PART, 0, 8 * LINE, SWIZZLE_128) + (uint64_t)(turn * (TURN * 2 / 16));
    const uint64_t tile = tile_descriptor(parts + part * SHORT_PART, 8 * SHORT_LINE, 8 * SHORT_LINE, SWIZZLE_64);
    return tile + (uint64_t)(LINES == SHORT ? turn * (TURN * 2 / 16) : turn * (TURN * SHORT_LINE / 16));
}

template <int COUNT = WIDE / TURN> struct Operand {
    uint32_t part[PARTS][COUNT][4];

    __device__ __forceinline__ void set(int n, int i, float even, float odd)
    {
        cut(even, odd, part[0][n][i], part[1][n][i], part[2][n][i]);
    }
    __device__ __forceinline__ void stay()
    {
        for (int i = 0; i < PARTS; i++) hold(part[i]);
    }
};

/* sum = A times a tile of N columns; small products first, for their sums are cut. */
template <int N, Lines LINES, int COUNT>
__device__ __forceinline__ void multiply(float (&sum)[N / 2], const Operand<COUNT> &a, const char *parts)
{
    constexpr int LEFT[6] = {2, 0, 1, 1, 0, 0}, RIGHT[6] = {0, 2, 1, 0, 1, 0};
    hold(sum);
    products_fence();
#pragma unroll
    for (int k = 0; k < 6; k++)
#pragma unroll
        for (int n = 0; n < COUNT; n++)
            product_of_registers<BF16, N, LINES == ACROSS>(sum, a.part[LEFT[k]][n],
                                                           part_of<LINES>(parts, RIGHT[k], n), k + n > 0);
    products_commit();
}

/* Sums over N (linear_attention_floats_back.cuh), and what else the gates' gradients of a chunk are made of. */
struct alignas(16) Sums {
    float columns[4][STEPS];      /* by warp: of its rows in the blocks before the column's */
    float rows[STEPS];            /* of the columns in the blocks behind the row's */
    float own[STEPS];             /* of pairs in the step's own block */
    float blocks[BLOCKS][BLOCKS]; /* of rows and columns */
    float given[STEPS];           /* w */
    float cross[4];               /* by warp: <G, S> */
    float carry;
};

constexpr int RECORD_BYTES = ((int)sizeof(Record) + 1023) / 1024 * 1024;

/* Shared memory, in bytes from its begin. */
template <int WHAT> struct Room {
    static constexpr bool LATER = WHAT == RL_HEADS_DV || WHAT == RL_HEADS_DK; /* goes back in time */
    static constexpr bool PAIRS = WHAT == RL_HEADS_DQ || WHAT == RL_HEADS_DK; /* what the gates' gradients need */
    static constexpr int STATES = PAIRS ? 1 : 2;                              /* that there is room for */
    static constexpr int B = 2 * PANEL, C = 4 * PANEL, E = 5 * PANEL, STAGE = PAIRS ? 6 * PANEL : 5 * PANEL;
    static constexpr int B_PARTS = STAGES * STAGE; /* of two chunks */
    static constexpr int C_PARTS = B_PARTS + 2 * PARTS * PART, WEIGHED = C_PARTS + 2 * PARTS * SHORT_PART;
    static constexpr int STATE = WEIGHED + 2 * PARTS * SHORT_PART, RECORD = STATE + STATES * PARTS * SHORT_PART;
    static constexpr int SUMS = RECORD + RECORDS * (int)sizeof(Record);
    static constexpr int SIGNALS = SUMS + (WHAT == RL_HEADS_DK ? 2 * (int)sizeof(Sums) : 0);
    static constexpr int BYTES = SIGNALS + (int)sizeof(Signals);
    static_assert(BYTES <= 227 << 10, "what a block may have");
};

template <int WHAT> struct Head {
    typedef attention_heads::Room<WHAT> Room;
    static constexpr bool LATER = Room::LATER, PAIRS = Room::PAIRS;
    const rl_heads_args &whole;
    const rl_floats_args &args;
    char *const shared;
    const int walk, lane, thread; /* lane: the first of its lanes of c; thread: of its group */
    const int chunks;

    __device__ Head(const rl_heads_args &all, char *shared, int walk, int lane, int thread)
        : whole(all), args(all.all), shared(shared), walk(walk), lane(lane), thread(thread), chunks((int)args.chunks)
    {
    }
    __device__ __forceinline__ int head() const
    {
        return (int)((unsigned)hidden(walk) % (unsigned)args.in.heads);
    }
    __device__ __forceinline__ Span span() const
    {
        return Span(args.in, (unsigned)hidden(walk) / (unsigned)args.in.heads);
    }
    __device__ __forceinline__ Signals &signals() const
    {
        return *(Signals *)(shared + Room::SIGNALS);
    }
    __device__ __forceinline__ char *stage(int turn) const
    {
        return shared + turn % STAGES * Room::STAGE;
    }
    __device__ __forceinline__ char *parts_of_b(int turn) const
    {
        return shared + Room::B_PARTS + turn % 2 * (PARTS * PART);
    }
    __device__ __forceinline__ char *parts_of_c(int turn) const
    {
        return shared + Room::C_PARTS + turn % 2 * (PARTS * SHORT_PART);
    }
    __device__ __forceinline__ char *weighed(int turn) const
    {
        return shared + Room::WEIGHED + turn % 2 * (PARTS * SHORT_PART);
    }
    __device__ __forceinline__ char *state(int turn) const
    {
        return shared + Room::STATE + turn % Room::STATES * (PARTS * SHORT_PART);
    }
    __device__ __forceinline__ const Record &record(int turn) const
    {
        return ((const Record *)(shared + Room::RECORD))[turn % RECORDS];
    }
    __device__ __forceinline__ Sums &sums(int turn) const
    {
        return *(Sums *)(shared + Room::SUMS + turn % 2 * (int)sizeof(Sums));
    }
    __device__ __forceinline__ int chunk(int turn) const
    {
        return LATER ? chunks - 1 - turn : turn;
    }
    __device__ __forceinline__ int64_t first(int turn) const
    {
        return (int64_t)chunk(turn) * STEPS;
    }
    __device__ __forceinline__ int steps(int turn) const
    {
        const int64_t left = args.in.length - first(turn);
        return left < STEPS ? (int)left : STEPS;
    }
    __device__ __forceinline__ Side output() const
    {
        const int of_keys = args.in.share > 1 ? head() : head() / (int)args.in.share;
        if (WHAT == RL_HEADS_Y) return {args.y, head(), args.in.values, (args.wide & RL_FLOATS_Y) != 0};
        if (WHAT == RL_HEADS_DV) return {args.dv, head(), args.in.values, (args.wide & RL_FLOATS_DV) != 0};
        if (WHAT == RL_HEADS_DQ) return {args.dq, of_keys, args.in.keys, (args.wide & RL_FLOATS_DQ) != 0};
        return {args.dk, of_keys, args.in.keys, (args.wide & RL_FLOATS_DK) != 0};
    }
    /* Of the chunk and the block's lanes. */
    __device__ __forceinline__ int64_t place(int turn) const
    {
        return (int64_t)blockIdx.x * chunks + chunk(turn);
    }
    __device__ __forceinline__ bool wants_gates() const
    {
        return PAIRS && args.dgate.data;
    }
    /* Once for each warp. */
    __device__ __forceinline__ void arrive(uint64_t &signal) const
    {
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(&signal);
        __syncwarp();
    }
    __device__ __forceinline__ void await(uint64_t (&signal)[2], int turn) const
    {
        if (turn >= 0) barrier_wait(&signal[turn % 2], (uint32_t)(turn / 2) & 1);
    }
};

} // namespace attention_heads

#endif
