/*
 * What a block that makes the gradients of spans stands on (linear_attention_spans.cu): its shared memory, and what
 * its warpgroups have in common.
 *
 * A tensor of a span is 128 rows, its steps, of 128 lanes, in two panels of 64 lanes; a state is [keys, values]
 * likewise. Lanes and steps that are not there are 0.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPAN_GROUND_CUH
#define RL_CUDA_LINEAR_ATTENTION_SPAN_GROUND_CUH

#include "linear_attention_chunk_ground.cuh"
#include "linear_attention_spans.h"

namespace attention_spans
{

using namespace attention_chunks;

constexpr int LANES = RL_SPANS_LANES, PANELS = LANES / WIDE, SPAN = RL_SPANS_CHUNKS * STEPS;
constexpr int PANEL = RL_SPANS_CHUNKS * TILE, TENSOR = PANELS * PANEL;
constexpr int LANE_TURNS = LANES / TURN, COLUMNS = LANES / BLOCK;
constexpr int MAKERS = 3, WARPS_OF_MAKERS = MAKERS * WALK_WARPS; /* warpgroups that make gradients */
constexpr int CLERKS = 3;                                        /* warps that read states for the gates */
constexpr int ROOM = 1024;                                       /* of a warp, for rows on their way out */
constexpr float LEAST_GATE = 0x1p-60f;                           /* that is divided out */

enum Tensor { Q, K, V, DY, S, G, TENSORS };

/* What the makers leave for the gates' gradients; sums by warp, of 16 rows, that are earlier steps. */
struct Notes {
    float columns[RL_SPANS_CHUNKS][WALK_WARPS][STEPS]; /* of the own chunk, without the rows' own block of steps */
    float later[RL_SPANS_CHUNKS][WALK_WARPS][BLOCKS];  /* of it, over the blocks behind each block */
    float crossing[WALK_WARPS][STEPS];                 /* of the first chunk's rows with the second's columns */
    float rows[STEPS];                                 /* the same by rows, without warps */
    float near[SPAN];              /* of a step's own block, and what the block's rows have later */
    float read[SPAN], given[SPAN]; /* u and w */
    float cross[CLERKS];           /* <G, S> */
};

/* Barriers, by what they tell: a tensor has come, or was used; notes are complete, or were taken. */
struct Signals {
    uint64_t full[TENSORS], used[TENSORS], noted, taken;
};

struct Layout {
    static constexpr int ROWS = TENSORS * TENSOR, DECAYS = ROWS + WARPS_OF_MAKERS * ROOM;
    static constexpr int NEXT = DECAYS + 2 * RL_SPANS_CHUNKS * (int)sizeof(Decays), NOTES = NEXT + 2 * PIECE;
    static constexpr int SIGNALS = (NOTES + (int)sizeof(Notes) + 7) / 8 * 8, BYTES = SIGNALS + (int)sizeof(Signals);
    static_assert(BYTES <= SHARED_OF_ONE, "a block of one has it");
};

struct Span {
    int sequence, head, number;
    int first, steps; /* of its steps, and how many there are */
    bool is_last;

    __device__ Span(const rl_spans_args &args, int64_t index)
    {
        const uint32_t heads = (uint32_t)args.walk.heads, spans = (uint32_t)args.spans;
        const uint32_t line = (uint32_t)index / heads;
        head = (int)((uint32_t)index - line * heads);
        sequence = (int)(line / spans);
        number = (int)(line - (uint32_t)sequence * spans);
        first = number * SPAN;
        steps = (int)args.walk.length - first < SPAN ? (int)args.walk.length - first : SPAN;
        is_last = number + 1 == (int)spans;
    }
    __device__ int64_t place(const rl_spans_args &args) const
    {
        return ((int64_t)head * args.walk.sequences + sequence) * args.spans + number;
    }
    __device__ int64_t at(const rl_attention_view &view, int step) const
    {
        return sequence * view.batch + (int64_t)(first + step) * view.step + head * view.head;
    }
};

/* A thread of a warpgroup, or of the clerks. */
struct Ground {
    const rl_spans_args &args;
    char *const shared;
    int thread; /* of the warpgroup */

    __device__ Ground(const rl_spans_args &args, char *shared)
        : args(args), shared(shared), thread((int)threadIdx.x % THREADS)
    {
    }
    /* What follows from it is worked out anew: held for the next span, it would take the registers of products. */
    __device__ __forceinline__ void forget_places()
    {
        thread = hidden((int)threadIdx.x % THREADS);
    }
    __device__ __forceinline__ int warp() const
    {
        return thread / 32;
    }
    __device__ __forceinline__ int pair() const
    {
        return thread % 4;
    }
    /* Rows are row(0) and row(1), columns 2 pair() and the next of each 8. */
    __device__ __forceinline__ int row(int upper) const
    {
        return warp() * 16 + thread % 32 / 4 + upper * 8;
    }
    __device__ __forceinline__ char *tensor(int which) const
    {
        return shared + which * TENSOR;
    }
    /* Of a span's two chunks; those of the next span come while the last use of these is still to be made. */
    __device__ __forceinline__ Decays &decays(int turn, int chunk) const
    {
        return ((Decays *)(shared + Layout::DECAYS))[(turn & 1) * RL_SPANS_CHUNKS + chunk];
    }
    /* Behind the span. */
    __device__ __forceinline__ float *next_gate(int turn) const
    {
        return (float *)(shared + Layout::NEXT + (turn & 1) * PIECE);
    }
    __device__ __forceinline__ Notes &notes() const
    {
        return *(Notes *)(shared + Layout::NOTES);
    }
    __device__ __forceinline__ Signals &signals() const
    {
        return *(Signals *)(shared + Layout::SIGNALS);
    }
    __device__ __forceinline__ void await(int which, int turn) const
    {
        barrier_wait(&signals().full[which], turn & 1);
    }
    __device__ __forceinline__ bool wants_gates() const
    {
        return args.dgate.data;
    }
    /* After a warp's last use of what a signal tells of. */
    __device__ __forceinline__ void arrive(uint64_t *signal) const
    {
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(signal);
    }
    __device__ __forceinline__ void mark(const Span &span) const
    {
        args.walk.bad[(int64_t)span.sequence * args.walk.heads + span.head] = 1;
    }
};

/* Operands: of a chunk's rows, or of all 128, the lanes are summed; or rows are, 16 of them a turn. */
__device__ __forceinline__ uint64_t along(const char *tensor, int chunk, int turn)
{
    return tile_descriptor(tensor, 0, BLOCK * ROW, SWIZZLE_128) +
           (uint64_t)((turn / 4 * PANEL + chunk * TILE + turn % 4 * (TURN * 2)) / PIECE);
}
__device__ __forceinline__ uint64_t across(const char *tensor, int turn)
{
    return tile_descriptor(tensor, PANEL, BLOCK * ROW, SWIZZLE_128) + (uint64_t)(turn * (TURN * ROW / PIECE));
}

} // namespace attention_spans

#endif
