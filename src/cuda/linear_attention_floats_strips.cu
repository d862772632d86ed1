/*
 * Linear attention forward of short heads (linear_attention_floats_strips.h).
 *
 *     y_t = scale Σ_{j <= t} D_tj β_j (q_t · k_j) v_j
 *
 * Half of the warps bring the tiles, the others the gates; then each warp has the products with its 16 steps j, and
 * the block adds these up.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_floats_strips.cuh"
#include "linear_attention_kernels.h"
#include "linear_attention_walk_forward.cuh"

namespace
{

using namespace attention_floats;

constexpr int THREADS = RL_STRIPS_THREADS;

struct StripTiles {
    static constexpr int FLOATS = (2 * SHORT + STRIP + SHORT_TILES * STRIP) * SHORT_PITCH;
    Gates &gates;
    float *q, *k, *v, *parts; /* q: of the strip; parts: of y, by warps */

    __device__ explicit StripTiles(unsigned char *shared)
        : gates(*(Gates *)shared), q((float *)(shared + GATES_BYTES)), k(q + STRIP * SHORT_PITCH),
          v(k + SHORT * SHORT_PITCH), parts(v + SHORT * SHORT_PITCH)
    {
    }
    /* Whether products may be used, by the numbers that the thread has looked at. */
    __device__ __forceinline__ bool is_welcome(int end) const
    {
        if (!gates.is_steady()) return false;
        if (!gates.fades()) return true;
        return !gates.is_heavy() && rows_are_within(q, STRIP) && rows_are_within(k, end) && rows_are_within(v, end);
    }
    __device__ void make_all_finite(int end) const
    {
        make_rows_finite(q, STRIP);
        make_rows_finite(k, end);
        make_rows_finite(v, end);
    }
};

/* Returns 0 where all of the thread's numbers are finite. */
__device__ __forceinline__ float answer(const rl_attention_args &args, const StripTiles &tiles, const Span &span,
                                        int64_t head, int strip)
{
    const int warp = (int)threadIdx.x / 32, keys = (int)args.in.keys, values = (int)args.in.values;
    if (warp <= strip) {
        float P[2][4], y[4][4];
        multiply_short_rows(P, tiles.q, 0, tiles.k, warp * STRIP, keys);
        weigh_tile(P, tiles.gates, strip, warp, false);
        clear(y);
        multiply_short_sums(y, P, tiles.v, warp * STRIP, values);
        store_part(tiles.parts + warp * STRIP * SHORT_PITCH, y);
    }
    __syncthreads(); /* all parts are there */
    const int row = (int)threadIdx.x / STRIP, column = (int)threadIdx.x % STRIP * 2, step = strip * STRIP + row;
    float2 total = add_parts(tiles.parts + row * SHORT_PITCH + column, 0, strip + 1);
    if (step >= span.count || column >= values) return 0;
    total.x *= (float)args.in.scale, total.y *= (float)args.in.scale;
    const int64_t at = span.at(args.y, head, step) + column * args.y.lane;
    store_any(args.y.data, args.y.dtype, at, total.x);
    if (column + 1 < values) store_any(args.y.data, args.y.dtype, at + args.y.lane, total.y);
    return fmaf(total.x, 0.0f, column + 1 < values ? total.y * 0.0f : 0.0f);
}

/* The steps up to the strip's last in the loop's order; its own are stored, or those that what is not finite reaches.
 */
__device__ inline void walk_strip(const rl_attention_args &args, Span span, int64_t sequence, int64_t head,
                                  int64_t first, bool all, const StripTiles &tiles)
{
    const int64_t later = span.count - (first + STRIP);
    if (later > 0) span.count -= later, span.begin += span.down ? later : 0;
    attention::Reach reach;
    if (!all)
        reach = attention::find_reach(args.in, rl_attention_view{}, rl_attention_state{}, span, sequence, head,
                                      tiles.gates.kinds);
    reach.own = first;
    for (int64_t slab = 0; slab < args.in.slabs; slab++) {
        typedef attention::Walk<float, RL_ATTENTION_NARROW_ROWS, 1> Walk;
        Walk(args, span, Walk::Place(args.in, sequence, head, 0, slab), 0, reach, tiles.q).run();
    }
}

__global__ void __launch_bounds__(THREADS, 2)
    strips_kernel(const __grid_constant__ rl_attention_args args, const int wide)
{
    if constexpr (HAS_PRODUCTS) {
        const rl_attention_inputs &in = args.in;
        const int steps = (int)in.length, strips = (steps + STRIP - 1) / STRIP, thread = (int)threadIdx.x;
        const int strip = (int)(blockIdx.x % (unsigned)strips), first = strip * STRIP, end = first + STRIP;
        const unsigned walk = blockIdx.x / (unsigned)strips, sequence = walk / (unsigned)in.heads;
        const int64_t head = walk - sequence * (unsigned)in.heads, query_head = (unsigned)head / (unsigned)in.share;
        const Span span(in, sequence);
        const StripTiles tiles(dynamic_shared);
        let_later_start();
        await_earlier();
        if (thread < SHORT) {
            start_gates(tiles.gates, in, span, head, steps < end ? steps : end, thread);
        } else {
            const int own = thread - SHORT, loaders = THREADS - SHORT;
            load_steps(tiles.q, in.q, wide & RL_FLOATS_Q, span.at(in.q, query_head, first), STRIP, steps - first,
                       (int)in.keys, own, loaders);
            load_steps(tiles.k, in.k, wide & RL_FLOATS_K, span.at(in.k, query_head, 0), end, steps, (int)in.keys, own,
                       loaders);
            load_steps(tiles.v, in.v, wide & RL_FLOATS_V, span.at(in.v, head, 0), end, steps, (int)in.values, own,
                       loaders);
            await_copies();
        }
        __syncthreads(); /* tiles and gates are there */
        bool special = tiles.gates.is_special(), all = !tiles.is_welcome(end);
#pragma unroll 1
        for (int attempt = 0; attempt < 2; attempt++) { /* again from finite tiles where something was not */
            const bool spoiled = answer(args, tiles, span, head, strip) != 0;
            if (attempt == 0 && !__syncthreads_or(spoiled || special || all)) return;
            if (!__syncthreads_or(spoiled)) break; /* and the tiles are no longer needed */
            (attempt == 0 ? special : all) = true;
            tiles.make_all_finite(end);
            __syncthreads(); /* the tiles are finite */
        }
        walk_strip(args, span, sequence, head, first, __syncthreads_or(all), tiles);
    }
}

} // namespace

const void *rl_strips_kernel(void)
{
    return kernel_address<strips_kernel>();
}

size_t rl_strips_tiles(void)
{
    return StripTiles::FLOATS * sizeof(float);
}

size_t rl_strips_shared(void)
{
    return GATES_BYTES + rl_strips_tiles();
}
