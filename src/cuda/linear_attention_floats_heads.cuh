/*
 * A block of linear attention in float32 that goes through a head (linear_attention_floats_heads.h):
 *
 *     answerers   a warpgroup: a thread has rows of steps (machine/wgmma.cuh) of P = A Bᵀ · D and of the answer
 *     keepers     a warpgroup: the state [64 lanes of b, 32 of c] in registers, and what is to be made of the tiles
 *     a loader    tiles of the chunks ahead, and the products of their gates
 *     a finisher  a warp that adds up what the gates' gradients are made of
 *
 *     answer = A S · decay + P C                S = S · b_64 + Bᵀ (weight · C)
 *
 * A number is the sum of two of tf32, of which a unit cuts the first from the number as it lies.  So a tile as it was
 * loaded is its own first part, and the second, which lies in a tile of its own, is made once.  What is contracted
 * over steps wants C with steps along lines: its first part is a tile too.
 *
 * Steps there are in the order in which sums of P have them: of eight, position p is step 2 p, p + 4 is 2 p + 1.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_CUH

#include <machine/barriers.cuh>
#include <machine/bulk.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_floats_heads.h"

namespace attention_heads
{

using namespace attention_floats;

constexpr int WIDE = RL_FLOATS_MOST_WIDE, LANES = RL_HEADS_LANES, GROUP = 128, HALF = 64;
constexpr int LINE = 128, PANEL = STEPS * LINE, TURNED = LANES * LINE; /* bytes; a panel has 32 lanes, or steps */
constexpr int STAGES = 3, EIGHTS = WIDE / 8;

/*
 * The products of a chunk's gates as a walk in one direction uses them, made ahead.  P of two steps is weighed by
 * side (of the row) times between (of their blocks) times across (of the column), within a block by own.
 */
struct alignas(16) Record {
    float between[BLOCKS][BLOCKS];   /* of the row's block and the column's; 0 within one, and against time */
    float own[BLOCKS][BLOCK][BLOCK]; /* by rows of a block; 0 against time */
    float across[STEPS];
    float side[STEPS];
    float decay[STEPS], out[STEPS]; /* of an answer's row: of what comes of the state; and of all */
    float weight[STEPS];            /* of a step in the state's sum */
    float first, second;            /* which add up to the product of all */
    bool steady, fades, heavy, special;
};

/*
 * By what they tell; each has one phase a chunk, or a round of stages.  Who waits for a phase has to know that the
 * one before it is over: a signal that a group awaits every second chunk only has two places, one of which is the
 * group's.
 */
struct Signals {
    uint64_t full[STAGES], empty[STAGES];   /* tiles have come; all of them was used */
    uint64_t split[2], turned[2], state[2]; /* b's second part is made; c; the state of a chunk */
    uint64_t asked[2], answered, read;      /* they were used: b's, c, the state */
    uint64_t summed, taken[2];              /* sums for the gates are there; they were taken */
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

__device__ __forceinline__ float small_part(float number)
{
    return number - __uint_as_float(__float_as_uint(number) & 0xffffe000u);
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

/* A tile, and one of its eights of lanes. */
__device__ __forceinline__ uint64_t tile_at(const char *tile)
{
    return tile_descriptor(tile, 0, 8 * LINE, SWIZZLE_128);
}
__device__ __forceinline__ uint64_t eight_of(uint64_t tile, int eight, int panel)
{
    return tile + (uint64_t)((eight / 4 * panel + eight % 4 * 32) / 16);
}

template <int COUNT = EIGHTS> struct Operand {
    uint32_t big[COUNT][4], small[COUNT][4];

    __device__ __forceinline__ void set(int n, float a, float b, float c, float d)
    {
        split_left(a, big[n][0], small[n][0]);
        split_left(b, big[n][1], small[n][1]);
        split_left(c, big[n][2], small[n][2]);
        split_left(d, big[n][3], small[n][3]);
    }
    __device__ __forceinline__ void stay()
    {
        hold(big);
        hold(small);
    }
};

/* sum = A times a tile of N columns; small products first, for their sums are cut. */
template <int N, int COUNT>
__device__ __forceinline__ void multiply(float (&sum)[N / 2], const Operand<COUNT> &a, const char *big,
                                         const char *small)
{
    constexpr int EACH = N * LINE;
    const uint64_t first = tile_at(big), second = tile_at(small);
    hold(sum);
    products_fence();
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        product_of_registers<TF32, N, false>(sum, a.small[n], eight_of(first, n, EACH), n > 0);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        product_of_registers<TF32, N, false>(sum, a.big[n], eight_of(second, n, EACH), true);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        product_of_registers<TF32, N, false>(sum, a.big[n], eight_of(first, n, EACH), true);
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
    static constexpr int TURNS = WHAT == RL_HEADS_DK ? 2 : STAGES;            /* chunks that there is room for */
    static constexpr bool PAIRS = WHAT == RL_HEADS_DQ || WHAT == RL_HEADS_DK; /* what the gates' gradients need */
    static constexpr int B = 2 * PANEL, C = 4 * PANEL, E = 5 * PANEL, RECORD = PAIRS ? 6 * PANEL : 5 * PANEL;
    static constexpr int STAGE = RECORD + RECORD_BYTES, B_SMALL = TURNS * STAGE; /* of two chunks */
    static constexpr int C_BIG = B_SMALL + 4 * PANEL, C_SMALL = C_BIG + 2 * TURNED;
    static constexpr int S_BIG = C_SMALL + 2 * TURNED, S_SMALL = S_BIG + 2 * TURNED;
    static constexpr int C_PLAIN = S_SMALL + 2 * TURNED; /* the second part of c as it lies */
    static constexpr int SUMS = C_PLAIN + (WHAT == RL_HEADS_DK ? PANEL : 0);
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
        return shared + turn % Room::TURNS * Room::STAGE;
    }
    __device__ __forceinline__ char *second_of_b(int turn) const
    {
        return shared + Room::B_SMALL + turn % 2 * (2 * PANEL);
    }
    __device__ __forceinline__ const Record &record(int turn) const
    {
        return *(const Record *)(stage(turn) + Room::RECORD);
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
    /* Of a signal that has two places, for every second chunk each. */
    __device__ __forceinline__ void await_second(uint64_t (&signal)[2], int turn) const
    {
        if (turn >= 0) barrier_wait(&signal[turn % 2], (uint32_t)(turn / 2) & 1);
    }
    /* Room for the chunk's sums. */
    __device__ __forceinline__ void await_sums(int turn) const
    {
        await_second(signals().taken, turn - 2);
    }
    __device__ __forceinline__ void await_stage(int turn) const
    {
        barrier_wait(&signals().full[turn % Room::TURNS], (uint32_t)(turn / Room::TURNS) & 1);
    }
};

} // namespace attention_heads

#endif
