/* Tiles of linear attention's states in registers, and a step of them. */
#ifndef RL_CUDA_LINEAR_ATTENTION_WALK_CUH
#define RL_CUDA_LINEAR_ATTENTION_WALK_CUH

#include "linear_attention_inputs.cuh"

namespace attention
{

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
        const N input = rounded_product(beta, k[r]);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            S.at[r][c] = rounded_sum(rounded_product(g, S.at[r][c]), rounded_product(input, v[c]));
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
                for (int c = 0; c < COLUMNS; c++) part[c] = rounded_sum(part[c], rounded_product(S.at[r][c], q[r]));
            }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) total[c] = four == 0 ? part[c] : rounded_sum(total[c], part[c]);
    }
}

/* The same for any ROWS: fours by pairs, pairs in their order.  `part`: the first group's, the others `wide` on. */
template <int ROWS, typename N> __device__ inline N parts_of_keys(const N *part, int groups, int wide)
{
    N total = 0;
    if (ROWS > FOUR) {
        for (int g = 0; g < groups; g++) total = rounded_sum(total, part[g * wide]);
    } else {
        for (int g = 0; g < groups; g += 2)
            total = rounded_sum(total,
                                g + 1 < groups ? rounded_sum(part[g * wide], part[(g + 1) * wide]) : part[g * wide]);
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
