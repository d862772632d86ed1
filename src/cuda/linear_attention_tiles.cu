/*
 * Linear attention of bfloat16 data by chunks, all at once: the sums of segments, and y (linear_attention_tiles.h).
 *
 *     block = a segment of a head, a warpgroup that goes from chunk to chunk of it
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t  +  Vᵀ Pᵀ        Pᵀ = K Qᵀ · D_tj β_j         y = scale Yᵀ
 *     Sᵀ = Sᵀ · b_64  +  (Vᵀ · e_j β_j) K
 *
 * with S the state that enters, b and e the products of gates from the chunk's begin and to its end.  S meets
 * products as the sum of two bfloat16 numbers; so do the weighed values where the sums of segments are made.  A head
 * is marked, to be run in the loop's order, where gates grow, or fade beside large numbers, or something is not
 * finite.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_tiles_chunk.cuh"

namespace
{

using namespace attention_tiles;

constexpr int SUM_STAGES = 3, STAGES = 2;

/* All chunks' gates, by a warpgroup; ends with a barrier. */
__device__ __forceinline__ void make_gates(Gates *gates, const Task &task, int chunks)
{
    const int i = (int)threadIdx.x % STEPS;
    for (int chunk = (int)threadIdx.x / STEPS; chunk < CHUNKS; chunk += THREADS / STEPS)
        start_gates(gates[chunk], task.args.in, task.span(), task.head(), task.first(chunk), i);
    __syncthreads(); /* what the blocks multiply to is there */
    for (int chunk = (int)threadIdx.x / STEPS; chunk < CHUNKS; chunk += THREADS / STEPS)
        finish_gates(gates[chunk], i);
    __syncthreads(); /* all gates are there */
}

/* Sums */

struct SumLayout {
    static constexpr int STAGE = 2 * TILE, GATES = SUM_STAGES * STAGE, WEIGHTS = GATES + CHUNKS * (int)sizeof(Gates);
    static constexpr int BYTES = WEIGHTS + SEGMENT * (int)sizeof(float);
};

struct Sums {
    const Task &task;
    const bool later; /* what goes back in time */
    const int chunks;
    char *const shared;

    __device__ __forceinline__ int chunk_of(int n) const
    {
        return later ? chunks - 1 - n : n;
    }
    /* One group of copies, also where there is nothing to copy. */
    __device__ __forceinline__ void load(int n) const
    {
        const rl_floats_args &args = task.args;
        const rl_attention_view &right = later ? args.in.q : args.in.k, &left = later ? args.dy : args.in.v;
        if (n < chunks) {
            char *const to = shared + n % SUM_STAGES * SumLayout::STAGE;
            const int chunk = chunk_of(n), steps = task.steps(chunk);
            load_tile(to, right, task.at(right, task.query_head(), chunk), steps, args.in.keys, false);
            load_tile(to + TILE, left, task.at(left, task.head(), chunk), steps, args.in.values, false);
        }
        close_copies();
    }
    __device__ __forceinline__ void weigh(float *weights, const Gates *gates) const
    {
        for (int i = (int)threadIdx.x; i < SEGMENT; i += THREADS) {
            const Gates &own = gates[i / STEPS];
            weights[i] = later ? own.from_begin[i % STEPS] * (float)task.args.in.scale
                               : own.to_end[i % STEPS] * own.beta[i % STEPS];
        }
    }
    __device__ __forceinline__ void run(float (&S)[32], const Gates *gates, const float *weights) const
    {
        const Place own;
        clear(S);
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const int chunk = chunk_of(n);
            char *const right = shared + n % SUM_STAGES * SumLayout::STAGE, *const left = right + TILE;
            Addition<true> addition;
            wait_copies<SUM_STAGES - 1>();
            shared_publish();
            __syncthreads(); /* the chunk's tiles are there */
            addition.prepare(left, weights + chunk * STEPS, own);
            scale_all(S, (float)gates[chunk].product());
            addition.start(S, right);
            products_wait<0>();
            addition.stay();
            hold(S);
            __syncthreads(); /* the tiles are no longer needed */
            load(n + SUM_STAGES);
        }
    }
};

template <bool BACKWARD>
__global__ void __launch_bounds__(THREADS, 4) sum_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args);
        char *const shared = (char *)dynamic_shared;
        Gates *const gates = (Gates *)(shared + SumLayout::GATES);
        float *const weights = (float *)(shared + SumLayout::WEIGHTS);
        const Sums sums = {task, BACKWARD && blockIdx.y == 1, task.chunks(), shared};
        for (int n = 0; n < SUM_STAGES; n++) sums.load(n);
        make_gates(gates, task, sums.chunks);
        sums.weigh(weights, gates);
        if (threadIdx.x == 0 && !sums.later) {
            double carry = 1;
            for (int chunk = 0; chunk < sums.chunks; chunk++) carry *= gates[chunk].product();
            const float first = (float)carry;
            *(float2 *)(args.decays + (int64_t)blockIdx.x * 2) = float2{first, (float)(carry - first)};
            if (task.segment == 0) args.marks.all[task.walk] = 0;
        }
        __syncthreads(); /* the weights are there */
        float S[32];
        sums.run(S, gates, weights);
        float *const to = (sums.later ? args.G : args.S) + (int64_t)blockIdx.x * (WIDE * WIDE);
        const Place own;
#pragma unroll
        for (int i = 0; i < 32; i++) to[state_place(i, own)] = S[i];
    }
}

/* Answers */

struct Layout {
    static constexpr int Q = 0, K = TILE, V = 2 * TILE, STAGE = 3 * TILE;
    static constexpr int GATES = STAGES * STAGE, BYTES = GATES + CHUNKS * (int)sizeof(Gates) + 2 * SEGMENT * 4;
};

struct Answers {
    const Task &task;
    const int chunks;
    char *const shared;
    const Place own;

    __device__ Answers(const Task &task, char *shared) : task(task), chunks(task.chunks()), shared(shared)
    {
    }
    __device__ __forceinline__ char *stage(int chunk) const
    {
        return shared + chunk % STAGES * Layout::STAGE;
    }
    __device__ __forceinline__ const Gates &gates(int chunk) const
    {
        return ((const Gates *)(shared + Layout::GATES))[chunk];
    }
    __device__ __forceinline__ float *weights() const
    {
        return (float *)(shared + Layout::GATES + CHUNKS * (int)sizeof(Gates));
    }
    __device__ __forceinline__ void load(int chunk) const
    {
        const rl_attention_inputs &in = task.args.in;
        if (chunk < chunks) {
            char *const to = stage(chunk);
            const int steps = task.steps(chunk);
            load_tile(to + Layout::Q, in.q, task.at(in.q, task.query_head(), chunk), steps, in.keys, true);
            load_tile(to + Layout::K, in.k, task.at(in.k, task.query_head(), chunk), steps, in.keys, true);
            load_tile(to + Layout::V, in.v, task.at(in.v, task.head(), chunk), steps, in.values, true);
        }
        close_copies();
    }
    /* Pᵀ as bfloat16 numbers, by words of a store. */
    __device__ __forceinline__ void mix(uint32_t (&words)[BLOCKS / 2][4], int chunk) const
    {
        const char *const q = stage(chunk) + Layout::Q, *const k = stage(chunk) + Layout::K;
        const Gates &g = gates(chunk);
        float P[32];
        hold(P);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_tiles<BF16, STEPS, false, false>(P, along(k, turn), along(q, turn), turn > 0);
        products_commit();
        float2 near[2];
        float far[2];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            const int row = own.row(upper);
            near[upper] = g.within(row / BLOCK, row % BLOCK, own.pair() * 2);
            near[upper].x *= g.beta[row];
            near[upper].y *= g.beta[row];
            far[upper] = g.after[row] * g.beta[row];
        }
        products_wait<0>();
        hold(P);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            const float2 until = ((const float2 *)g.until)[block * 4 + own.pair()];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int early = own.warp() * 2 + upper, at = block * 4 + upper * 2;
                const float over = far[upper] * g.between[early][block];
                float first = P[at] * (over * until.x), second = P[at + 1] * (over * until.y);
                if (block == early) first = P[at] * near[upper].x, second = P[at + 1] * near[upper].y;
                if (block < early) first = second = 0;
                words[block / 2][block % 2 * 2 + upper] = pack_bfloats(first, second);
            }
        }
    }
    __device__ __forceinline__ void read_state(float (&Y)[32], const float (&S)[32], int chunk) const
    {
        const char *const q = stage(chunk) + Layout::Q;
        hold(Y);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t high[TURNS / 2][4], low[TURNS / 2][4];
#pragma unroll
            for (int i = 0; i < TURNS * 2; i++) {
                const int at = half * 16 + 2 * i;
                split(S[at], S[at + 1], high[i / 4][i % 4], low[i / 4][i % 4]);
            }
            hold(high);
            hold(low);
            products_fence();
#pragma unroll
            for (int turn = 0; turn < TURNS / 2; turn++) {
                const uint64_t keys = along(q, half * (TURNS / 2) + turn);
                product_of_registers<BF16, STEPS, false>(Y, high[turn], keys, half + turn > 0);
                product_of_registers<BF16, STEPS, false>(Y, low[turn], keys, true);
            }
            products_commit();
            products_wait<0>();
            hold(high);
            hold(low);
        }
        hold(Y);
    }
    __device__ __forceinline__ void decay(float (&Y)[32], const Gates &g) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            const float2 from = ((const float2 *)g.from_begin)[block * 4 + own.pair()];
#pragma unroll
            for (int k = 0; k < 4; k++) Y[block * 4 + k] *= k % 2 ? from.y : from.x;
        }
    }
    __device__ __forceinline__ void store(const float (&Y)[32], int chunk) const
    {
        const rl_floats_args &args = task.args;
        const int64_t base = task.at(args.y, task.head(), chunk);
        const int steps = task.steps(chunk);
        if (args.wide & RL_FLOATS_Y) {
            char *const rows = stage(chunk) + Layout::K;
#pragma unroll
            for (int block = 0; block < BLOCKS; block += 2) {
                uint32_t words[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int at = (block + k / 2) * 4 + k % 2 * 2;
                    words[k] = pack_bfloats(Y[at], Y[at + 1]);
                }
                matrices_store<4, true>(blocks_at(rows, own, block, true), words);
            }
            __syncthreads(); /* the rows are there */
            store_tile(rows, args.y, base, steps, args.in.values);
            return;
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int step = i / 4 * 8 + own.pair() * 2 + i % 2, value = own.row(i / 2 % 2);
            if (step < steps && value < args.in.values)
                store_any(args.y.data, args.y.dtype, base + step * args.y.step + value * args.y.lane, Y[i]);
        }
    }
    /* Whether products may not be used; of all threads together, once a state is known. */
    __device__ __forceinline__ bool is_unwelcome(const float (&S)[32], int chunk) const
    {
        const Gates &g = gates(chunk);
        if (!g.is_steady()) return true;
        if (!g.fades()) return false;
        char *const q = stage(chunk);
        return g.heavy[0] || g.heavy[1] || exceeds(S) || exceeds(q + Layout::Q) || exceeds(q + Layout::K) ||
               exceeds(q + Layout::V);
    }
    __device__ __forceinline__ void run_chunk(float (&S)[32], float &finite, bool &unwelcome, int chunk) const
    {
        char *const q = stage(chunk) + Layout::Q, *const k = stage(chunk) + Layout::K,
                    *const v = stage(chunk) + Layout::V;
        const Gates &g = gates(chunk);
        float Y[32];
        uint32_t words[BLOCKS / 2][4];
        wait_copies<STAGES - 1>();
        shared_publish();
        __syncthreads(); /* the chunk's tiles are there */
        unwelcome = is_unwelcome(S, chunk) || unwelcome;
        mix(words, chunk);
        read_state(Y, S, chunk);
        {
            Addition<false> addition;
            addition.prepare(v, weights() + chunk * STEPS, own);
            scale_all(S, (float)g.product());
            addition.start(S, k);
            decay(Y, g);
            products_wait<0>();
            addition.stay();
            hold(S);
        }
        __syncthreads(); /* q and k are no longer needed */
#pragma unroll
        for (int block = 0; block < BLOCKS; block += 2)
            matrices_store<4, false>(blocks_at(q, own, block, false), words[block / 2]);
        uint32_t V[TURNS][4];
        lanes_left(V, v, own);
        hold(V);
        shared_publish();
        __syncthreads(); /* P is there */
        hold(Y);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++)
            product_of_registers<BF16, STEPS, true>(Y, V[turn], across(q, turn), true);
        products_commit();
        products_wait<0>();
        hold(V);
        hold(Y);
        scale_all(Y, (float)task.args.in.scale);
        look_at(finite, Y);
        store(Y, chunk);
        __syncthreads(); /* the stage is no longer needed */
        load(chunk + STAGES);
    }
};

__global__ void __launch_bounds__(THREADS, 4) answer_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args);
        const Answers answers(task, (char *)dynamic_shared);
        for (int chunk = 0; chunk < STAGES; chunk++) answers.load(chunk);
        float S[32], finite = 0;
        load_state(S, args.S + (int64_t)blockIdx.x * (WIDE * WIDE), answers.own);
        make_gates((Gates *)((char *)dynamic_shared + Layout::GATES), task, answers.chunks);
        for (int i = (int)threadIdx.x; i < SEGMENT; i += THREADS)
            answers.weights()[i] =
                answers.gates(i / STEPS).to_end[i % STEPS] * answers.gates(i / STEPS).beta[i % STEPS];
        bool unwelcome = false;
#pragma unroll 1
        for (int chunk = 0; chunk < answers.chunks; chunk++) answers.run_chunk(S, finite, unwelcome, chunk);
        if (unwelcome || finite != 0) args.marks.all[task.walk] = 1;
    }
}

} // namespace

const void *rl_tiles_sum_kernel(bool backward)
{
    return backward ? kernel_address<sum_kernel<true>>() : kernel_address<sum_kernel<false>>();
}

const void *rl_tiles_answer_kernel(void)
{
    return kernel_address<answer_kernel>();
}

size_t rl_tiles_sum_shared(void)
{
    return SumLayout::BYTES;
}

size_t rl_tiles_answer_shared(void)
{
    return Layout::BYTES;
}
