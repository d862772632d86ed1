/*
 * Linear attention forward in the loop's own order: any strides, sizes and types.
 *
 *     block  = a slab of values of one head of one sequence, one panel of keys after the other
 *     thread = ROWS keys by COLUMNS values of the state, in registers
 *     time   = serial: inputs of some steps in shared memory, the threads' sums over their keys there too; then
 *              the threads together add these up in the order of the keys
 *
 * Keys are added by fours, fours by pairs, pairs in their order, whatever ROWS is, so that the choice of a kernel
 * does not show in the bits.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_WALK_FORWARD_CUH
#define RL_CUDA_LINEAR_ATTENTION_WALK_FORWARD_CUH

#include "linear_attention_reach.cuh"
#include "linear_attention_walk.cuh"

namespace attention
{

template <typename N, int ROWS, int COLUMNS> struct Walk {
    typedef attention::Place<ROWS, COLUMNS> Place;
    const rl_attention_args &args;
    const rl_attention_inputs &in;
    const Span span;
    const Place place;
    const int64_t panel;
    const Reach reach;
    Inputs<N> inputs;
    N *parts; /* [steps][groups][wide] */
    Tile<N, ROWS, COLUMNS> S;

    __device__ Walk(const rl_attention_args &args, const Span &span, const Place &place, int64_t panel,
                    const Reach &reach, N *shared)
        : args(args), in(args.in), span(span), place(place), panel(panel), reach(reach)
    {
        inputs.high = in.row_groups * ROWS;
        inputs.wide = in.column_threads * COLUMNS;
        inputs.q = shared;
        inputs.k = inputs.q + in.steps * inputs.high;
        inputs.v = inputs.k + in.steps * inputs.high;
        parts = inputs.v + in.steps * inputs.wide;
        inputs.value = parts + in.steps * in.row_groups * inputs.wide;
        inputs.reset = inputs.value + in.steps;
        inputs.beta = inputs.reset + in.steps;
    }
    __device__ int steps_from(int64_t first) const
    {
        return span.count - first < in.steps ? (int)(span.count - first) : in.steps;
    }
    /* S q of the thread's keys. */
    __device__ void read(int step)
    {
        N q[ROWS], total[COLUMNS];
        read_run(q, inputs.q + step * inputs.high + place.row);
        read_state(total, S, q, place.rows);
        write_run(parts + (step * in.row_groups + place.group) * inputs.wide + place.column, total);
    }
    /* y of steps first and on, or what the panels so far have of it. */
    __device__ void finish(int64_t first, int steps)
    {
        const N scale = (N)in.scale;
        const int64_t base = span.at(args.y, place.head, first) + place.slab_value * args.y.lane;
        for (int k = (int)threadIdx.x; k < steps * inputs.wide; k += (int)blockDim.x) {
            const int step = k / inputs.wide, column = k % inputs.wide;
            if (column >= place.tile_columns) continue;
            N total =
                parts_of_keys<ROWS>(parts + step * in.row_groups * inputs.wide + column, in.row_groups, inputs.wide);
            const int64_t time = span.time(in.length, first + step);
            N *so_far = (N *)args.sums + (time * in.heads + place.head) * in.values + place.slab_value + column;
            if (panel > 0) total = rounded_sum(*so_far, total);
            if (panel + 1 < in.panels)
                *so_far = total;
            else if (reach.y(first + step))
                store_any(args.y.data, args.y.dtype, base + step * args.y.step + column * args.y.lane,
                          rounded_product(scale, total));
        }
    }
    __device__ void run()
    {
        if (in.S_init.data)
            S.load(in.S_init, place);
        else
            S.fill(0);
        inputs.load(in, span, place, 0, steps_from(0), true);
        await_copies();
        __syncthreads(); /* the first inputs are there */
        for (int64_t first = 0; first < span.count; first += in.steps) {
            const int steps = steps_from(first);
            if (place.works)
                for (int step = 0; step < steps; step++) {
                    advance(S, inputs, place, step);
                    read(step);
                }
            __syncthreads(); /* all parts are there, and the inputs no longer needed */
            if (first + steps < span.count)
                inputs.load(in, span, place, first + steps, steps_from(first + steps), true);
            finish(first, steps);
            await_copies();
            __syncthreads(); /* the next inputs are there, and the parts no longer needed */
        }
        if (args.S_final.data) S.store(args.S_final, place);
    }
};

/* A slab of one of [sequences, heads]: all of it, or what something that is not finite reaches. */
template <typename N, int ROWS, int COLUMNS>
__device__ inline void walk_slab(const rl_attention_args &args, int64_t walk, int64_t slab, bool all, N *shared)
{
    const rl_attention_inputs &in = args.in;
    const int64_t sequence = divide(walk, in.heads), head = walk - sequence * in.heads;
    const Span span(in, sequence);
    Reach reach;
    if (!all)
        reach = find_reach(in, rl_attention_view{}, rl_attention_state{}, span, sequence, head,
                           args.marks.kinds + walk * in.length);
    for (int64_t panel = 0; panel < in.panels; panel++) {
        const Place<ROWS, COLUMNS> place(in, sequence, head, panel, slab);
        if (span.count == 0)
            pass_on<N>(args.S_final, in.S_init, place);
        else
            Walk<N, ROWS, COLUMNS>(args, span, place, panel, reach, shared).run();
    }
}

} // namespace attention

#endif
