/*
 * Linear attention forward by chunks in float32 (linear_attention_floats.h).
 *
 *     block = a chunk of a head; warp = 16 of its steps, which need nothing of the other warps'
 *
 *     y_t = scale (b_t Sᵀ q_t + Σ_{j <= t} D_tj β_j (q_t · k_j) v_j)        S' = b_64 S + Σ_j k_j (e_j β_j v_j)ᵀ
 *
 * with S the state that enters, b and e the products of gates from the chunk's begin and to its end.  A head is
 * marked, to be run in the loop's order, where the gates of a chunk grow, or fade beside large numbers, or something
 * that products gave is not finite.
 */
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_floats_chunk.cuh"
#include "linear_attention_kernels.h"
#include "linear_attention_walk_forward.cuh"

namespace
{

using namespace attention_floats;

constexpr int THREADS = RL_FLOATS_THREADS, WHOLE_THREADS = RL_FLOATS_WHOLE_THREADS,
              WHOLE_PARTS = WHOLE_THREADS / THREADS;

/* Shared memory of a chunk forward. */
template <int WIDE> struct Tiles {
    typedef attention_floats::Size<WIDE> Size;
    static constexpr int FLOATS = 3 * Size::TILE + Size::STATE + Size::DECAYS + 2 * STEPS;
    float *q, *k, *v, *S, *weights;
    Decays &decays;

    __device__ explicit Tiles(float *shared)
        : q(shared), k(q + Size::TILE), v(k + Size::TILE), S(v + Size::TILE), weights(S + Size::STATE),
          decays(*(Decays *)(weights + 2 * STEPS))
    {
    }
    __device__ void load(const Task &task, bool with_q) const
    {
        const rl_attention_inputs &in = task.args.in;
        const int wide = task.args.wide;
        if (with_q) load_rows<WIDE>(q, in.q, wide & RL_FLOATS_Q, task, task.query_head(), in.keys);
        load_rows<WIDE>(k, in.k, wide & RL_FLOATS_K, task, task.query_head(), in.keys);
        load_rows<WIDE>(v, in.v, wide & RL_FLOATS_V, task, task.head(), in.values);
    }
    __device__ void make_all_finite(const Task &task) const
    {
        make_finite<WIDE>(q, STEPS, task);
        make_finite<WIDE>(k, STEPS, task);
        make_finite<WIDE>(v, STEPS, task);
        make_finite<WIDE>(S, WIDE, task);
    }
    /* Whether products may be used, by the numbers that the thread has looked at. */
    __device__ bool is_welcome(const Task &task) const
    {
        if (!decays.is_steady()) return false;
        if (!decays.fades()) return true;
        return !decays.heavy[0] && !decays.heavy[1] && is_within<WIDE>(q, STEPS, MODERATE_INPUT, task) &&
               is_within<WIDE>(k, STEPS, MODERATE_INPUT, task) && is_within<WIDE>(v, STEPS, MODERATE_INPUT, task) &&
               is_within<WIDE>(S, WIDE, MODERATE_STATE, task);
    }
};

/* Of warps that have PARTS of the values each. */
template <int WIDE, int PARTS> struct Share {
    static constexpr int COUNT = WIDE / 8 / PARTS;
    int strip, column;

    /* Warps of a block meet the same scheduler whatever the block, and the last strip has most to do. */
    __device__ explicit Share(const Task &task)
        : strip((task.thread / 32 + (int)blockIdx.x) % STRIPS), column(task.thread / 32 / STRIPS * (WIDE / PARTS))
    {
    }
};

template <int WIDE, int PARTS>
__device__ __forceinline__ void answer(float (&y)[WIDE / 8 / PARTS][4], const Tiles<WIDE> &tiles, float scale,
                                       const Share<WIDE, PARTS> &own)
{
    const Decays &d = tiles.decays;
    clear(y);
    multiply_state<WIDE, false>(y, tiles.q, own.strip * STRIP, tiles.S, own.column);
    scale_rows(y, d.from_begin + own.strip * STRIP);
#pragma unroll 1
    for (int column = 0; column <= own.strip * STRIP; column += STRIP) {
        float P[2][4];
        multiply_rows<WIDE>(P, tiles.q, own.strip * STRIP, tiles.k, column);
        weigh_earlier(P, d, own.strip, column);
        multiply_sums<WIDE, true>(y, P[0], tiles.v, column, own.column);
        multiply_sums<WIDE, true>(y, P[1], tiles.v, column + 8, own.column);
    }
    scale_all(y, scale);
}

/* Twice where something that products gave is not finite: then from finite tiles. */
template <int WIDE, int PARTS>
__device__ __forceinline__ void make_answers(const Task &task, const Tiles<WIDE> &tiles, bool &special, bool &all)
{
    const Share<WIDE, PARTS> own(task);
#pragma unroll 1
    for (int attempt = 0; attempt < 2; attempt++) {
        float y[WIDE / 8 / PARTS][4], finite = 0;
        answer(y, tiles, (float)task.args.in.scale, own);
        look_at(finite, y);
        store_rows<true>(y, task.args.y, task.args.wide & RL_FLOATS_Y, task, task.head(), task.args.in.values,
                         own.strip, own.column);
        if (!__syncthreads_or(finite != 0)) return; /* and the tiles are no longer needed */
        (attempt == 0 ? special : all) = true;
        tiles.make_all_finite(task);
        __syncthreads(); /* the tiles are finite */
    }
}

/* The chunk's own part of weights: e β. */
__device__ __forceinline__ void weigh_steps(float *weights, const Decays &d, int i)
{
    weights[i] = d.to_end[i] * d.beta[i];
}

template <int WIDE>
__global__ void __launch_bounds__(THREADS, 3) answer_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x / (unsigned)args.chunks, blockIdx.x % (unsigned)args.chunks, THREADS);
        const Tiles<WIDE> tiles((float *)dynamic_shared);
        tiles.load(task, true);
        load_state<WIDE>(tiles.S, args.S + task.place() * (WIDE * WIDE), task);
        if (task.thread < STEPS)
            start_decays(tiles.decays, args.in, task.span(), task.head(), task.first(), task.thread);
        await_copies();
        __syncthreads(); /* the tiles and the blocks' decays are there */
        if (task.thread < STEPS) finish_decays(tiles.decays, task.thread);
        if (__syncthreads_or(!tiles.is_welcome(task))) { /* and all decays are there */
            if (task.thread == 0) args.marks.all[task.walk] = 1;
            return;
        }
        bool special = tiles.decays.is_special(), all = false;
        make_answers<WIDE, 1>(task, tiles, special, all);
        if (special) args.marks.special[task.walk] = 1;
        if (all) args.marks.all[task.walk] = 1;
    }
}

/* All chunks of a head; `steps` is the same problem in the loop's order, cut for this block. */
__global__ void __launch_bounds__(WHOLE_THREADS *RL_FLOATS_MOST_WHOLE, 1)
    whole_kernel(const __grid_constant__ rl_floats_args args, const __grid_constant__ rl_attention_args steps)
{
    if constexpr (HAS_PRODUCTS) {
        constexpr int WIDE = RL_FLOATS_NARROW, PITCH = WIDE + 4;
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x, (int)threadIdx.x / WHOLE_THREADS, WHOLE_THREADS);
        float *const shared = (float *)dynamic_shared;
        const Tiles<WIDE> tiles(shared + task.chunk * Tiles<WIDE>::FLOATS);
        tiles.load(task, true);
        if (task.thread < STEPS)
            start_decays(tiles.decays, args.in, task.span(), task.head(), task.first(), task.thread);
        await_copies();
        __syncthreads(); /* the tiles and the blocks' decays are there */
        if (task.thread < STEPS) {
            finish_decays(tiles.decays, task.thread);
            weigh_steps(tiles.weights, tiles.decays, task.thread);
        }
        __syncthreads(); /* all decays are there */
        bool special = tiles.decays.is_special();
        const bool adds = task.thread < THREADS;
        bool good = true;
        if (adds) good = add_steps<WIDE>(tiles.S, PITCH, tiles.k, tiles.weights, tiles.v, task.thread / 32);
        if (__syncthreads_or(!good)) { /* and the sums are there */
            special = true;
            tiles.make_all_finite(task);
            __syncthreads(); /* the tiles are finite */
            if (adds) add_steps<WIDE>(tiles.S, PITCH, tiles.k, tiles.weights, tiles.v, task.thread / 32);
            __syncthreads(); /* the sums are there */
        }
        float last[WIDE * WIDE / WHOLE_THREADS];
        bool all = false;
#pragma unroll
        for (int n = 0; n < WIDE * WIDE / WHOLE_THREADS; n++) {
            const int i = n * (int)blockDim.x + (int)threadIdx.x, key = i / WIDE, value = i % WIDE;
            if (i >= WIDE * WIDE) break;
            float S = state_number<WIDE>(args.in.S_init, args.in, task.walk, key, value);
            const bool enters = is_finite(S);
            for (int chunk = 0; chunk < args.chunks; chunk++) {
                const Tiles<WIDE> there(shared + chunk * Tiles<WIDE>::FLOATS);
                float &at = there.S[key * PITCH + value];
                const double carry = there.decays.product();
                const float first = (float)carry, second = (float)(carry - first), sum = at;
                at = S;
                S = passed(first, second, S, sum);
            }
            last[n] = S;
            special = special || !enters;
            all = all || (enters && !is_finite(S));
        }
        __syncthreads(); /* the states are there */
        all = all || !tiles.is_welcome(task);
        make_answers<WIDE, WHOLE_PARTS>(task, tiles, special, all);
        all = __syncthreads_or(all), special = __syncthreads_or(special); /* and the tiles are no longer needed */
        if (all || special) {
            for (int64_t slab = 0; slab < steps.in.slabs; slab++)
                attention::walk_slab<float, RL_ATTENTION_NARROW_ROWS, 1>(steps, task.walk, slab, all, shared);
            return;
        }
        if (!args.S_final.data) return;
#pragma unroll
        for (int n = 0; n < WIDE * WIDE / WHOLE_THREADS; n++) {
            const int i = n * (int)blockDim.x + (int)threadIdx.x;
            if (i < WIDE * WIDE) store_state_number(args.S_final, args.in, task.walk, i / WIDE, i % WIDE, last[n]);
        }
    }
}

/* Sums of a chunk, backward for both directions of time. */
template <int WIDE> struct SumTiles {
    typedef attention_floats::Size<WIDE> Size;
    static constexpr int FLOATS = 2 * Size::TILE + Size::DECAYS + STEPS;
};

template <int WIDE, bool BACKWARD>
__global__ void __launch_bounds__(THREADS, 4) sum_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        typedef attention_floats::Size<WIDE> Size;
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x / (unsigned)args.chunks, blockIdx.x % (unsigned)args.chunks, THREADS);
        float *const left = (float *)dynamic_shared, *const right = left + Size::TILE;
        float *const weights = right + Size::TILE;
        Decays &d = *(Decays *)(weights + STEPS);
        const rl_attention_inputs &in = args.in;
        const bool later = BACKWARD && blockIdx.y == 1; /* what goes back in time */
        load_rows<WIDE>(left, later ? in.q : in.k, args.wide & (later ? RL_FLOATS_Q : RL_FLOATS_K), task,
                        task.query_head(), in.keys);
        load_rows<WIDE>(right, later ? args.dy : in.v, args.wide & (later ? RL_FLOATS_DY : RL_FLOATS_V), task,
                        task.head(), in.values);
        if (task.thread < STEPS) start_decays(d, in, task.span(), task.head(), task.first(), task.thread);
        await_copies();
        __syncthreads(); /* the tiles and the blocks' decays are there */
        if (task.thread < STEPS) {
            finish_decays(d, task.thread);
            weights[task.thread] =
                later ? d.from_begin[task.thread] * (float)in.scale : d.to_end[task.thread] * d.beta[task.thread];
        }
        if (task.thread == 0 && !later) {
            const double carry = d.product();
            const float first = (float)carry;
            *(float2 *)(args.decays + task.place() * 2) = float2{first, (float)(carry - first)};
            if (task.chunk == 0) args.marks.all[task.walk] = args.marks.special[task.walk] = 0;
        }
        __syncthreads(); /* the weights are there */
        float *const to = (later ? args.G : args.S) + task.place() * (WIDE * WIDE);
        const bool good = add_steps<WIDE>(to, WIDE, left, weights, right, task.thread / 32);
        if (!__syncthreads_or(!good)) return;
        make_finite<WIDE>(left, STEPS, task); /* the walk of the answers finds what is not, and marks the head */
        make_finite<WIDE>(right, STEPS, task);
        __syncthreads(); /* the tiles are finite */
        add_steps<WIDE>(to, WIDE, left, weights, right, task.thread / 32);
    }
}

/* From chunk to chunk: a thread has four neighbours of a state, whose sums it reads some chunks ahead. */
template <int WIDE>
__global__ void __launch_bounds__(RL_FLOATS_STATE_THREADS) state_kernel(const __grid_constant__ rl_floats_args args)
{
    constexpr int AHEAD = 8, FOURS = WIDE * WIDE / 4;
    let_later_start();
    await_earlier();
    const int64_t which = (int64_t)blockIdx.x * RL_FLOATS_STATE_THREADS + threadIdx.x, walk = which / FOURS;
    const int four = (int)(which % FOURS), key = four * 4 / WIDE, value = four * 4 % WIDE;
    const bool back = blockIdx.y == 1;
    const rl_attention_state &start = back ? args.dS_final : args.in.S_init;
    const rl_attention_state &end = back ? args.dS_init : args.S_final;
    const int64_t begin = walk * args.chunks, chunks = args.chunks;
    float4 *const states = (float4 *)(back ? args.G : args.S) + begin * FOURS + four;
    const float2 *const decays = (const float2 *)args.decays + begin;
    float S[4];
    const auto place = [&](int64_t n) { return back ? chunks - 1 - n : n; };
    bool entered = true; /* something finite */
    for (int i = 0; i < 4; i++) {
        S[i] = state_number<WIDE>(start, args.in, walk, key, value + i);
        entered = entered && is_finite(S[i]);
    }
    for (int64_t from = 0; from < chunks; from += AHEAD) {
        float4 sums[AHEAD];
        float2 decay[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            if (from + n < chunks) sums[n] = states[place(from + n) * FOURS], decay[n] = decays[place(from + n)];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            if (from + n >= chunks) break;
            const float sum[4] = {sums[n].x, sums[n].y, sums[n].z, sums[n].w};
            states[place(from + n) * FOURS] = float4{S[0], S[1], S[2], S[3]};
#pragma unroll
            for (int i = 0; i < 4; i++) S[i] = passed(decay[n].x, decay[n].y, S[i], sum[i]);
        }
    }
    for (int i = 0; i < 4; i++)
        if (!is_finite(S[i])) (entered ? args.marks.all : args.marks.special)[walk] = 1;
    for (int i = 0; i < 4; i++) store_state_number(end, args.in, walk, key, value + i, S[i]);
}

template <bool BACKWARD> const void *pick_sum(int wide)
{
    return wide == RL_FLOATS_NARROW ? kernel_address<sum_kernel<RL_FLOATS_NARROW, BACKWARD>>()
                                    : kernel_address<sum_kernel<RL_FLOATS_MOST_WIDE, BACKWARD>>();
}

} // namespace

const void *rl_floats_sum_kernel(int wide, bool backward)
{
    return backward ? pick_sum<true>(wide) : pick_sum<false>(wide);
}

const void *rl_floats_state_kernel(int wide)
{
    return wide == RL_FLOATS_NARROW ? kernel_address<state_kernel<RL_FLOATS_NARROW>>()
                                    : kernel_address<state_kernel<RL_FLOATS_MOST_WIDE>>();
}

const void *rl_floats_answer_kernel(int wide)
{
    return wide == RL_FLOATS_NARROW ? kernel_address<answer_kernel<RL_FLOATS_NARROW>>()
                                    : kernel_address<answer_kernel<RL_FLOATS_MOST_WIDE>>();
}

const void *rl_floats_whole_kernel(void)
{
    return kernel_address<whole_kernel>();
}

size_t rl_floats_sum_shared(int wide)
{
    return (wide == RL_FLOATS_NARROW ? SumTiles<RL_FLOATS_NARROW>::FLOATS : SumTiles<RL_FLOATS_MOST_WIDE>::FLOATS) *
           sizeof(float);
}

size_t rl_floats_answer_shared(int wide)
{
    return (wide == RL_FLOATS_NARROW ? Tiles<RL_FLOATS_NARROW>::FLOATS : Tiles<RL_FLOATS_MOST_WIDE>::FLOATS) *
           sizeof(float);
}

size_t rl_floats_whole_shared(int64_t chunks)
{
    return (size_t)chunks * Tiles<RL_FLOATS_NARROW>::FLOATS * sizeof(float);
}
