/*
 * What a block of a walk by chunks stands on (linear_attention_chunk_walk.cuh): its shared memory, and where things
 * are in it.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_GROUND_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_GROUND_CUH

#include <machine/arithmetic.cuh>
#include <machine/barriers.cuh>
#include <machine/bulk_heads.cuh>
#include <machine/held.cuh>
#include <machine/mma.cuh>
#include <machine/wgmma.cuh>

#include "linear_attention_chunk_gates.cuh"
#include "linear_attention_walk.cuh"

namespace attention_chunks
{

constexpr int VALUES = RL_CHUNKS_VALUES, THREADS = RL_CHUNKS_THREADS, WIDE = 64, TILE = STEPS * WIDE * 2;
constexpr int ROW = WIDE * 2, PIECE = 16, TURN = 16, TURNS = STEPS / TURN; /* a product takes 16 steps, or keys */
constexpr int SHARED_OF_ONE = 227 << 10, SHARED_OF_TWO = 113 << 10;        /* for a block of one or two */

/* What a walk is for: y; and the state that leaves; y of dq, or of dk, and what the gates' gradients need of it; or a
 * segment's sum, and for a state that is given out. */
enum Purpose { ANSWER, ANSWER_AND_STATE, READ_STATES, READ_GRADIENTS, READ_BOTH, SUM, SUM_OF_STATE };

/*
 * Barriers in shared memory, by what they tell: inputs have come; P is made; all of it was used.  For an answer by a
 * warpgroup of its own: the state is shared, if it may meet products; it was read.  Of y that takes V's place: it is
 * out.
 */
constexpr int MOST_STAGES = 5; /* of inputs */
constexpr int MOST_TURNS = 3;  /* chunks on the mixer's way and their users', at a time */
struct Signals {
    uint64_t full[MOST_STAGES], ready[MOST_TURNS], used[MOST_TURNS], shared, taken, stored[MOST_TURNS];
    bool fits[2]; /* by the group that shares */
};

constexpr int DECAYS_ROOM = ((int)sizeof(Decays) + 1023) / 1024 * 1024; /* tiles behind it are aligned */

/* Shared memory, in bytes from its begin; the partner's tiles are there for gates' gradients only. */
template <int KEYS, Purpose PURPOSE> struct Layout {
    static constexpr bool SUMS = PURPOSE == SUM || PURPOSE == SUM_OF_STATE, BOTH = PURPOSE == READ_BOTH;
    static constexpr bool PAIRED = BOTH || PURPOSE == READ_GRADIENTS, GATES = PAIRED || PURPOSE == READ_STATES;
    static constexpr int PANELS = KEYS / WIDE, GROUPS = PANELS; /* warpgroups that hold states, of VALUES each */
    static constexpr int K = SUMS ? 0 : PANELS * TILE, V = K + PANELS * TILE, PARTNER = V + GROUPS * TILE;
    static constexpr int DECAYS = PARTNER + (GATES ? GROUPS * TILE : 0), STAGE = DECAYS + DECAYS_ROOM;
    static constexpr int SECONDS = BOTH && GROUPS > 1 ? 1 : 0, WARPGROUPS = GROUPS + SECONDS + 1; /* and the mixer */
    static constexpr int MIXES = SUMS ? 0 : BOTH ? 2 * TILE : TILE;
    /* For y on its way out, by chunks: else V's place is taken, which is filled anew the later. */
    static constexpr int OWN_ROWS = SUMS || GROUPS == 1 ? 0 : BOTH ? 1 : GATES ? 0 : 2;
    static constexpr bool OVER_V = GROUPS > 1 && GATES && !BOTH, COPIES = OWN_ROWS || OVER_V;
    static constexpr int STATES = BOTH ? GROUPS * PANELS * TILE : 0;
    static constexpr int ROWS = (OWN_ROWS * GROUPS + SECONDS) * TILE;
    static constexpr int MOST = GROUPS > 1 ? SHARED_OF_ONE : SHARED_OF_TWO;
    /* P of a chunk is made while that of the one before is used; sums wait for the next chunk, too. */
    static constexpr int TURNS = SUMS ? 3 : 2;
    static constexpr int REST = STATES + ROWS + TURNS * MIXES + (int)sizeof(Signals);
    static constexpr int FIT = (MOST - REST) / STAGE,
                         WANTED = SUMS ? MOST_STAGES : 3; /* sums have little else to do */
    static constexpr int STAGES = FIT < WANTED ? FIT : WANTED;
    static constexpr int MIX = STAGES * STAGE, STATE = MIX + TURNS * MIXES;
    static constexpr int ROW = GROUPS > 1 ? STATE + STATES : STATE; /* one group has done with its state by then */
    static constexpr int Y_ROW = ROW + SECONDS * TILE, SIGNALS = STATE + STATES + ROWS, BYTES = STAGES * STAGE + REST;
    static_assert(BYTES <= MOST, "as many blocks as registers are for");
};

__device__ inline float low_of(uint32_t word)
{
    return __uint_as_float(word << 16);
}
__device__ inline float high_of(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}

/* Two numbers as sums of two bfloat16 numbers each. */
__device__ inline void split(float first, float second, uint32_t &high, uint32_t &low)
{
    high = pack_bfloats(first, second);
    low = pack_bfloats(first - low_of(high), second - high_of(high));
}

__device__ inline char *piece_of(char *tile, int row, int piece)
{
    return tile + row * ROW + ((piece ^ (row & 7)) * PIECE);
}
__device__ inline float number_of(const char *tile, int row, int lane)
{
    const int panel = lane / WIDE, within = lane % WIDE;
    return widen(((const bf16 *)piece_of((char *)tile + panel * TILE, row, within / 8))[within % 8]);
}

/* Operands of products: tiles by steps whose lines run along keys, which are summed; or steps are. */
__device__ inline uint64_t keys_at(const char *tiles, int turn)
{
    return tile_descriptor(tiles + turn / 4 * TILE + turn % 4 * (TURN * 2), 0, BLOCK * ROW, SWIZZLE_128);
}
__device__ inline uint64_t steps_at(const char *tiles, int turn)
{
    return tile_descriptor(tiles + turn * (TURN * ROW), TILE, BLOCK * ROW, SWIZZLE_128);
}

/* Of a warpgroup: that of the mixer, whose values are the block's, or of one that holds states. */
template <int KEYS, Purpose PURPOSE> struct Ground {
    typedef attention_chunks::Layout<KEYS, PURPOSE> Layout;
    static constexpr bool SUMS = Layout::SUMS, GATES = Layout::GATES, PAIRED = Layout::PAIRED, BOTH = Layout::BOTH;
    static constexpr bool LEAVES = PURPOSE == SUM_OF_STATE || PURPOSE == ANSWER_AND_STATE;
    const rl_chunks_args &args;
    const Course course;
    const int sequence, head, group, first_value;
    char *const shared;
    int thread;
    int first, end; /* chunks */

    __device__ Ground(const rl_chunks_args &args, int sequence, int head, int group, int first_value, char *shared)
        : args(args), course(args, sequence), sequence(sequence), head(head), group(group), first_value(first_value),
          shared(shared), thread((int)threadIdx.x % THREADS), first(0), end(0)
    {
    }

    /* What follows is worked out anew: held for the next chunk, it would take the registers of products. */
    __device__ __forceinline__ void forget_places()
    {
        thread = hidden((int)threadIdx.x % THREADS);
    }
    /* The thread's rows are row() and row() + 8 of its warp's 16, its columns 2 pair() and the next of each 8. */
    __device__ __forceinline__ int warp() const
    {
        return thread / 32;
    }
    __device__ __forceinline__ int row() const
    {
        return thread % 32 / 4;
    }
    __device__ __forceinline__ int pair() const
    {
        return thread % 4;
    }
    __device__ __forceinline__ int value_row(int upper) const
    {
        return warp() * 16 + row() + upper * 8;
    }

    __device__ __forceinline__ char *stage(int chunk) const
    {
        return shared + (chunk - first) % Layout::STAGES * Layout::STAGE;
    }
    __device__ __forceinline__ char *partner(int chunk) const
    {
        return stage(chunk) + Layout::PARTNER;
    }
    __device__ __forceinline__ char *mix(int chunk) const
    {
        return shared + Layout::MIX + turn(chunk) * Layout::MIXES;
    }
    __device__ __forceinline__ Decays &decays(int chunk) const
    {
        return *(Decays *)(stage(chunk) + Layout::DECAYS);
    }
    __device__ __forceinline__ Signals &signals() const
    {
        return *(Signals *)(shared + Layout::SIGNALS);
    }
    /* The thread's row for a store of four blocks: of the warp()'s 16 rows or, turned, of its 16 columns. */
    __device__ __forceinline__ char *block_row(char *tile, int column, bool turned) const
    {
        const int lane = thread % 32, block = lane / 8, row = lane % 8;
        if (turned) return piece_of(tile, (column + block / 2) * 8 + row, warp() * 2 + block % 2);
        return piece_of(tile, warp() * 16 + block % 2 * 8 + row, column + block / 2);
    }

    /* The warpgroup's threads meet. */
    __device__ __forceinline__ void meet() const
    {
        barrier_meet_numbered(1 + group, THREADS);
    }

    __device__ __forceinline__ uint32_t phase(int chunk) const
    {
        return (uint32_t)(chunk - first) / Layout::TURNS & 1;
    }
    __device__ __forceinline__ int turn(int chunk) const
    {
        return (chunk - first) % Layout::TURNS;
    }
    /* After a warp's last use of what a signal tells of. */
    __device__ __forceinline__ void arrive(uint64_t *signal) const
    {
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(signal);
    }

    /* For the gates' gradients: the chunk's place, by the order of the recurrence itself. */
    __device__ __forceinline__ int64_t place_of_line(int64_t line, int chunk) const
    {
        return place_of(args, course, sequence, line, args.backward ? course.chunks - 1 - chunk : chunk);
    }
    __device__ __forceinline__ int64_t place(int chunk) const
    {
        return place_of_line((int64_t)head * args.slabs + first_value / VALUES, chunk);
    }
    __device__ __forceinline__ float *sums_at(int chunk, Kind kind) const
    {
        const int kinds = PURPOSE == READ_STATES ? 1 : KINDS;
        return args.sums + (place(chunk) * kinds + kind) * STEPS;
    }
    /* Where the sums of a warpgroup's warps meet: the chunk's table of steps, which the mixer has done with. */
    __device__ __forceinline__ float *row_sums(int chunk, int of) const
    {
        return &decays(chunk).within[0][0][0] + of * WALK_WARPS * STEPS;
    }
    __device__ __forceinline__ void add_up_rows(int chunk, int of, Kind kind) const
    {
        meet(); /* they are there */
        if (thread >= STEPS) return;
        const float *from = row_sums(chunk, of) + thread;
        float sum = from[0];
#pragma unroll
        for (int warp = 1; warp < WALK_WARPS; warp++) sum += from[warp * STEPS];
        sums_at(chunk, kind)[thread] = sum;
    }
};

} // namespace attention_chunks

#endif
