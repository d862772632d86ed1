/*
 * One step of linear attention for each sequence, as decoding takes it: the states are read and written once, and
 * nothing else is of any size.
 *
 *     block  = a slab of values of one head of one sequence, all keys
 *     thread = ROWS keys by COLUMNS values, as in linear_attention_walk.cu, and the sums in the same order
 *
 * All of a thread's loads are issued before the first of them is needed, and where inputs lie as they mostly do, in a
 * few pieces; for what a head takes is little more than one such wait.  Shared memory holds sums over keys only.
 */
#include <machine/ahead.cuh>
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_walk.cuh"

namespace
{

using namespace attention;

constexpr int ROWS = RL_ATTENTION_ROWS;

/* Some neighbours of a row as they lie, in pieces of 16 bytes, or of 8 where that is all. */
template <typename T, int COUNT> struct Run {
    static constexpr int WORDS = COUNT * (int)sizeof(T) / 4;
    uint32_t word[WORDS];

    __device__ __forceinline__ void load(const rl_attention_view &view, int64_t at, bool given)
    {
        const T *from = (const T *)view.data + at;
#pragma unroll
        for (int i = 0; i < WORDS; i++) word[i] = 0;
        if (!given) return;
        if constexpr (WORDS == 2) {
            const uint2 piece = *(const uint2 *)from;
            word[0] = piece.x, word[1] = piece.y;
        } else {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) {
                const uint4 piece = ((const uint4 *)from)[i / 4];
                word[i] = piece.x, word[i + 1] = piece.y, word[i + 2] = piece.z, word[i + 3] = piece.w;
            }
        }
    }
    template <typename N> __device__ __forceinline__ void widen_to(N (&to)[COUNT]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if constexpr (sizeof(T) == 4)
                to[i] = __uint_as_float(word[i]);
            else
                to[i] = widen(T{(uint16_t)(word[i / 2] >> i % 2 * 16)});
        }
    }
};

template <typename T, typename N, int COUNT>
__device__ inline void load_lanes_as(N (&to)[COUNT], const T *from, int64_t stride, int count)
{
    T raw[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) raw[i] = i < count ? from[i * stride] : T{};
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[i] = (N)widen(raw[i]);
}

/* Some lanes of the step's row of a head, from the first-th on, as they may lie. */
template <typename N, int COUNT>
__device__ inline void load_lanes(N (&to)[COUNT], const rl_attention_view &view, int64_t batch, int64_t head,
                                  int64_t first, int count)
{
    const int64_t at = batch * view.batch + head * view.head + first * view.lane;
    if constexpr (sizeof(N) == 8) {
        load_lanes_as(to, (const double *)view.data + at, view.lane, count);
    } else {
        if (view.dtype == RILL_F32)
            load_lanes_as(to, (const float *)view.data + at, view.lane, count);
        else if (view.dtype == RILL_BF16)
            load_lanes_as(to, (const bf16 *)view.data + at, view.lane, count);
        else
            load_lanes_as(to, (const f16 *)view.data + at, view.lane, count);
    }
}

/* A thread's inputs: of activations T that lie in pieces (linear_attention_kernels.h), or, where T is void, of any.
 */
template <typename T, typename N, int COLUMNS> struct StepInputs {
    typedef attention::Place<ROWS, COLUMNS> Place;
    static constexpr bool WHOLE = true; /* rows are all there, or none is */
    Run<T, ROWS> q, k;
    Run<T, COLUMNS> v;

    __device__ __forceinline__ void load(const rl_attention_inputs &in, const Place &place, int64_t key,
                                         int64_t query_head)
    {
        const bool rows = place.rows == ROWS, columns = place.columns == COLUMNS;
        k.load(in.k, place.sequence * in.k.batch + query_head * in.k.head + key, rows);
        v.load(in.v, place.sequence * in.v.batch + place.head * in.v.head + place.slab_value + place.column, columns);
        q.load(in.q, place.sequence * in.q.batch + query_head * in.q.head + key, rows);
    }
    __device__ __forceinline__ void widen_to(N (&to_q)[ROWS], N (&to_k)[ROWS], N (&to_v)[COLUMNS]) const
    {
        k.widen_to(to_k);
        v.widen_to(to_v);
        q.widen_to(to_q);
    }
};
template <typename N, int COLUMNS> struct StepInputs<void, N, COLUMNS> {
    typedef attention::Place<ROWS, COLUMNS> Place;
    static constexpr bool WHOLE = false;
    N q[ROWS], k[ROWS], v[COLUMNS];

    __device__ void load(const rl_attention_inputs &in, const Place &place, int64_t key, int64_t query_head)
    {
        load_lanes(k, in.k, place.sequence, query_head, key, place.rows);
        load_lanes(v, in.v, place.sequence, place.head, place.slab_value + place.column, place.columns);
        load_lanes(q, in.q, place.sequence, query_head, key, place.rows);
    }
    __device__ void widen_to(N (&to_q)[ROWS], N (&to_k)[ROWS], N (&to_v)[COLUMNS]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) to_q[i] = q[i], to_k[i] = k[i];
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) to_v[i] = v[i];
    }
};

/* Brings a state into the L2 cache: that may begin before earlier work is done, as the cache sees what it writes. */
template <typename N, int COLUMNS>
__device__ __forceinline__ void bring_state_near(const rl_attention_state &state, const Place<ROWS, COLUMNS> &place)
{
    constexpr int LINE = 128 / (int)sizeof(N); /* numbers */
    if (!state.data || place.columns < COLUMNS || place.column % LINE > 0) return;
    const N *const from = (const N *)state.data + place.at(state);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < place.rows) bring_near(from + r * state.key);
}

/* A state's rows pass by once: they stay out of the first cache. */
template <typename N, int COLUMNS>
__device__ __forceinline__ void load_passing(Tile<N, ROWS, COLUMNS> &S, const rl_attention_state &state,
                                             const Place<ROWS, COLUMNS> &place)
{
    static_assert(COLUMNS * sizeof(N) == sizeof(float4), "one access");
    const N *const from = (const N *)state.data + place.at(state);
    S.fill(0);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= place.rows || place.columns < COLUMNS) continue;
        const float4 four = __ldcg((const float4 *)(from + r * state.key));
        memcpy(S.at[r], &four, sizeof four);
    }
}
template <typename N, int COLUMNS>
__device__ __forceinline__ void store_passing(const Tile<N, ROWS, COLUMNS> &S, const rl_attention_state &state,
                                              const Place<ROWS, COLUMNS> &place)
{
    N *const to = (N *)state.data + place.at(state);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= place.rows || place.columns < COLUMNS) continue;
        float4 four;
        memcpy(&four, S.at[r], sizeof four);
        *(float4 *)(to + r * state.key) = four;
    }
}

template <typename T, typename N, int COLUMNS>
__device__ __forceinline__ void step(const rl_attention_args &args, const Span &span,
                                     const Place<ROWS, COLUMNS> &place, N *parts)
{
    const rl_attention_inputs &in = args.in;
    const int wide = in.column_threads * COLUMNS;
    const int64_t query_head = in.share == 1 ? place.head : divide(place.head, in.share),
                  key = place.panel_key + place.row;
    Tile<N, ROWS, COLUMNS> S;
    StepInputs<T, N, COLUMNS> inputs;
    N q[ROWS], k[ROWS], v[COLUMNS], total[COLUMNS];
    Bits<N> gate_bits, beta_bits;
    gate_bits.load(in.gate, span.at(in.gate, place.head, 0));
    beta_bits.load(in.beta, span.at(in.beta, place.head, 0));
    inputs.load(in, place, key, query_head);
    if (in.S_init.data)
        load_passing(S, in.S_init, place);
    else
        S.fill(0);
    const Factor<N> factor(in, 0, gate_bits.widened(in.gate));
    const N beta = in.beta.data ? beta_bits.widened(in.beta) : (N)1;
    inputs.widen_to(q, k, v);
    take_step(S, factor.value, factor.reset, beta, k, v);
    if (args.S_final.data) store_passing(S, args.S_final, place);
    read_state(total, S, q, StepInputs<T, N, COLUMNS>::WHOLE ? ROWS : place.rows);
    if (place.works) write_run(parts + place.group * wide + place.column, total);
    __syncthreads(); /* all parts are there */
    for (int column = (int)threadIdx.x; column < place.tile_columns; column += (int)blockDim.x)
        store_any(args.y.data, args.y.dtype,
                  span.at(args.y, place.head, 0) + (place.slab_value + column) * args.y.lane,
                  rounded_product((N)in.scale, parts_of_keys<ROWS>(parts + column, in.row_groups, wide)));
}

/* Inputs that take twice the registers of others. */
template <typename T> constexpr bool is_long = false;
template <> constexpr bool is_long<float> = true;

template <typename T, typename N, int COLUMNS>
__global__ void __launch_bounds__(RL_ATTENTION_THREADS, sizeof(N) == 8 || is_long<T> ? 2 : 3)
    step_kernel(const __grid_constant__ rl_attention_args args)
{
    unsigned char *const shared = dynamic_shared;
    const rl_attention_inputs &in = args.in;
    const bool apart = gridDim.y > 1; /* a row of blocks for each sequence: divisions take time ahead of all loads */
    const int64_t tasks = in.heads * in.slabs * (apart ? 1 : in.sequences);
    let_later_start();
    if (apart) {
        const int64_t walk = divide((int64_t)blockIdx.x, in.slabs);
        bring_state_near<N, COLUMNS>(in.S_init, {in, blockIdx.y, walk, 0, blockIdx.x - walk * in.slabs});
    }
    await_earlier();
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t walk = divide(task, in.slabs), sequence = apart ? blockIdx.y : divide(walk, in.heads);
        const int64_t head = apart ? walk : walk - sequence * in.heads;
        step<T, N, COLUMNS>(args, Span(in, sequence), {in, sequence, head, 0, task - walk * in.slabs}, (N *)shared);
        __syncthreads(); /* the parts are no longer needed */
    }
}

} // namespace

const void *rl_attention_step_kernel(bool is_double, rill_dtype packed)
{
    if (is_double) return kernel_address<step_kernel<void, double, 2>>();
    switch (packed) {
    case RILL_F32:
        return kernel_address<step_kernel<float, float, 4>>();
    case RILL_BF16:
        return kernel_address<step_kernel<bf16, float, 4>>();
    case RILL_F16:
        return kernel_address<step_kernel<f16, float, 4>>();
    default:
        return kernel_address<step_kernel<void, float, 4>>();
    }
}
