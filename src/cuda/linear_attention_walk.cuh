/* What the kernels of linear attention share: the step's arithmetic, tiles of states, and inputs of some steps. */
#ifndef RL_CUDA_LINEAR_ATTENTION_WALK_CUH
#define RL_CUDA_LINEAR_ATTENTION_WALK_CUH

#include "elements.cuh"
#include "linear_attention_args.h"

namespace attention
{

/* Rounded one by one, as the plain loop does: the compiler fuses nothing. */
__device__ inline float product(float x, float y)
{
    return __fmul_rn(x, y);
}
__device__ inline double product(double x, double y)
{
    return __dmul_rn(x, y);
}
__device__ inline float sum(float x, float y)
{
    return __fadd_rn(x, y);
}
__device__ inline double sum(double x, double y)
{
    return __dadd_rn(x, y);
}
__device__ inline bool is_finite(float x)
{
    return fabsf(x) < __int_as_float(0x7f800000);
}
__device__ inline bool is_finite(double x)
{
    return fabs(x) < __longlong_as_double(0x7ff0000000000000);
}

/* Where a sequence lies: row of the batch, first step in time, number of steps. */
struct Span {
    int64_t row, begin, count;
    bool down;

    __device__ Span(const rl_attention_inputs &in, int64_t sequence)
        : row(sequence), begin(0), count(in.length), down(in.down)
    {
        if (!in.offsets) return;
        const int64_t *from = in.offsets + sequence * in.offsets_stride;
        row = 0;
        begin = clamped(from[0], in.length);
        count = clamped(from[in.offsets_stride], in.length) - begin;
        if (count < 0) count = 0;
    }
    __device__ static int64_t clamped(int64_t value, int64_t most)
    {
        return value < 0 ? 0 : value > most ? most : value;
    }
    /* The element of the i-th step run; from there the view's own step leads on. */
    __device__ int64_t at(const rl_attention_view &view, int64_t head, int64_t i) const
    {
        const int64_t first = down ? -(begin + count - 1) : begin;
        return row * view.batch + (first + i) * view.step + head * view.head;
    }
    /* The i-th step run, as a row of [batch, length]. */
    __device__ int64_t time(int64_t length, int64_t i) const
    {
        return row * length + (down ? begin + count - 1 - i : begin + i);
    }
};

/* The gate of the i-th step run.  reset: what was before is dropped, or there is nothing; then value is 1. */
template <typename N> struct Factor {
    N value;
    bool reset;

    __device__ Factor(const rl_attention_inputs &in, const Span &span, int64_t head, int64_t i)
        : value(1), reset(i == 0 && !in.S_init.data)
    {
        if (reset || !in.gate.data) return;
        const N gate = load_any<N>(in.gate.data, in.gate.dtype, span.at(in.gate, head, i));
        reset = in.gate_is_log ? gate == -INFINITY : gate == 0;
        if (!reset) value = in.gate_is_log ? (N)exp((double)gate) : gate; /* rounded once from float64 */
    }
};

template <typename N>
__device__ inline N beta_at(const rl_attention_inputs &in, const Span &span, int64_t head, int64_t i)
{
    return in.beta.data ? load_any<N>(in.beta.data, in.beta.dtype, span.at(in.beta, head, i)) : (N)1;
}

/* Neighbours that are one access of 16 bytes. */
template <typename N> struct alignas(16) Pack {
    static constexpr int COUNT = 16 / sizeof(N);
    N lane[COUNT];
};

template <typename N, int COUNT> __device__ inline void read_run(N (&to)[COUNT], const N *from)
{
    constexpr int EACH = Pack<N>::COUNT;
    if constexpr (COUNT % EACH == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i += EACH) {
            const Pack<N> pack = *(const Pack<N> *)(from + i);
#pragma unroll
            for (int k = 0; k < EACH; k++) to[i + k] = pack.lane[k];
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = from[i];
    }
}

template <typename N, int COUNT> __device__ inline void write_run(N *to, const N (&from)[COUNT])
{
    constexpr int EACH = Pack<N>::COUNT;
    if constexpr (COUNT % EACH == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i += EACH) {
            Pack<N> pack;
#pragma unroll
            for (int k = 0; k < EACH; k++) pack.lane[k] = from[i + k];
            *(Pack<N> *)(to + i) = pack;
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = from[i];
    }
}

/* Which part of which state a thread has, in a tile of a block. */
template <int ROWS, int COLUMNS> struct Place {
    int64_t sequence, head;
    int64_t panel_key, slab_value; /* the tile's first */
    int tile_rows, tile_columns;   /* that exist */
    int group, column, row;        /* the thread's; the latter two its first within the tile */
    int rows, columns;             /* that exist of its own */
    bool works;                    /* threads beyond the groups have nothing */

    __device__ Place(const rl_attention_inputs &in, int64_t sequence, int64_t head, int64_t panel, int64_t slab)
        : sequence(sequence), head(head)
    {
        const int high = in.row_groups * ROWS, wide = in.column_threads * COLUMNS;
        panel_key = panel * high;
        slab_value = slab * wide;
        tile_rows = limited(in.keys - panel_key, high);
        tile_columns = limited(in.values - slab_value, wide);
        group = (int)threadIdx.x / in.column_threads;
        works = group < in.row_groups;
        row = works ? group * ROWS : 0;
        column = works ? (int)threadIdx.x % in.column_threads * COLUMNS : 0;
        rows = works ? limited(tile_rows - row, ROWS) : 0;
        columns = works ? limited(tile_columns - column, COLUMNS) : 0;
    }
    __device__ static int limited(int64_t left, int most)
    {
        return left < 0 ? 0 : left < most ? (int)left : most;
    }
    __device__ int64_t at(const rl_attention_state &state) const
    {
        return sequence * state.sequence + head * state.head + (panel_key + row) * state.key +
               (slab_value + column) * state.value;
    }
};

/* A thread's part of a state.  What does not exist of it is zero, and stays out of every sum. */
template <typename N, int ROWS, int COLUMNS> struct Tile {
    typedef attention::Place<ROWS, COLUMNS> Place;
    N at[ROWS][COLUMNS];

    __device__ void fill(N value)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) at[r][c] = value;
    }
    /* Of wide states, by threads that have all of their columns; others have nothing. */
    __device__ void load_wide(const rl_attention_state &state, const Place &place)
    {
        const N *from = (const N *)state.data + place.at(state);
        fill(0);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < place.rows && place.columns == COLUMNS) read_run(at[r], from + r * state.key);
    }
    __device__ void store_wide(const rl_attention_state &state, const Place &place) const
    {
        N *to = (N *)state.data + place.at(state);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < place.rows && place.columns == COLUMNS) write_run(to + r * state.key, at[r]);
    }
    __device__ void load(const rl_attention_state &state, const Place &place)
    {
        const int64_t base = place.at(state);
        if (COLUMNS > 1 && state.wide && place.columns == COLUMNS) {
            load_wide(state, place);
        } else if (state.dtype == RILL_F64) {
            load_as((const double *)state.data + base, state, place);
        } else if (state.dtype == RILL_F32) {
            load_as((const float *)state.data + base, state, place);
        } else if (state.dtype == RILL_BF16) {
            load_as((const bf16 *)state.data + base, state, place);
        } else {
            load_as((const f16 *)state.data + base, state, place);
        }
    }
    __device__ void store(const rl_attention_state &state, const Place &place) const
    {
        const int64_t base = place.at(state);
        if (COLUMNS > 1 && state.wide && place.columns == COLUMNS) {
            store_wide(state, place);
        } else if (state.dtype == RILL_F64) {
            store_as((double *)state.data + base, state, place);
        } else if (state.dtype == RILL_F32) {
            store_as((float *)state.data + base, state, place);
        } else if (state.dtype == RILL_BF16) {
            store_as((bf16 *)state.data + base, state, place);
        } else {
            store_as((f16 *)state.data + base, state, place);
        }
    }

  private:
    template <typename T> __device__ void load_as(const T *from, const rl_attention_state &state, const Place &place)
    {
        T raw[ROWS][COLUMNS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                raw[r][c] = r < place.rows && c < place.columns ? from[r * state.key + c * state.value] : T{};
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) at[r][c] = (N)widen(raw[r][c]);
    }
    template <typename T> __device__ void store_as(T *to, const rl_attention_state &state, const Place &place) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (r < place.rows && c < place.columns) to[r * state.key + c * state.value] = narrow<T>(at[r][c]);
    }
};

__device__ inline void copy_bits(void *to, int64_t to_at, const void *from, int64_t from_at, int dtype)
{
    if (dtype == RILL_F64)
        ((uint64_t *)to)[to_at] = ((const uint64_t *)from)[from_at];
    else if (dtype == RILL_F32)
        ((uint32_t *)to)[to_at] = ((const uint32_t *)from)[from_at];
    else
        ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
}

/* What enters an empty sequence leaves it, bit for bit where the types are the same; zero where nothing enters. */
template <typename N, int ROWS, int COLUMNS>
__device__ inline void pass_on(const rl_attention_state &to, const rl_attention_state &from,
                               const Place<ROWS, COLUMNS> &place)
{
    if (!to.data) return;
    const int64_t to_base = place.at(to), from_base = place.at(from);
    for (int r = 0; r < place.rows; r++)
        for (int c = 0; c < place.columns; c++) {
            const int64_t to_at = to_base + r * to.key + c * to.value;
            const int64_t from_at = from_base + r * from.key + c * from.value;
            if (from.data && from.dtype == to.dtype)
                copy_bits(to.data, to_at, from.data, from_at, to.dtype);
            else
                store_any(to.data, to.dtype, to_at, from.data ? load_any<N>(from.data, from.dtype, from_at) : (N)0);
        }
}

/* Rows of a tensor by time into shared memory, by all threads: some loads in flight before the first store. */
template <typename T, typename N>
__device__ inline void stage_as(N *to, int pitch, const T *from, int64_t step_stride, int64_t lane_stride, int steps,
                                int count)
{
    constexpr int BATCH = 4;
    const int threads = (int)blockDim.x, steps_on = threads / count, lanes_on = threads % count;
    int step = (int)threadIdx.x / count, lane = (int)threadIdx.x % count;
    while (step < steps) {
        T raw[BATCH] = {};
        int place[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            place[j] = step < steps ? step * pitch + lane : -1;
            if (step < steps) raw[j] = from[step * step_stride + lane * lane_stride];
            step += steps_on;
            lane += lanes_on;
            if (lane >= count) lane -= count, step++;
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (place[j] >= 0) to[place[j]] = (N)widen(raw[j]);
    }
}

/* `at`: the element of the first step and lane. */
template <typename N>
__device__ inline void stage(N *to, int pitch, const rl_attention_view &view, int64_t at, int64_t step_stride,
                             int steps, int count)
{
    if (count == 0) return;
    switch (view.dtype) {
    case RILL_F64:
        stage_as(to, pitch, (const double *)view.data + at, step_stride, view.lane, steps, count);
        break;
    case RILL_F32:
        stage_as(to, pitch, (const float *)view.data + at, step_stride, view.lane, steps, count);
        break;
    case RILL_BF16:
        stage_as(to, pitch, (const bf16 *)view.data + at, step_stride, view.lane, steps, count);
        break;
    default:
        stage_as(to, pitch, (const f16 *)view.data + at, step_stride, view.lane, steps, count);
        break;
    }
}

/* Inputs of some steps in shared memory. */
template <typename N> struct Inputs {
    int high, wide;          /* of a whole tile */
    N *q, *k;                /* [steps][high] */
    N *v;                    /* [steps][wide] */
    N *value, *reset, *beta; /* [steps]: the gate, 1 where it is a reset or 0, beta */

    /* Steps first .. first + steps - 1 in the order of running. */
    template <typename Place>
    __device__ void load(const rl_attention_inputs &in, const Span &span, const Place &place, int64_t first,
                         int steps, bool with_q)
    {
        const int64_t query_head = place.head / in.share;
        if (with_q)
            stage(q, high, in.q, span.at(in.q, query_head, first) + place.panel_key * in.q.lane, in.q.step, steps,
                  place.tile_rows);
        stage(k, high, in.k, span.at(in.k, query_head, first) + place.panel_key * in.k.lane, in.k.step, steps,
              place.tile_rows);
        stage(v, wide, in.v, span.at(in.v, place.head, first) + place.slab_value * in.v.lane, in.v.step, steps,
              place.tile_columns);
        for (int step = (int)threadIdx.x; step < steps; step += (int)blockDim.x) {
            const Factor<N> factor(in, span, place.head, first + step);
            value[step] = factor.value;
            reset[step] = factor.reset ? 1 : 0;
            beta[step] = beta_at<N>(in, span, place.head, first + step);
        }
    }
};

/*
 * S = g S + (beta k) v for a thread's part.  After a reset S is -0 and g is 1, which leaves exactly the input, also
 * where that is -0.
 */
template <typename N, int ROWS, int COLUMNS>
__device__ inline void take_step(Tile<N, ROWS, COLUMNS> &S, N g, bool reset, N beta, const N (&k)[ROWS],
                                 const N (&v)[COLUMNS])
{
    if (reset) S.fill((N)-0.0);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const N input = product(beta, k[r]);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) S.at[r][c] = sum(product(g, S.at[r][c]), product(input, v[c]));
    }
}

/* A step with inputs from shared memory. */
template <typename N, int ROWS, int COLUMNS>
__device__ inline void advance(Tile<N, ROWS, COLUMNS> &S, const Inputs<N> &inputs, const Place<ROWS, COLUMNS> &place,
                               int step)
{
    N k[ROWS], v[COLUMNS];
    read_run(k, inputs.k + step * inputs.high + place.row);
    read_run(v, inputs.v + step * inputs.wide + place.column);
    take_step(S, inputs.value[step], inputs.reset[step] != 0, inputs.beta[step], k, v);
}

/*
 * S q over a thread's keys, which are added by fours, and these in their order; parts_of_keys adds up those of all
 * threads.
 */
constexpr int FOUR = 4;

template <typename N, int ROWS, int COLUMNS>
__device__ inline void read_state(N (&total)[COLUMNS], const Tile<N, ROWS, COLUMNS> &S, const N (&q)[ROWS], int rows)
{
#pragma unroll
    for (int four = 0; four < ROWS; four += FOUR) {
        N part[COLUMNS] = {};
#pragma unroll
        for (int r = four; r < four + FOUR; r++)
            if (r < rows) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) part[c] = sum(part[c], product(S.at[r][c], q[r]));
            }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) total[c] = four == 0 ? part[c] : sum(total[c], part[c]);
    }
}

/* The same for any ROWS: fours by pairs, pairs in their order.  `part`: the first group's, the others `wide` on. */
template <int ROWS, typename N> __device__ inline N parts_of_keys(const N *part, int groups, int wide)
{
    N total = 0;
    if (ROWS > FOUR) {
        for (int g = 0; g < groups; g++) total = sum(total, part[g * wide]);
    } else {
        for (int g = 0; g < groups; g += 2)
            total = sum(total, g + 1 < groups ? sum(part[g * wide], part[(g + 1) * wide]) : part[g * wide]);
    }
    return total;
}

/* Where the counts stay below 2^32, as they do but for giants, the division is much shorter. */
__device__ inline int64_t divide(int64_t count, int64_t unit)
{
    return (count | unit) <= UINT32_MAX ? (uint32_t)count / (uint32_t)unit : count / unit;
}

} // namespace attention

#endif
