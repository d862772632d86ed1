/*
 * The gradients of linear attention in the loop's own order: any strides, sizes and types.
 *
 *     block  = one head of one sequence: one panel of keys after the other, and in each one slab of values after the
 *              other, so that their sums meet in a fixed order
 *     thread = ROWS keys by COLUMNS values of S, and then of G, in registers
 *     time   = forward with S, which gives dq and, for dgate, keeps a state for each stretch of steps; then backward
 *              with G, stretch by stretch, whose states are run again into the block's slot of memory
 *
 * Sums over values pass from lane to lane of a warp; those over keys, and over all of a tile, through shared memory.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_WALK_BACK_CUH
#define RL_CUDA_LINEAR_ATTENTION_WALK_BACK_CUH

#include "linear_attention_lanes.cuh"
#include "linear_attention_reach.cuh"
#include "linear_attention_walk.cuh"

namespace attention
{

template <typename N, int ROWS, int COLUMNS> struct Gradients {
    typedef attention::Place<ROWS, COLUMNS> Place;
    typedef attention::Tile<N, ROWS, COLUMNS> Tile;
    const rl_attention_backward_args &args;
    const rl_attention_inputs &in;
    const Span span;
    const Place place;
    const int64_t panel, slab;
    const Reach reach;
    const int warp, lane, warps;
    Inputs<N> inputs;
    N *dy;    /* [steps][wide] */
    N *rows;  /* [steps][high] sums over the tile's values */
    N *parts; /* [steps][groups][wide] sums over a group's keys */
    N *whole; /* [steps][warps] sums over a warp's part of the tile */
    N *kept;  /* the block's slot */

    __device__ Gradients(const rl_attention_backward_args &args, const Span &span, const Place &place, int64_t panel,
                         int64_t slab, const Reach &reach, N *shared)
        : args(args), in(args.in), span(span), place(place), panel(panel), slab(slab), reach(reach),
          warp((int)threadIdx.x / WARP), lane((int)threadIdx.x % WARP), warps((int)blockDim.x / WARP)
    {
        inputs.high = in.row_groups * ROWS;
        inputs.wide = in.column_threads * COLUMNS;
        inputs.q = shared;
        inputs.k = inputs.q + in.steps * inputs.high;
        rows = inputs.k + in.steps * inputs.high;
        inputs.v = rows + in.steps * inputs.high;
        dy = inputs.v + in.steps * inputs.wide;
        parts = dy + in.steps * inputs.wide;
        whole = parts + in.steps * in.row_groups * inputs.wide;
        inputs.value = whole + in.steps * warps;
        inputs.reset = inputs.value + in.steps;
        inputs.beta = inputs.reset + in.steps;
        kept = (N *)args.states + (int64_t)blockIdx.x * args.slot * tile_size();
    }

    /* Kept states: a thread meets only what it wrote itself, so their layout is that of its registers. */
    __device__ int64_t tile_size() const
    {
        return (int64_t)blockDim.x * ROWS * COLUMNS;
    }
    __device__ N *kept_row(int64_t which, int row) const
    {
        return kept + which * tile_size() + (row * (int)blockDim.x + (int)threadIdx.x) * COLUMNS;
    }
    __device__ void keep(int64_t which, const Tile &S) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) write_run(kept_row(which, r), S.at[r]);
    }
    __device__ void recall(int64_t which, Tile &S) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) read_run(S.at[r], kept_row(which, r));
    }
    __device__ int64_t stretches() const
    {
        return args.slot - args.stretch - 1;
    }

    __device__ void load(int64_t first, int steps, bool with_dy, bool with_q)
    {
        inputs.load(in, span, place, first, steps, with_q);
        if (with_dy)
            stage(dy, inputs.wide, args.dy, span.at(args.dy, place.head, first) + place.slab_value * args.dy.lane,
                  args.dy.step, steps, place.tile_columns);
    }
    /* Sums over values of `tile` times `row`, a row of shared memory, into `rows`. */
    __device__ void sum_values(const Tile &tile, const N (&row)[COLUMNS], int step)
    {
        N value[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            value[r] = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (c < place.columns) value[r] = rounded_sum(value[r], rounded_product(tile.at[r][c], row[c]));
        }
        const int own = sum_over_lanes(value, in.column_threads);
        if (place.works && lane % in.column_threads < ROWS) rows[step * inputs.high + place.row + own] = value[0];
    }
    /* Adds what the slabs before have; keeps it for those that follow. */
    __device__ N with_slabs(N total, void *sums, int64_t i, int row)
    {
        if (in.slabs == 1) return total;
        N *so_far = sum_of_row(sums, i, row);
        if (slab > 0) total = rounded_sum(*so_far, total);
        if (slab + 1 < in.slabs) *so_far = total;
        return total;
    }
    __device__ N *sum_of_row(void *sums, int64_t i, int row) const
    {
        return (N *)sums + (span.time(in.length, i) * in.heads + place.head) * in.keys + place.panel_key + row;
    }
    /* To the tensor, or where the heads of a query head are summed later. */
    __device__ void store_row(const rl_attention_view &to, void *sums, int64_t i, int row, N value)
    {
        if (in.share > 1)
            *sum_of_row(sums, i, row) = value;
        else
            store_any(to.data, to.dtype, span.at(to, place.head, i) + (place.panel_key + row) * to.lane, value);
    }

    /* S forward: dq, and a state for each stretch. */
    __device__ void run_forward()
    {
        const bool with_dq = args.dq.data && args.dy.data;
        Tile S;
        start(S);
        int64_t left = 1; /* steps to the next state that is kept, that one included */
        int64_t which = 0;
        for (int64_t first = 0; first < span.count; first += in.steps) {
            const int steps = steps_within(first, span.count);
            load(first, steps, with_dq, false);
            await_copies();
            __syncthreads(); /* the inputs are there */
            for (int step = 0; step < steps; step++) {
                if (args.states && --left == 0) {
                    keep(which++, S);
                    left = args.stretch;
                }
                advance(S, inputs, place, step);
                if (with_dq) {
                    N row[COLUMNS];
                    read_run(row, dy + step * inputs.wide + place.column);
                    sum_values(S, row, step);
                }
            }
            __syncthreads(); /* the sums are there, and the inputs no longer needed */
            if (args.dq.data) finish_dq(first, steps, with_dq);
        }
        __syncthreads(); /* the sums are no longer needed */
    }
    __device__ void finish_dq(int64_t first, int steps, bool with_dq)
    {
        const N scale = (N)in.scale;
        for (int step = warp; step < steps; step += warps)
            for (int row = lane; row < place.tile_rows; row += WARP) {
                const int64_t i = first + step;
                const N total = with_slabs(with_dq ? rows[step * inputs.high + row] : (N)0, args.q_sums, i, row);
                if (slab + 1 == in.slabs && reach.dq(i))
                    store_row(args.dq, args.q_sums, i, row, with_dq ? rounded_product(scale, total) : (N)0);
            }
    }
    __device__ void start(Tile &S) const
    {
        if (in.S_init.data)
            S.load(in.S_init, place);
        else
            S.fill(0);
    }
    __device__ int steps_within(int64_t first, int64_t end) const
    {
        return end - first < in.steps ? (int)(end - first) : in.steps;
    }

    /* The states before the steps of a stretch, run again into the slot; G waits there, out of registers. */
    __device__ void run_again(Tile &G, int64_t begin, int64_t end)
    {
        Tile S;
        keep(args.slot - 1, G);
        recall(begin / args.stretch, S);
        for (int64_t first = begin; first < end; first += in.steps) {
            const int steps = steps_within(first, end);
            load(first, steps, false, false);
            await_copies();
            __syncthreads(); /* the inputs are there */
            for (int step = 0; step < steps; step++) {
                keep(stretches() + first - begin + step, S);
                advance(S, inputs, place, step);
            }
            __syncthreads(); /* the inputs are no longer needed */
        }
        recall(args.slot - 1, G);
    }

    /* G of a step from what the later ones left, and the sums over it. */
    __device__ void take_dy(Tile &G, int step)
    {
        N q[ROWS], row[COLUMNS];
        const N scale = (N)in.scale;
        read_run(q, inputs.q + step * inputs.high + place.row);
        read_run(row, dy + step * inputs.wide + place.column);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const N scaled = rounded_product(scale, q[r]);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) G.at[r][c] = rounded_sum(G.at[r][c], rounded_product(scaled, row[c]));
        }
    }
    __device__ void sum_keys(const Tile &G, int step)
    {
        N k[ROWS], part[COLUMNS] = {};
        read_run(k, inputs.k + step * inputs.high + place.row);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r < place.rows) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) part[c] = rounded_sum(part[c], rounded_product(G.at[r][c], k[r]));
            }
        if (place.works) write_run(parts + (step * in.row_groups + place.group) * inputs.wide + place.column, part);
    }
    /* <G, S> of the state before; a reset leaves out what it drops where that is not finite. */
    __device__ void sum_whole(const Tile &G, int64_t which, int step)
    {
        const bool only_finite = inputs.reset[step] != 0;
        N total = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            N before[COLUMNS];
            read_run(before, kept_row(which, r));
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (r < place.rows && c < place.columns && (!only_finite || is_finite(before[c])))
                    total = rounded_sum(total, rounded_product(G.at[r][c], before[c]));
        }
        total = sum_over_warp(total);
        if (lane == 0) whole[step * warps + warp] = total;
    }
    /* What reaches the state before. */
    __device__ void hand_back(Tile &G, int step)
    {
        const N g = inputs.value[step];
        if (inputs.reset[step] != 0) {
            G.fill(0);
            return;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) G.at[r][c] = rounded_product(g, G.at[r][c]);
    }

    /* G from the last step of a stretch to its first. */
    __device__ void run_back(Tile &G, int64_t begin, int64_t end)
    {
        for (int64_t last = end; last > begin;) {
            const int64_t first = last - begin > in.steps ? last - in.steps : begin;
            const int steps = (int)(last - first);
            load(first, steps, args.dy.data, args.dy.data);
            await_copies();
            __syncthreads(); /* the inputs are there */
            for (int step = steps - 1; step >= 0; step--) {
                N v[COLUMNS];
                read_run(v, inputs.v + step * inputs.wide + place.column);
                if (args.dy.data) take_dy(G, step);
                if (args.dk.data || args.dbeta.data) sum_values(G, v, step);
                if (args.dv.data) sum_keys(G, step);
                if (args.states) sum_whole(G, stretches() + first - begin + step, step);
                hand_back(G, step);
            }
            __syncthreads(); /* the sums are there */
            if (args.dk.data || args.dbeta.data) finish_dk(first, steps);
            if (args.dv.data) finish_dv(first, steps);
            if (args.dgate.data) finish_dgate(first, steps);
            __syncthreads(); /* inputs and sums are no longer needed */
            last = first;
        }
    }
    /* dk = beta G v, and dbeta = k G v; a warp has a step. */
    __device__ void finish_dk(int64_t first, int steps)
    {
        for (int step = warp; step < steps; step += warps) {
            const int64_t i = first + step;
            N dbeta = 0;
            for (int row = lane; row < place.tile_rows; row += WARP) {
                const N total = with_slabs(rows[step * inputs.high + row], args.k_sums, i, row);
                if (slab + 1 < in.slabs) continue;
                if (args.dk.data && reach.dk(i))
                    store_row(args.dk, args.k_sums, i, row, rounded_product(inputs.beta[step], total));
                dbeta = rounded_sum(dbeta, rounded_product(inputs.k[step * inputs.high + row], total));
            }
            dbeta = sum_over_warp(dbeta);
            if (args.dbeta.data && lane == 0 && slab + 1 == in.slabs) store_dbeta(i, dbeta);
        }
    }
    __device__ void store_dbeta(int64_t i, N dbeta)
    {
        N *so_far = (N *)args.beta_sums + span.time(in.length, i) * in.heads + place.head;
        if (panel > 0) dbeta = rounded_sum(*so_far, dbeta);
        if (panel + 1 < in.panels)
            *so_far = dbeta;
        else if (reach.dbeta(i))
            store_any(args.dbeta.data, args.dbeta.dtype, span.at(args.dbeta, place.head, i), dbeta);
    }
    /* dv = beta G k */
    __device__ void finish_dv(int64_t first, int steps)
    {
        for (int at = (int)threadIdx.x; at < steps * inputs.wide; at += (int)blockDim.x) {
            const int step = at / inputs.wide, column = at % inputs.wide;
            if (column >= place.tile_columns) continue;
            const int64_t i = first + step, value = place.slab_value + column;
            N total = 0;
            for (int g = 0; g < in.row_groups; g++)
                total = rounded_sum(total, parts[(step * in.row_groups + g) * inputs.wide + column]);
            N *so_far = (N *)args.v_sums + (span.time(in.length, i) * in.heads + place.head) * in.values + value;
            if (panel > 0) total = rounded_sum(*so_far, total);
            if (panel + 1 < in.panels)
                *so_far = total;
            else if (reach.dv(i))
                store_any(args.dv.data, args.dv.dtype, span.at(args.dv, place.head, i) + value * args.dv.lane,
                          rounded_product(inputs.beta[step], total));
        }
    }
    __device__ void finish_dgate(int64_t first, int steps)
    {
        for (int step = (int)threadIdx.x; step < steps; step += (int)blockDim.x) {
            const int64_t i = first + step;
            N total = 0;
            for (int w = 0; w < warps; w++) total = rounded_sum(total, whole[step * warps + w]);
            N *so_far = (N *)args.gate_sums + span.time(in.length, i) * in.heads + place.head;
            if (panel > 0 || slab > 0) total = rounded_sum(*so_far, total);
            if (panel + 1 < in.panels || slab + 1 < in.slabs)
                *so_far = total;
            else if (reach.dgate(i))
                store_any(args.dgate.data, args.dgate.dtype, span.at(args.dgate, place.head, i),
                          gate_gradient(total, i, step));
        }
    }
    __device__ N gate_gradient(N total, int64_t i, int step) const
    {
        if (i == 0 && !in.S_init.data) return 0;
        if (!in.gate_is_log) return total;
        return inputs.reset[step] != 0 || inputs.value[step] == 0 ? (N)0 : rounded_product(inputs.value[step], total);
    }

    __device__ void run()
    {
        if (args.dq.data || args.states) run_forward();
        Tile G;
        if (args.dS_final.data)
            G.load(args.dS_final, place);
        else
            G.fill(0);
        const int64_t stretch = args.states ? args.stretch : span.count;
        for (int64_t begin = (span.count - 1) / stretch * stretch; begin >= 0; begin -= stretch) {
            const int64_t end = begin + stretch < span.count ? begin + stretch : span.count;
            if (args.states) run_again(G, begin, end);
            run_back(G, begin, end);
        }
        if (args.dS_init.data && reach.dS_init()) G.store(args.dS_init, place);
    }
};

} // namespace attention

#endif
