/*
 * The gradients of short heads (linear_attention_floats_strips.h), with t <= s:
 *
 *     dq_s = scale Σ_t D_st β_t (v_t · dy_s) k_t          dv_t = β_t scale Σ_s D_st (q_s · k_t) dy_s
 *     dk_t = β_t scale Σ_s D_st (dy_s · v_t) q_s          g_t dg_t = Σ_{j<t<=s} D_sj β_j scale (q_s · k_j) (dy_s ·
 * v_j)
 *
 * A block has a strip of one of them.  The first three are the same products of other tensors, a warp those with 16
 * steps.  The sum for a strip's gates runs over pairs of tiles, one with steps j, one with steps s, which the warps
 * share out; a pair of which one is the strip itself counts by its rows, or columns.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_floats_strips.cuh"
#include "linear_attention_floats_strips_flow.cuh"

namespace
{

using namespace attention_floats;

constexpr int THREADS = RL_STRIPS_THREADS, WARPS = THREADS / 32;
constexpr float LEAST_GATE = 0x1p-60f; /* that is divided out */

/*
 * Shared memory.  A block of a gradient has two tensors' rows by their steps, its strip's of a third behind the
 * first, and for dbeta k's behind the second; one of gates has k and v until the strip's end, and behind them q and
 * dy from its begin.
 */
struct BackTiles {
    static constexpr int ROWS = SHORT + STRIP, FLOATS = (2 * ROWS + SHORT) * SHORT_PITCH;
    Gates &gates;
    float *first, *second, *parts;

    __device__ explicit BackTiles(unsigned char *shared)
        : gates(*(Gates *)shared), first((float *)(shared + GATES_BYTES)), second(first + ROWS * SHORT_PITCH),
          parts(second + ROWS * SHORT_PITCH)
    {
    }
};

/* A block's place. */
struct Strip {
    const rl_attention_backward_args &args;
    const rl_attention_inputs &in;
    const Span span;
    const int64_t head;
    const int which, steps, first, end; /* the strip; steps of all */

    __device__ Strip(const rl_attention_backward_args &args, unsigned walk, int which)
        : args(args), in(args.in), span(in, walk / (unsigned)in.heads), head(walk % (unsigned)in.heads), which(which),
          steps((int)in.length), first(which * STRIP), end(first + STRIP)
    {
    }
    __device__ __forceinline__ int64_t query_head() const
    {
        return (unsigned)head / (unsigned)in.share;
    }
    __device__ __forceinline__ int tiles() const
    {
        return (steps + STRIP - 1) / STRIP;
    }
};

/* Rows of steps [from, until) of a tensor by the half of the block that brings them. */
__device__ __forceinline__ void bring(float *to, const Strip &strip, const rl_attention_view &view, int64_t head,
                                      bool wide, int64_t lanes, int from, int until)
{
    load_steps(to, view, wide, strip.span.at(view, head, from), until - from, strip.steps - from, (int)lanes,
               (int)threadIdx.x - SHORT, THREADS - SHORT);
}

/* dq, dv or dk: the strip's rows of `own` by the other tensor's, and that by rows of `out`. */
struct Gradient {
    const Strip &strip;
    const BackTiles tiles;
    const int role;
    const bool later; /* which steps the other ones are */

    __device__ Gradient(const Strip &strip, const BackTiles &tiles, int role)
        : strip(strip), tiles(tiles), role(role), later(role != RL_STRIPS_DQ)
    {
    }
    __device__ __forceinline__ int from() const
    {
        return later ? strip.first : 0;
    }
    __device__ __forceinline__ int until() const
    {
        return later ? strip.tiles() * STRIP : strip.end;
    }
    __device__ __forceinline__ bool is_over_keys() const
    {
        return role == RL_STRIPS_DV;
    }
    __device__ __forceinline__ void load(int wide) const
    {
        const rl_attention_inputs &in = strip.in;
        const int64_t head = strip.head, query_head = strip.query_head();
        float *const own = tiles.first + SHORT * SHORT_PITCH, *const other = tiles.first + from() * SHORT_PITCH,
                     *const out = tiles.second + from() * SHORT_PITCH;
        if (role == RL_STRIPS_DV)
            bring(own, strip, in.k, query_head, wide & RL_FLOATS_K, in.keys, strip.first, strip.end);
        else if (later)
            bring(own, strip, in.v, head, wide & RL_FLOATS_V, in.values, strip.first, strip.end);
        else
            bring(own, strip, strip.args.dy, head, wide & RL_FLOATS_DY, in.values, strip.first, strip.end);
        if (!later) {
            bring(other, strip, in.v, head, wide & RL_FLOATS_V, in.values, 0, strip.end);
            bring(out, strip, in.k, query_head, wide & RL_FLOATS_K, in.keys, 0, strip.end);
            return;
        }
        float *const q = role == RL_STRIPS_DV ? other : out, *const dy = role == RL_STRIPS_DV ? out : other;
        bring(q, strip, in.q, query_head, wide & RL_FLOATS_Q, in.keys, from(), until());
        bring(dy, strip, strip.args.dy, head, wide & RL_FLOATS_DY, in.values, from(), until());
        if (role == RL_STRIPS_DK && strip.args.dbeta.data)
            bring(tiles.second + SHORT * SHORT_PITCH, strip, in.k, query_head, wide & RL_FLOATS_K, in.keys,
                  strip.first, strip.end);
    }
    __device__ bool is_within() const
    {
        const int rows = until() - from();
        return rows_are_within(tiles.first + SHORT * SHORT_PITCH, STRIP) &&
               rows_are_within(tiles.first + from() * SHORT_PITCH, rows) &&
               rows_are_within(tiles.second + from() * SHORT_PITCH, rows);
    }
    __device__ void make_all_finite() const
    {
        make_rows_finite(tiles.first + SHORT * SHORT_PITCH, STRIP);
        make_rows_finite(tiles.first + from() * SHORT_PITCH, until() - from());
        make_rows_finite(tiles.second + from() * SHORT_PITCH, until() - from());
        if (role == RL_STRIPS_DK && strip.args.dbeta.data)
            make_rows_finite(tiles.second + SHORT * SHORT_PITCH, STRIP);
    }
    __device__ __forceinline__ void multiply_tile(int tile) const
    {
        const rl_attention_inputs &in = strip.in;
        float P[2][4], sums[4][4];
        multiply_short_rows(P, tiles.first, SHORT, tiles.first, tile * STRIP,
                            (int)(is_over_keys() ? in.keys : in.values));
        weigh_tile(P, tiles.gates, strip.which, tile, later);
        clear(sums);
        multiply_short_sums(sums, P, tiles.second, tile * STRIP, (int)(is_over_keys() ? in.values : in.keys));
        store_part(tiles.parts + tile * STRIP * SHORT_PITCH, sums);
    }
    /* False where a number of the thread is not finite. */
    __device__ __forceinline__ bool run() const
    {
        const rl_attention_inputs &in = strip.in;
        const rl_attention_backward_args &args = strip.args;
        const int warp = (int)threadIdx.x / 32;
        if (warp * STRIP >= from() && warp * STRIP < until()) multiply_tile(warp);
        __syncthreads(); /* all parts are there */
        const int row = (int)threadIdx.x / STRIP, column = (int)threadIdx.x % STRIP * 2, step = strip.first + row;
        const int lanes = (int)(is_over_keys() ? in.values : in.keys);
        float2 total = add_parts(tiles.parts + row * SHORT_PITCH + column, from() / STRIP, until() / STRIP);
        total.x *= (float)in.scale, total.y *= (float)in.scale;
        float finite = fmaf(total.x, 0.0f, total.y * 0.0f); /* columns that are not there are 0 */
        if (role == RL_STRIPS_DK && args.dbeta.data) finite += store_dbeta(total, row, column) * 0.0f;
        if (later) total.x *= tiles.gates.beta[step], total.y *= tiles.gates.beta[step];
        finite += fmaf(total.x, 0.0f, total.y * 0.0f);
        const rl_attention_view &to = role == RL_STRIPS_DQ ? args.dq : role == RL_STRIPS_DV ? args.dv : args.dk;
        if (step >= strip.steps || column >= lanes || !to.data) return finite == 0;
        const int64_t head = role == RL_STRIPS_DV || in.share > 1 ? strip.head : strip.query_head();
        const int64_t at = strip.span.at(to, head, step) + column * to.lane;
        store_any(to.data, to.dtype, at, total.x);
        if (column + 1 < lanes) store_any(to.data, to.dtype, at + to.lane, total.y);
        return finite == 0;
    }
    /* k dk / β, by the step's 16 threads. */
    __device__ __forceinline__ float store_dbeta(const float2 &total, int row, int column) const
    {
        const rl_attention_view &to = strip.args.dbeta;
        const float *const k = tiles.second + (SHORT + row) * SHORT_PITCH + column;
        float sum = fmaf(total.x, k[0], total.y * k[1]);
#pragma unroll
        for (int away = 1; away < STRIP; away *= 2) sum += __shfl_xor_sync(ALL, sum, away);
        if (column == 0 && strip.first + row < strip.steps)
            store_any(to.data, to.dtype, strip.span.at(to, strip.head, strip.first + row), sum);
        return sum;
    }
};

/* dgate of a strip. */
struct GateGradient {
    const Strip &strip;
    const BackTiles tiles;

    __device__ GateGradient(const Strip &strip, const BackTiles &tiles) : strip(strip), tiles(tiles)
    {
    }
    __device__ __forceinline__ int rows() const
    {
        return strip.end + strip.tiles() * STRIP - strip.first;
    }
    __device__ __forceinline__ void load(int wide) const
    {
        const rl_attention_inputs &in = strip.in;
        const int behind = strip.end * SHORT_PITCH, until = strip.tiles() * STRIP;
        bring(tiles.first, strip, in.k, strip.query_head(), wide & RL_FLOATS_K, in.keys, 0, strip.end);
        bring(tiles.first + behind, strip, in.q, strip.query_head(), wide & RL_FLOATS_Q, in.keys, strip.first, until);
        bring(tiles.second, strip, in.v, strip.head, wide & RL_FLOATS_V, in.values, 0, strip.end);
        bring(tiles.second + behind, strip, strip.args.dy, strip.head, wide & RL_FLOATS_DY, in.values, strip.first,
              until);
    }
    __device__ bool is_within() const
    {
        return rows_are_within(tiles.first, rows()) && rows_are_within(tiles.second, rows());
    }
    __device__ void make_all_finite() const
    {
        make_rows_finite(tiles.first, rows());
        make_rows_finite(tiles.second, rows());
    }
    /* False where a number of the thread is not finite.  `tiny`: a gate is too small to be divided out. */
    __device__ __forceinline__ bool run(bool &tiny) const
    {
        const rl_attention_inputs &in = strip.in;
        const int pairs = (strip.tiles() - strip.which) * (strip.which + 1), warp = (int)threadIdx.x / 32;
        Flow flow;
#pragma unroll 1
        for (int pair = warp; pair < pairs; pair += WARPS) {
            const int beyond = pair / (strip.which + 1), low = pair - beyond * (strip.which + 1);
            const int row = strip.end + beyond * STRIP;
            float A[2][4], M[2][4];
            multiply_short_rows(A, tiles.first, row, tiles.first, low * STRIP, (int)in.keys);
            multiply_short_rows(M, tiles.second, row, tiles.second, low * STRIP, (int)in.values);
            weigh_tile(A, tiles.gates, strip.which + beyond, low, false);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) A[n][i] *= M[n][i] * (float)in.scale;
            flow.add(A, beyond == 0, low == strip.which);
        }
        flow.leave(tiles.parts + warp * Flow::FLOATS);
        __syncthreads(); /* all warps' parts are there */
        return warp > 0 || finish(tiny);
    }
    /* By one warp, a step a lane. */
    __device__ __forceinline__ bool finish(bool &tiny) const
    {
        const rl_attention_inputs &in = strip.in;
        const rl_attention_view &to = strip.args.dgate;
        const int lane = (int)threadIdx.x, own = lane % STRIP, step = strip.first + own;
        float later = 0, earlier = 0, here = 0, all = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) {
            const float *const part = tiles.parts + warp * Flow::FLOATS;
            later += part[own], earlier += part[STRIP + own], here += part[2 * STRIP + own], all += part[3 * STRIP];
        }
#pragma unroll
        for (int away = 1; away < STRIP; away *= 2) {
            const float above = __shfl_down_sync(ALL, later, away, STRIP);
            const float below = __shfl_up_sync(ALL, earlier, away, STRIP);
            if (own + away < STRIP) later += above;
            if (own >= away) earlier += below;
        }
        earlier = __shfl_up_sync(ALL, earlier, 1, STRIP);
        if (own == 0) earlier = 0;
        if (lane >= STRIP || step >= strip.steps) return true;
        const float gate = tiles.gates.gate[step], flow = here + later + earlier + all;
        const bool is_read = step > 0, divides = is_read && !in.gate_is_log;
        const float sum = in.gate_is_log && gate == 0 ? 0 : flow;
        tiny = divides && fabsf(gate) < LEAST_GATE;
        store_any(to.data, to.dtype, strip.span.at(to, strip.head, step), !is_read ? 0 : divides ? sum / gate : sum);
        return is_finite(sum);
    }
};

/* A block's tiles and gates, and then its part of the gradients; the mark that it leaves. */
template <typename Part, typename Run>
__device__ __forceinline__ uint8_t make(const Part &part, const Strip &strip, const BackTiles &tiles, int wide,
                                        Run run)
{
    if (threadIdx.x < SHORT) {
        start_gates(tiles.gates, strip.in, strip.span, strip.head, strip.steps, (int)threadIdx.x);
    } else {
        part.load(wide);
        await_copies();
    }
    __syncthreads(); /* tiles and gates are there */
    const Gates &gates = tiles.gates;
    bool special = gates.is_special();
    bool all = !gates.is_steady() || (gates.fades() && (gates.is_heavy() || !part.is_within()));
#pragma unroll 1
    for (int attempt = 0; attempt < 2; attempt++) { /* again from finite tiles where something was not */
        bool tiny = false;
        const bool spoiled = !run(tiny);
        all = all || tiny;
        if (!__syncthreads_or(spoiled)) break; /* and the tiles are no longer needed */
        (attempt == 0 ? special : all) = true;
        part.make_all_finite();
        __syncthreads(); /* the tiles are finite */
    }
    if (__syncthreads_or(all)) return RL_ATTENTION_ALL;
    return special ? RL_ATTENTION_SPECIAL : 0;
}

__device__ __forceinline__ bool is_wanted(const rl_attention_backward_args &args, int role)
{
    if (role == RL_STRIPS_DQ) return args.dq.data != NULL;
    if (role == RL_STRIPS_DV) return args.dv.data != NULL;
    if (role == RL_STRIPS_DK) return args.dk.data || args.dbeta.data;
    return args.dgate.data != NULL;
}

__global__ void __launch_bounds__(THREADS, 2)
    strips_back_kernel(const __grid_constant__ rl_attention_backward_args args, const int wide)
{
    if constexpr (HAS_PRODUCTS) {
        const int strips = ((int)args.in.length + STRIP - 1) / STRIP, role = (int)blockIdx.y;
        const Strip strip(args, blockIdx.x / (unsigned)strips, (int)(blockIdx.x % (unsigned)strips));
        const BackTiles tiles(dynamic_shared);
        let_later_start();
        await_earlier();
        uint8_t mark = 0;
        if (is_wanted(args, role) && role == RL_STRIPS_DGATE) {
            const GateGradient part(strip, tiles);
            mark = make(part, strip, tiles, wide, [&](bool &tiny) { return part.run(tiny); });
        } else if (is_wanted(args, role)) {
            const Gradient part(strip, tiles, role);
            mark = make(part, strip, tiles, wide, [&](bool &) { return part.run(); });
        }
        if (threadIdx.x == 0) args.marks.parts[(int64_t)blockIdx.x * RL_STRIPS_ROLES + role] = mark;
    }
}

} // namespace

const void *rl_strips_back_kernel(void)
{
    return kernel_address<strips_back_kernel>();
}

size_t rl_strips_back_shared(void)
{
    return GATES_BYTES + BackTiles::FLOATS * sizeof(float);
}
