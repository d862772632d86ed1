/*
 * One step of linear attention for each sequence, as decoding takes it: the states are read and written once, and
 * nothing else is of any size.
 *
 *     block  = a slab of values of one head of one sequence, all keys
 *     thread = ROWS keys by COLUMNS values, as in linear_attention_walk.cu, and the sums in the same order
 *
 * All of a thread's loads are issued before the first of them is needed; shared memory holds sums over keys only.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_walk.cuh"

namespace
{

using namespace attention;

constexpr int ROWS = RL_ATTENTION_ROWS;

template <typename T, typename N, int COUNT>
__device__ inline void load_lanes_as(N (&to)[COUNT], const T *from, int64_t stride, int count)
{
    T raw[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) raw[i] = i < count ? from[i * stride] : T{};
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[i] = (N)widen(raw[i]);
}

/* Some lanes of the step's row of a head, from the first-th on. */
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

template <typename N, int COLUMNS>
__device__ void step(const rl_attention_args &args, const Span &span, const Place<ROWS, COLUMNS> &place, N *parts)
{
    const rl_attention_inputs &in = args.in;
    const int wide = in.column_threads * COLUMNS;
    const int64_t query_head = divide(place.head, in.share), key = place.panel_key + place.row;
    Tile<N, ROWS, COLUMNS> S;
    N q[ROWS], k[ROWS], v[COLUMNS], total[COLUMNS];
    if (in.S_init.data)
        S.load_wide(in.S_init, place);
    else
        S.fill(0);
    load_lanes(k, in.k, place.sequence, query_head, key, place.rows);
    load_lanes(v, in.v, place.sequence, place.head, place.slab_value + place.column, place.columns);
    load_lanes(q, in.q, place.sequence, query_head, key, place.rows);
    const Factor<N> factor(in, span, place.head, 0);
    take_step(S, factor.value, factor.reset, beta_at<N>(in, span, place.head, 0), k, v);
    if (args.S_final.data) S.store_wide(args.S_final, place);
    read_state(total, S, q, place.rows);
    if (place.works) write_run(parts + place.group * wide + place.column, total);
    __syncthreads(); /* all parts are there */
    for (int column = (int)threadIdx.x; column < place.tile_columns; column += (int)blockDim.x)
        store_any(args.y.data, args.y.dtype,
                  span.at(args.y, place.head, 0) + (place.slab_value + column) * args.y.lane,
                  rounded_product((N)in.scale, parts_of_keys<ROWS>(parts + column, in.row_groups, wide)));
}

template <typename N, int COLUMNS>
__global__ void __launch_bounds__(RL_ATTENTION_THREADS, sizeof(N) == 8 ? 2 : 3)
    step_kernel(const __grid_constant__ rl_attention_args args)
{
    unsigned char *const shared = dynamic_shared;
    const rl_attention_inputs &in = args.in;
    const int64_t tasks = in.sequences * in.heads * in.slabs;
    let_later_start();
    await_earlier();
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t walk = divide(task, in.slabs), sequence = divide(walk, in.heads);
        step<N, COLUMNS>(args, Span(in, sequence),
                         {in, sequence, walk - sequence * in.heads, 0, task - walk * in.slabs}, (N *)shared);
        __syncthreads(); /* the parts are no longer needed */
    }
}

} // namespace

const void *rl_attention_step_kernel(bool is_double)
{
    return is_double ? kernel_address<step_kernel<double, 2>>() : kernel_address<step_kernel<float, 4>>();
}
