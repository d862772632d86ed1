/*
 * What the strips of a short head have in common (linear_attention_floats_strips.h): tiles of all of its steps, and
 * the products of its gates, which are those of linear_attention_floats_decays.cuh.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_STRIPS_CUH

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_floats_strips.h"

namespace attention_floats
{

constexpr int SHORT = RL_STRIPS_MOST_STEPS, SHORT_WIDE = RL_FLOATS_NARROW, SHORT_PITCH = SHORT_WIDE + 4,
              SHORT_TILES = SHORT / STRIP, SHORT_WARPS = SHORT / 32;
/* A warp whose gates are all between the first and 1, or 0, takes the second for how far they fade: .6 to the 32. */
constexpr float LEAST_STEADY = 0.6f;
constexpr double STEADY_FADE = 0x1p-24;

/* Of all steps; finite where a gate or beta is not. */
struct Gates {
    float gate[SHORT], beta[SHORT];
    float until[SHORT], after[SHORT]; /* from the begin of its block through the step, and behind it */
    float total[SHORT / BLOCK];
    double growth[SHORT_WARPS], fade[SHORT_WARPS];
    bool heavy[SHORT_WARPS], special[SHORT_WARPS];
    uint8_t kinds[SHORT]; /* where a head is walked */

    __device__ __forceinline__ bool is_steady() const
    {
        return (growth[0] * growth[1]) * (growth[2] * growth[3]) <= GROWTH_MOST;
    }
    __device__ __forceinline__ bool fades() const
    {
        return (fade[0] * fade[1]) * (fade[2] * fade[3]) < FADED;
    }
    __device__ __forceinline__ bool is_heavy() const
    {
        return heavy[0] || heavy[1] || heavy[2] || heavy[3];
    }
    __device__ __forceinline__ bool is_special() const
    {
        return special[0] || special[1] || special[2] || special[3];
    }
};

constexpr int GATES_BYTES = (int)(sizeof(Gates) + 15) / 16 * 16;

/* SHORT threads, each with a step; those from `steps` on are not looked at. */
__device__ __forceinline__ void start_gates(Gates &to, const rl_attention_inputs &in, const Span &span, int64_t head,
                                            int steps, int i)
{
    const int own = i % BLOCK, warp = i / 32;
    float g = 1, beta = 0;
    bool special = false;
    if (i < steps) {
        const attention::Factor<float> factor(in, span, head, i);
        g = factor.reset ? 0 : factor.value;
        beta = attention::beta_at<float>(in, span, head, i);
        special = !is_finite(g) || !is_finite(beta);
        if (!is_finite(g)) g = 1;
        if (!is_finite(beta)) beta = 0;
    }
    const auto [until, after] = attention::running_products<BLOCK>(g, own);
    to.gate[i] = g;
    to.beta[i] = beta;
    to.until[i] = until;
    to.after[i] = after;
    if (own == BLOCK - 1) to.total[i / BLOCK] = until;
    const float size = fabsf(g);
    double growth = 1, fade = STEADY_FADE;
    if (__any_sync(ALL, size > 1 || (size < LEAST_STEADY && size > 0))) {
        growth = product_over_warp(size <= 1 ? 1 : size);
        fade = product_over_warp(size < 1 && size > 0 ? size : 1);
    }
    const bool heavy = __any_sync(ALL, fabsf(beta) > MODERATE_WEIGHT);
    special = __any_sync(ALL, special);
    if (i % 32 > 0) return;
    to.growth[warp] = growth, to.fade[warp] = fade;
    to.heavy[warp] = heavy, to.special[warp] = special;
}

/* Rows [0, rows) of a tensor by `threads` threads: those from `steps` on, and lanes that are not there, are 0. */
__device__ __forceinline__ void load_steps(float *to, const rl_attention_view &view, bool wide, int64_t base,
                                           int rows, int steps, int lanes, int thread, int threads)
{
    if (wide) {
        constexpr int PIECES = SHORT_WIDE / 4;
        const int lane = thread % PIECES * 4, on = threads / PIECES;
        const int bytes = lane + 4 <= lanes ? 16 : lane < lanes ? (lanes - lane) * 4 : 0;
        const float *const data = (const float *)view.data;
        const float *from = data + base + (bytes > 0 ? lane : 0) + thread / PIECES * view.step;
        to += thread / PIECES * SHORT_PITCH + lane;
#pragma unroll 4
        for (int step = thread / PIECES; step < rows; step += on, from += on * view.step, to += on * SHORT_PITCH)
            copy_async_16(to, step < steps ? from : data, step < steps ? bytes : 0);
        return;
    }
#pragma unroll 1
    for (int i = thread; i < rows * SHORT_WIDE; i += threads) {
        const int step = i / SHORT_WIDE, lane = i % SHORT_WIDE;
        to[step * SHORT_PITCH + lane] =
            step < steps && lane < lanes
                ? load_any<float>(view.data, view.dtype, base + step * view.step + lane * view.lane)
                : 0;
    }
}

/* By all threads of the block. */
__device__ inline bool rows_are_within(const float *tile, int rows)
{
    bool within = true;
    for (int i = (int)threadIdx.x; i < rows * SHORT_WIDE; i += (int)blockDim.x) {
        const float size = fabsf(tile[i / SHORT_WIDE * SHORT_PITCH + i % SHORT_WIDE]);
        within = within && (size <= MODERATE_INPUT || !is_finite(size));
    }
    return within;
}
__device__ inline void make_rows_finite(float *tile, int rows)
{
    for (int i = (int)threadIdx.x; i < rows * SHORT_WIDE; i += (int)blockDim.x) {
        float &number = tile[i / SHORT_WIDE * SHORT_PITCH + i % SHORT_WIDE];
        if (!is_finite(number)) number = 0;
    }
}

/* sums [16, 16] = left, rows from `row` on, times right, rows from `column` on, turned; `lanes` of them count. */
__device__ __forceinline__ void multiply_short_rows(float (&sums)[2][4], const float *left, int row,
                                                    const float *right, int column, int lanes)
{
    float first[2][4], second[2][4]; /* products of a small part */
    clear(sums);
    clear(first);
    clear(second);
#pragma unroll
    for (int from = 0; from < SHORT_WIDE; from += 8) {
        if (from >= lanes) break;
        Left a;
        Right b[2];
        rows_left<SHORT_PITCH>(a, left, row, from);
        rows_right<SHORT_PITCH>(b[0], b[1], right, column, from);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            product_of_warp<TF32>(first[n], a.small, b[n].big);
            product_of_warp<TF32>(sums[n], a.big, b[n].big);
            product_of_warp<TF32>(second[n], a.big, b[n].small);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += first[n][i] + second[n][i];
}

/* sums [16, 32] += weights [16, 16] times 16 rows of the right tile; `lanes` of its columns count. */
__device__ __forceinline__ void multiply_short_sums(float (&sums)[4][4], const float (&weights)[2][4],
                                                    const float *right, int from, int lanes)
{
    float small[4][4];
    clear(small);
    Left a[2];
    sums_left(a[0], weights[0]);
    sums_left(a[1], weights[1]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (n * 8 >= lanes) break;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            Right b;
            columns_right<SHORT_PITCH>(b, right, from + k * 8, n * 8);
            product_of_warp<TF32>(small[n], a[k].small, b.big);
            product_of_warp<TF32>(sums[n], a[k].big, b.big);
            product_of_warp<TF32>(small[n], a[k].big, b.small);
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] += small[n][i];
}

/*
 * The products of gates between the steps of two tiles of 16, rows by columns: D[n][half] of row group + 8 half and
 * columns 8 n + 2 pair and the next one.  `later`: columns are the later steps, else rows are; 0 against time.
 */
__device__ __forceinline__ void find_decays(float (&D)[2][2][2], const Gates &d, int rows, int columns, bool later)
{
    const int row = rows * STRIP + group_of_lane(), column = columns * STRIP + 2 * pair_of_lane();
    const float *const of_row = later ? d.after : d.until, *const of_column = later ? d.until : d.after;
    const float own[2] = {of_row[row], of_row[row + 8]};
    const float2 there[2] = {*(const float2 *)(of_column + column), *(const float2 *)(of_column + column + 8)};
    const int low = later ? rows : columns, high = later ? columns : rows;
    float between = 1;
    for (int block = 2 * low + 2; block < 2 * high; block++) between *= d.total[block];
    const float from_first = low < high ? between * d.total[2 * low + 1] : 1, to_last = d.total[2 * high];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int early = later ? half : n, late = later ? n : half;
            float whole = early == 0 ? from_first : between;
            if (low < high && late == 1) whole *= to_last;
            if (low == high && early > late) whole = 0;
            D[n][half][0] = own[half] * whole * there[n].x;
            D[n][half][1] = own[half] * whole * there[n].y;
        }
    if (low < high) return;
#pragma unroll
    for (int n = 0; n < 2; n++) { /* within a block */
        const float *const gate = d.gate + low * STRIP + n * BLOCK;
        const int mine = group_of_lane(), pair = 2 * pair_of_lane();
        const int begin = later ? mine : pair + 1, end = later ? pair : mine;
        float run = 1;
#pragma unroll
        for (int i = 1; i < BLOCK; i++)
            if (i > begin && i <= end) run *= gate[i];
        const float more = run * gate[pair + 1];
        if (later) {
            D[n][n][0] = mine <= pair ? run : 0;
            D[n][n][1] = mine <= pair ? more : mine == pair + 1 ? 1 : 0;
        } else {
            D[n][n][0] = mine > pair ? more : mine == pair ? 1 : 0;
            D[n][n][1] = mine > pair ? run : 0;
        }
    }
}

/* A strip by other steps, earlier ones and its own times D β of theirs, later ones and its own times D. */
__device__ __forceinline__ void weigh_tile(float (&sums)[2][4], const Gates &d, int strip, int tile, bool later)
{
    float D[2][2][2];
    find_decays(D, d, strip, tile, later);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const float2 beta = *(const float2 *)(d.beta + tile * STRIP + n * 8 + 2 * pair_of_lane());
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sums[n][half * 2] *= later ? D[n][half][0] : D[n][half][0] * beta.x;
            sums[n][half * 2 + 1] *= later ? D[n][half][1] : D[n][half][1] * beta.y;
        }
    }
}

/* What a warp has of a strip's [16, 32], to be added up. */
__device__ __forceinline__ void store_part(float *to, const float (&sums)[4][4])
{
    to += group_of_lane() * SHORT_PITCH + 2 * pair_of_lane();
#pragma unroll
    for (int n = 0; n < 4; n++) {
        *(float2 *)(to + n * 8) = float2{sums[n][0], sums[n][1]};
        *(float2 *)(to + 8 * SHORT_PITCH + n * 8) = float2{sums[n][2], sums[n][3]};
    }
}
/* Two neighbours' sum over the parts [from, until). */
__device__ __forceinline__ float2 add_parts(const float *part, int from, int until)
{
    float2 total = {0, 0};
#pragma unroll
    for (int tile = 0; tile < SHORT_TILES; tile++)
        if (tile >= from && tile < until) {
            const float2 own = *(const float2 *)(part + tile * STRIP * SHORT_PITCH);
            total.x += own.x, total.y += own.y;
        }
    return total;
}

} // namespace attention_floats

#endif
