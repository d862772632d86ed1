/*
 * The products of a chunk's gates.
 *
 * Between two steps j < t of a chunk, D = g_{j+1} … g_t is never a quotient nor an exponential of a difference: it is
 * the product of three, for the steps lie in blocks of 8,
 *
 *     from j to the end of its block  ·  of the whole blocks between  ·  from the begin of t's block through t
 *
 * and within one block a table of its own.  So a gate of 0, or of 1e-30, harms none but those products that have it.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_DECAYS_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_DECAYS_CUH

#include "elements.cuh"
#include "linear_attention_chunks.h"
#include "linear_attention_running.cuh"
#include "sequence.cuh"

namespace attention_chunks
{

constexpr unsigned ALL = 0xffffffffu;
constexpr int STEPS = RL_CHUNKS_STEPS, BLOCK = 8, BLOCKS = STEPS / BLOCK, WARPS = STEPS / 32;

/*
 * Products may not meet a run of gates that grows by more, nor, unless all numbers are moderate, fades by more; nor
 * numbers so large that a sum could overflow.  Of inputs the squares are bounded.
 */
constexpr float GROWTH_MOST = 2, FADED = 0x1p-100f;
constexpr float MOST_SQUARE = 0x1p60f, MOST_STATE = 0x1p80f, MOST_WEIGHT = 0x1p20f;
constexpr float MODERATE_SQUARE = 0x1p20f, MODERATE_STATE = 0x1p20f, MODERATE_WEIGHT = 2;
constexpr double LEAST_DECAY = 1e-300; /* of gates that are not 0: what is infinite stays so */

/* A sequence in the walk's order. */
struct Course : Sequence {
    bool down;
    int lead; /* steps of the first chunk that are not there */
    int chunks;

    __device__ Course(const rl_chunks_args &args, int64_t sequence)
        : Sequence(args.offsets, args.offsets_stride, args.length, sequence), down(args.down)
    {
        chunks = (int)((count + STEPS - 1) / STEPS);
        lead = args.backward ? (int)((int64_t)chunks * STEPS - count) : 0;
    }
    /* The chunk's first step, which may be missing. */
    __device__ int64_t step(int chunk) const
    {
        return (int64_t)chunk * STEPS - lead;
    }
    __device__ bool has(int64_t step) const
    {
        return step >= 0 && step < count;
    }
    /* Where a chunk's tile begins in time: its rows are in memory's order. */
    __device__ int64_t time(int chunk) const
    {
        return down ? begin + count - STEPS - step(chunk) : begin + step(chunk);
    }
    /* Between the n-th row of a tile and the n-th step of the chunk, both ways. */
    __device__ int turned(int n) const
    {
        return down ? STEPS - 1 - n : n;
    }
    __device__ int turned_block(int n) const
    {
        return down ? BLOCKS - 1 - n : n;
    }
    __device__ int64_t at(const rl_attention_view &view, int64_t head, int64_t step) const
    {
        return row * view.batch + (first(down) + step) * view.step + head * view.head;
    }
};

/* Of one chunk; arrays by rows, and by blocks of rows, of the tile. */
struct alignas(16) Decays {
    float within[BLOCKS][BLOCK][BLOCK]; /* from step to step of a block, times the k factor; 0 against time */
    float after[STEPS];                 /* behind the step to the end of its block, times the k factor */
    float until[STEPS];                 /* from the begin of its block through the step */
    float gate[STEPS], weight[STEPS], factor[STEPS]; /* the step's own; the k factor; that of y */
    float total[BLOCKS];
    float between[BLOCKS][BLOCKS]; /* of the blocks between two; 0 against time and of a block with itself */
    float before[BLOCKS], behind[BLOCKS];
    float carry; /* of all steps */
    float growth[WARPS], fade[WARPS];
    float heaviest[WARPS];            /* the largest k factor */
    bool resets[WARPS], zeros[WARPS]; /* there are resets; gates that are 0 but no reset */

    /* The mixer's. */
    float square[RL_CHUNKS_WARPS]; /* no less than the largest square of an input */
    float most_state, input;       /* no larger a state may meet the products; the most that the chunk adds to it */
    uint8_t reset[STEPS];
};

__device__ inline bool is_reset(const rl_chunks_args &args, float gate)
{
    return args.gate_is_log ? gate == -INFINITY : gate == 0;
}
/* Of a gate that is no reset; a logarithm's is rounded once from float64. */
__device__ inline float factor_of(const rl_chunks_args &args, float gate)
{
    return args.gate_is_log ? (float)exp((double)gate) : gate;
}

/* A step's gate and factors on their way from memory. */
struct Raw {
    float gate, weight, factor;

    __device__ static float load(const rl_attention_view &view, const Course &course, int64_t head, int64_t step)
    {
        return view.data ? load_any<float>(view.data, view.dtype, course.at(view, head, step)) : 1.0f;
    }
    __device__ static bool is_first(const rl_chunks_args &args, int64_t step)
    {
        return step == 0 && (args.backward || !args.start.data);
    }
    __device__ Raw(const rl_chunks_args &args, const Course &course, int64_t head, int64_t step)
        : gate(1), weight(0), factor(0)
    {
        if (!course.has(step)) return;
        if (args.gate.data && !is_first(args, step))
            gate = load(args.gate, course, head, args.backward ? step - 1 : step);
        weight = load(args.k_factor.tensor, course, head, step) * args.k_factor.number;
        factor = load(args.y_factor.tensor, course, head, step) * args.y_factor.number;
    }
};

/* Of a thread's value over a warp, in a fixed order. */
__device__ inline float product_over_warp(float value)
{
#pragma unroll
    for (int away = 16; away > 0; away /= 2) value *= __shfl_xor_sync(ALL, value, away);
    return value;
}
/* Of numbers that are not negative; infinity where one is NaN. */
__device__ inline float largest_over_warp(float value)
{
    if (isnan(value)) value = INFINITY;
#pragma unroll
    for (int away = 16; away > 0; away /= 2) value = fmaxf(value, __shfl_xor_sync(ALL, value, away));
    return value;
}

/* STEPS threads, the i-th with the chunk's i-th step; finish_decays follows behind a barrier. */
__device__ inline void start_decays(Decays &to, const rl_chunks_args &args, const Course &course, int i, int64_t step,
                                    const Raw &raw)
{
    const int warp = i / 32, own = i % BLOCK, row = course.turned(i);
    const int block = row / BLOCK, place = row % BLOCK, toward = course.down ? -1 : 1;
    float g = raw.gate;
    bool reset = false;
    if (!course.has(step))
        g = 1;
    else if (Raw::is_first(args, step))
        reset = !args.start.data;
    else if (args.gate.data) {
        reset = is_reset(args, g);
        g = factor_of(args, g);
    }
    const bool resets = __any_sync(ALL, reset), zeros = __any_sync(ALL, !reset && g == 0);
    to.gate[row] = reset ? 1 : g;
    to.reset[row] = reset;
    to.weight[row] = raw.weight;
    to.factor[row] = raw.factor;
    if (reset) g = 0;
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    float run = raw.weight;
    to.until[row] = until;
    to.after[row] = after * raw.weight;
    if (own == BLOCK - 1) to.total[block] = until;
    to.within[block][place][place] = run;
#pragma unroll
    for (int away = 1; away < BLOCK; away++) {
        const float gate = __shfl_down_sync(ALL, g, away, BLOCK);
        run *= gate;
        const bool later = own + away < BLOCK;
        to.within[block][place][(place + toward * away) & (BLOCK - 1)] = later ? run : 0;
    }
    const float size = fabsf(g);
    const float growth = product_over_warp(size <= 1 ? 1 : isnan(size) ? INFINITY : size);
    const float fade = product_over_warp(size < 1 && size > 0 ? size : 1);
    const float heaviest = largest_over_warp(fabsf(raw.weight));
    if (i % 32 > 0) return;
    to.growth[warp] = growth, to.fade[warp] = fade, to.heaviest[warp] = heaviest;
    to.resets[warp] = resets, to.zeros[warp] = zeros;
}

/* What the blocks' totals make; the same threads, between two barriers. */
__device__ inline void finish_decays(Decays &to, const Course &course, int i)
{
    const int from = i / BLOCK, until = i % BLOCK;
    float product = 1;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++)
        if (block > from && block < until) product *= to.total[course.turned_block(block)];
    to.between[course.turned_block(from)][course.turned_block(until)] = from < until ? product : 0;
    if (from > 0) return;
    float before = 1, behind = 1;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const float total = to.total[course.turned_block(block)];
        if (block < until) before *= total;
        if (block > until) behind *= total;
    }
    to.before[course.turned_block(until)] = before;
    to.behind[course.turned_block(until)] = behind;
    if (until == 0) to.carry = behind * to.total[course.turned_block(0)];
}

/* Which states may meet the chunk's products: none where the gates or the inputs forbid it. */
__device__ inline void judge(Decays &to)
{
    const float growth = to.growth[0] * to.growth[1], heaviest = fmaxf(to.heaviest[0], to.heaviest[1]);
    float square = 0;
#pragma unroll
    for (int warp = 0; warp < RL_CHUNKS_WARPS; warp++) square = fmaxf(square, to.square[warp]);
    const bool fades = to.fade[0] * to.fade[1] < FADED;
    const bool is_steady = growth <= GROWTH_MOST && heaviest <= MOST_WEIGHT && square <= MOST_SQUARE;
    const bool is_moderate = heaviest <= MODERATE_WEIGHT && square <= MODERATE_SQUARE;
    to.most_state = !is_steady || (fades && !is_moderate) ? -1 : fades ? MODERATE_STATE : MOST_STATE;
    to.input = STEPS * GROWTH_MOST * heaviest * square;
}

} // namespace attention_chunks

#endif
