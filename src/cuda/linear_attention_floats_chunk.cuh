/* A chunk's tiles in shared memory, what they add to a state, and what goes back to memory. */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_CHUNK_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_CHUNK_CUH

#include <machine/held.cuh>

#include "linear_attention_floats_decays.cuh"
#include "linear_attention_floats_products.cuh"

namespace attention_floats
{

constexpr int STRIP = 16, STRIPS = STEPS / STRIP; /* steps of a warp */

template <int WIDE> struct Size {
    static constexpr int PITCH = WIDE + 4, TILE = STEPS * PITCH, STATE = WIDE * PITCH; /* in floats */
    static constexpr int DECAYS = (int)(sizeof(Decays) + 15) / 16 * 4;
};

/* Which chunk, and which of its threads.  Places are worked out anew where they are needed: registers are few. */
struct Task {
    const rl_floats_args &args;
    const int walk, chunk, thread, threads; /* walk: of [sequences, heads] */

    __device__ Task(const rl_floats_args &args, int walk, int chunk, int threads)
        : args(args), walk(walk), chunk(chunk), thread((int)threadIdx.x % threads), threads(threads)
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
    __device__ __forceinline__ int64_t first() const
    {
        return (int64_t)chunk * STEPS;
    }
    __device__ __forceinline__ int steps() const
    {
        const int64_t left = args.in.length - first();
        return left < STEPS ? (int)left : STEPS;
    }
    __device__ __forceinline__ int query_head() const
    {
        return head() / (int)args.in.share;
    }
    __device__ __forceinline__ int64_t place() const
    {
        return (int64_t)walk * args.chunks + chunk;
    }
    /* The chunk's first element of a head. */
    __device__ __forceinline__ int64_t at(const rl_attention_view &view, int head) const
    {
        return span().at(view, head, first());
    }
};

/* A tensor's rows of the chunk; what is not there is 0. */
template <int WIDE>
__device__ inline void load_rows(float *to, const rl_attention_view &view, bool wide, const Task &task, int head,
                                 int64_t lanes)
{
    const int64_t base = task.at(view, head);
    const int steps = task.steps();
    if (wide) {
        constexpr int PIECES = WIDE / 4;
        const int lane = task.thread % PIECES * 4, rows = task.threads / PIECES;
        const int bytes = lane + 4 <= lanes ? 16 : lane < lanes ? (int)(lanes - lane) * 4 : 0;
        const float *from = (const float *)view.data + base + (bytes > 0 ? lane : 0);
        int step = task.thread / PIECES;
        const int64_t on = rows * view.step;
        from += step * view.step;
        to += step * Size<WIDE>::PITCH + lane;
#pragma unroll 4
        for (; step < STEPS; step += rows, from += on, to += rows * Size<WIDE>::PITCH)
            copy_async_16_passing(to, step < steps ? from : (const float *)view.data, step < steps ? bytes : 0);
        return;
    }
    for (int i = task.thread; i < STEPS * WIDE; i += task.threads) {
        const int step = i / WIDE, lane = i % WIDE;
        to[step * Size<WIDE>::PITCH + lane] =
            step < steps && lane < lanes
                ? load_any<float>(view.data, view.dtype, base + step * view.step + lane * view.lane)
                : 0;
    }
}

/* A state of the workspace. */
template <int WIDE> __device__ inline void load_state(float *to, const float *from, const Task &task)
{
    for (int i = task.thread; i < WIDE * WIDE / 4; i += task.threads)
        copy_async_16(to + i / (WIDE / 4) * Size<WIDE>::PITCH + i % (WIDE / 4) * 4, from + i * 4, 16);
}

/* A state as the caller has it, 0 where there is none. */
template <int WIDE>
__device__ inline float state_number(const rl_attention_state &state, const rl_attention_inputs &in, int64_t walk,
                                     int key, int value)
{
    if (!state.data || key >= in.keys || value >= in.values) return 0;
    return load_any<float>(state.data, state.dtype,
                           walk / in.heads * state.sequence + walk % in.heads * state.head + key * state.key +
                               value * state.value);
}
__device__ inline void store_state_number(const rl_attention_state &state, const rl_attention_inputs &in,
                                          int64_t walk, int key, int value, float number)
{
    if (!state.data || key >= in.keys || value >= in.values) return;
    store_any(state.data, state.dtype,
              walk / in.heads * state.sequence + walk % in.heads * state.head + key * state.key + value * state.value,
              number);
}

/* Whether none of a tile's finite numbers is larger. */
template <int WIDE> __device__ inline bool is_within(const float *tile, int rows, float most, const Task &task)
{
    bool within = true;
    for (int i = task.thread; i < rows * WIDE; i += task.threads) {
        const float size = fabsf(tile[i / WIDE * Size<WIDE>::PITCH + i % WIDE]);
        within = within && (size <= most || !is_finite(size));
    }
    return within;
}
/* What is not finite becomes 0: then products give what it does not reach the bits that they have without it. */
template <int WIDE> __device__ inline void make_finite(float *tile, int rows, const Task &task)
{
    for (int i = task.thread; i < rows * WIDE; i += task.threads) {
        float &number = tile[i / WIDE * Size<WIDE>::PITCH + i % WIDE];
        if (!is_finite(number)) number = 0;
    }
}

/* Stays 0 while all numbers it meets are finite. */
template <int COUNT> __device__ __forceinline__ void look_at(float &finite, const float (&sums)[COUNT][4])
{
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) finite = fmaf(sums[n][i], 0.0f, finite);
}

/* Of a row's dealt columns a lane has two fours of neighbours in each 32; and where they lie. */
template <int COUNT> __device__ __forceinline__ float4 dealt_four(const float (&sums)[COUNT][4], int four, int half)
{
    const int n = four / 2 * 4, i = half * 2 + four % 2;
    return float4{sums[n][i], sums[n + 1][i], sums[n + 2][i], sums[n + 3][i]};
}
__device__ __forceinline__ int dealt_column(int four)
{
    return four / 2 * 32 + 4 * (four % 2 ? 4 + (pair_of_lane() ^ 1) : pair_of_lane());
}

/*
 * to [WIDE, WIDE] = Σ left_jᵀ weight_j right_j; the warps of a chunk share it out by 16 rows and up to 64 columns.
 * `pitch`: of `to`.  False where not all is finite.
 */
template <int WIDE>
__device__ __forceinline__ bool add_steps(float *to, int pitch, const float *left, const float *weights,
                                          const float *right, int warp)
{
    constexpr int PARTS = WIDE < 64 ? 64 / WIDE : 1, COLUMNS = WIDE / PARTS, TURNS = COLUMNS < 32 ? COLUMNS / 8 : 4;
    const int row = warp / PARTS * STRIP, column = warp % PARTS * COLUMNS;
    float sums[COLUMNS / 8][4];
    clear(sums);
#pragma unroll 2
    for (int from = 0; from < STEPS; from += 8) {
        Left a;
        columns_left<WIDE + 4>(a, left, from, row, weights);
#pragma unroll
        for (int first = 0; first < COLUMNS / 8; first += TURNS) {
            Right b[TURNS];
            columns_right<WIDE + 4>(b, right, from, column + first * 8);
            multiply(sums, first, a, b);
        }
    }
    float finite = 0;
    look_at(finite, sums);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *const at = to + (row + group_of_lane() + half * 8) * pitch + column;
        if constexpr (TURNS == 4) {
#pragma unroll
            for (int four = 0; four < COLUMNS / 8 / 2; four++)
                *(float4 *)(at + dealt_column(four)) = dealt_four(sums, four, half);
        } else {
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                *(float2 *)(at + n * 8 + 2 * pair_of_lane()) = float2{sums[n][half * 2], sums[n][half * 2 + 1]};
        }
    }
    return finite == 0;
}

/* A state passes a chunk: first + second is the product of its gates. */
__device__ __forceinline__ float passed(float first, float second, float state, float sum)
{
    return fmaf(first, state, fmaf(second, state, sum));
}

/* Rows of a strip times `factor`. */
template <int COUNT> __device__ __forceinline__ void scale_rows(float (&sums)[COUNT][4], const float *factor)
{
    const float upper = factor[group_of_lane()], lower = factor[group_of_lane() + 8];
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        sums[n][0] *= upper, sums[n][1] *= upper;
        sums[n][2] *= lower, sums[n][3] *= lower;
    }
}
template <int COUNT> __device__ __forceinline__ void scale_all(float (&sums)[COUNT][4], float factor)
{
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] *= factor;
}

/* A strip of two eights of columns, which are earlier steps, times D_tj β_j. */
__device__ __forceinline__ void weigh_earlier(float (&sums)[2][4], const Decays &d, int strip, int column)
{
    const int row = strip * STRIP + group_of_lane();
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int block = column / BLOCK + n, early = 2 * pair_of_lane();
        if (column < strip * STRIP) {
            const float2 worth = *(const float2 *)(d.worth + block * BLOCK + early);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float until = d.until[row + half * 8] * d.between[block][2 * strip + half];
                sums[n][half * 2] *= until * worth.x;
                sums[n][half * 2 + 1] *= until * worth.y;
            }
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[n][i] *= d.from_to(block, early + i % 2, 2 * strip + i / 2, group_of_lane()) *
                          d.beta[block * BLOCK + early + i % 2];
    }
}
/* The same where columns are later ones: times D_tj of the row, and a number. */
__device__ __forceinline__ void weigh_later(float (&sums)[2][4], const Decays &d, int strip, int column, float number)
{
    const int row = strip * STRIP + group_of_lane();
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int block = column / BLOCK + n, late = 2 * pair_of_lane();
        if (column > strip * STRIP) {
            const float2 until = *(const float2 *)(d.until + block * BLOCK + late);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float after = d.after[row + half * 8] * d.between[2 * strip + half][block] * number;
                sums[n][half * 2] *= after * until.x;
                sums[n][half * 2 + 1] *= after * until.y;
            }
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[n][i] *= d.from_to(2 * strip + i / 2, group_of_lane(), block, late + i % 2) * number;
    }
}

/* Neighbours of a row; `wide`: in one piece where all are there. */
template <int COUNT>
__device__ __forceinline__ void store_lanes(const float (&number)[COUNT], const rl_attention_view &view, bool wide,
                                            int64_t at, int64_t lanes)
{
    if (wide && lanes >= COUNT) {
        if constexpr (COUNT == 4)
            *(float4 *)((float *)view.data + at) = float4{number[0], number[1], number[2], number[3]};
        else
            *(float2 *)((float *)view.data + at) = float2{number[0], number[1]};
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (i < lanes) store_any(view.data, view.dtype, at + i * view.lane, number[i]);
}

/* A strip's rows to a tensor by time, their columns, dealt or not, from `column` on. */
template <bool DEALT, int COUNT>
__device__ __forceinline__ void store_rows(const float (&sums)[COUNT][4], const rl_attention_view &view, bool wide,
                                           const Task &task, int head, int64_t lanes, int strip, int column)
{
    const int64_t base = task.at(view, head);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int step = strip * STRIP + group_of_lane() + half * 8;
        if (step >= task.steps()) continue;
        if constexpr (DEALT && COUNT % 4 == 0) {
#pragma unroll
            for (int four = 0; four < COUNT / 2; four++) {
                const int lane = column + dealt_column(four);
                const float4 own = dealt_four(sums, four, half);
                store_lanes({own.x, own.y, own.z, own.w}, view, wide, base + step * view.step + lane * view.lane,
                            lanes - lane);
            }
        } else {
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
                const int lane = column + n * 8 + 2 * pair_of_lane();
                store_lanes({sums[n][half * 2], sums[n][half * 2 + 1]}, view, wide,
                            base + step * view.step + lane * view.lane, lanes - lane);
            }
        }
    }
}

} // namespace attention_floats

#endif
