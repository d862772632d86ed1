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

constexpr int SUM_STAGES = 2, STAGES = 2;

/* Sums */

struct SumLayout {
    static constexpr int STAGE = 2 * TILE, GATES = SUM_STAGES * STAGE, WEIGHTS = GATES + CHUNKS * (int)sizeof(Gates);
    static constexpr int FULL = WEIGHTS + SEGMENT * (int)sizeof(float), BYTES = FULL + SUM_STAGES * 8;
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
    __device__ __forceinline__ char *stage(int n) const
    {
        return shared + n % SUM_STAGES * SumLayout::STAGE;
    }
    __device__ __forceinline__ uint64_t *full(int n) const
    {
        return (uint64_t *)(shared + SumLayout::FULL) + n % SUM_STAGES;
    }
    __device__ __forceinline__ Gates *gates() const
    {
        return (Gates *)(shared + SumLayout::GATES);
    }
    __device__ __forceinline__ float *weights() const
    {
        return (float *)(shared + SumLayout::WEIGHTS);
    }
    /* By one thread. */
    __device__ __forceinline__ void load(int n) const
    {
        if (n >= chunks) return;
        barrier_expect(full(n), 2 * TILE);
        task.load(stage(n), later ? task.tiles.q : task.tiles.k, task.query_head(), chunk_of(n), full(n));
        task.load(stage(n) + TILE, later ? task.tiles.dy : task.tiles.v, task.head, chunk_of(n), full(n));
    }
    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x > 0) return;
        for (int n = 0; n < SUM_STAGES; n++) barrier_init(full(n), 1);
        barrier_publish();
        for (int n = 0; n < SUM_STAGES; n++) load(n);
    }
    /* All chunks' gates, for the kernels behind this one, too; ends with a barrier. */
    __device__ __forceinline__ void make_gates() const
    {
        const int i = (int)threadIdx.x % STEPS, begin = (int)threadIdx.x / STEPS;
        const Span span(task.args.in, task.sequence);
#pragma unroll
        for (int n = 0; n < CHUNKS / (THREADS / STEPS); n++) {
            const int chunk = begin + n * (THREADS / STEPS);
            start_gates(gates()[chunk], task.args.in, span, task.head, task.first(chunk), i);
        }
        __syncthreads(); /* what the blocks multiply to is there */
        for (int chunk = begin; chunk < CHUNKS; chunk += THREADS / STEPS) {
            finish_gates(gates()[chunk], (float)task.args.in.scale, i);
            const Gates &own = gates()[chunk];
            weights()[chunk * STEPS + i] = later ? own.back_weight[i] : own.sum_weight[i];
        }
        __syncthreads(); /* all gates are there */
        if (later) return;
        uint4 *const to = (uint4 *)task.gates(0);
        for (int at = (int)threadIdx.x; at < CHUNKS * (int)(sizeof(Gates) / sizeof(uint4)); at += THREADS)
            to[at] = ((const uint4 *)gates())[at];
        if (threadIdx.x > 0) return;
        double carry = 1;
        for (int chunk = 0; chunk < chunks; chunk++) carry *= gates()[chunk].product();
        const float first = (float)carry;
        *(float2 *)(task.args.decays + (int64_t)blockIdx.x * 2) = float2{first, (float)(carry - first)};
        if (task.segment == 0) task.args.marks.all[task.walk] = 0;
    }
    __device__ __forceinline__ void run(float (&S)[32]) const
    {
        const Place own;
        clear(S);
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const int chunk = chunk_of(n);
            Addition<true> addition;
            barrier_wait(full(n), n / SUM_STAGES & 1);
            addition.prepare(stage(n) + TILE, weights() + chunk * STEPS, own);
            scale_all(S, gates()[chunk].carried[0]);
            addition.start(S, stage(n));
            products_wait<0>();
            addition.stay();
            hold(S);
            if (n + SUM_STAGES >= chunks) continue;
            __syncthreads(); /* the tiles are no longer needed */
            if (threadIdx.x == 0) load(n + SUM_STAGES);
            __syncwarp(); /* the engine is told by registers that a warp's threads share */
        }
    }
};

template <bool BACKWARD>
__global__ void __launch_bounds__(THREADS, 5) sum_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args);
        const Sums sums = {task, BACKWARD && blockIdx.y == 1, task.chunks(), (char *)dynamic_shared};
        sums.start();
        sums.make_gates();
        float S[32];
        sums.run(S);
        float *const to = (sums.later ? args.all.G : args.all.S) + (int64_t)blockIdx.x * (WIDE * WIDE);
        store_state(to, S, Place());
    }
}

/* Answers */

struct Layout {
    static constexpr int Q = 0, K = TILE, V = 2 * TILE, GATES = 3 * TILE, STAGE = GATES + GATES_ROOM;
    static constexpr int FULL = STAGES * STAGE, BYTES = FULL + STAGES * 8;
};

/* PIECES: y is stored 16 bytes at a time. */
template <bool PIECES> struct Answers {
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
    __device__ __forceinline__ uint64_t *full(int chunk) const
    {
        return (uint64_t *)(shared + Layout::FULL) + chunk % STAGES;
    }
    __device__ __forceinline__ Gates &gates(int chunk) const
    {
        return *(Gates *)(stage(chunk) + Layout::GATES);
    }
    /* By one thread. */
    __device__ __forceinline__ void load(int chunk) const
    {
        if (chunk >= chunks) return;
        char *const to = stage(chunk);
        barrier_expect(full(chunk), Layout::GATES + sizeof(Gates));
        bytes_load(&gates(chunk), task.gates(chunk), sizeof(Gates), full(chunk));
        task.load(to + Layout::Q, task.tiles.q, task.query_head(), chunk, full(chunk));
        task.load(to + Layout::K, task.tiles.k, task.query_head(), chunk, full(chunk));
        task.load(to + Layout::V, task.tiles.v, task.head, chunk, full(chunk));
    }
    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x == 0) {
            for (int chunk = 0; chunk < STAGES; chunk++) barrier_init(full(chunk), 1);
            barrier_publish();
            for (int chunk = 0; chunk < STAGES; chunk++) load(chunk);
        }
        __syncthreads(); /* the barriers are there */
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
            const float scale = (float)task.args.in.scale, worth = g.beta[row] * scale;
            near[upper].x *= worth;
            near[upper].y *= worth;
            far[upper] = g.after[row] * g.beta[row] * scale;
        }
        products_wait<0>();
        hold(P);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            words[block / 2][block % 2 * 2] = words[block / 2][block % 2 * 2 + 1] = 0;
            if (block < own.warp() * 2) continue;
            const float2 until = ((const float2 *)g.until)[block * 4 + own.pair()];
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int early = own.warp() * 2 + upper, at = block * 4 + upper * 2;
                const float over = far[upper] * g.between[early][block];
                float2 decay = {over * until.x, over * until.y};
                if (block == early) decay = near[upper];
                if (block >= early)
                    words[block / 2][block % 2 * 2 + upper] = pack_bfloats(P[at] * decay.x, P[at + 1] * decay.y);
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
            const float2 from = ((const float2 *)g.back_weight)[block * 4 + own.pair()];
#pragma unroll
            for (int k = 0; k < 4; k++) Y[block * 4 + k] *= k % 2 ? from.y : from.x;
        }
    }
    __device__ __forceinline__ void store(const float (&Y)[32], int chunk) const
    {
        const rl_floats_args &args = task.args;
        const int64_t base = task.at(args.y, task.head, chunk);
        const int steps = task.steps(chunk);
        if constexpr (PIECES) {
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
            shared_publish(); /* before the copy engine writes there again */
            __syncthreads();  /* the rows are there */
            store_tile(rows, args.y, base, steps, args.in.values);
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int step = i / 4 * 8 + own.pair() * 2 + i % 2, value = own.row(i / 2 % 2);
                if (step < steps && value < args.in.values)
                    store_any(args.y.data, args.y.dtype, base + step * args.y.step + value * args.y.lane, Y[i]);
            }
        }
    }
    /* Whether products may not be used; of all threads together, once a state is known. */
    __device__ __forceinline__ bool is_unwelcome(const float (&S)[32], int chunk) const
    {
        const Gates &g = gates(chunk);
        if (!g.steady) return true;
        if (!g.fades) return false;
        char *const q = stage(chunk);
        return g.heavy || exceeds(S) || exceeds(q + Layout::Q) || exceeds(q + Layout::K) || exceeds(q + Layout::V);
    }
    __device__ __forceinline__ void run_chunk(float (&S)[32], float &finite, bool &unwelcome, int chunk) const
    {
        char *const q = stage(chunk) + Layout::Q, *const k = stage(chunk) + Layout::K,
                    *const v = stage(chunk) + Layout::V;
        const Gates &g = gates(chunk);
        float Y[32];
        uint32_t words[BLOCKS / 2][4];
        barrier_wait(full(chunk), chunk / STAGES & 1);
        unwelcome = is_unwelcome(S, chunk) || unwelcome;
        mix(words, chunk);
        read_state(Y, S, chunk);
        decay(Y, g);
        if (chunk + 1 < chunks) {
            Addition<false> addition;
            addition.prepare(v, g.sum_weight, own);
            scale_all(S, g.carried[0]);
            addition.start(S, k);
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
        look_at(finite, Y);
        store(Y, chunk);
        if (chunk + STAGES >= chunks) return;
        __syncthreads(); /* the stage is no longer needed */
        if (threadIdx.x == 0) load(chunk + STAGES);
        __syncwarp();
    }
};

template <bool PIECES>
__global__ void __launch_bounds__(THREADS, 4) answer_kernel(const __grid_constant__ rl_tiles_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args);
        const Answers<PIECES> answers(task, (char *)dynamic_shared);
        float S[32], finite = 0;
        bool unwelcome = false;
        answers.start();
        load_state(S, args.all.S + (int64_t)blockIdx.x * (WIDE * WIDE), answers.own);
#pragma unroll 1
        for (int chunk = 0; chunk < answers.chunks; chunk++) answers.run_chunk(S, finite, unwelcome, chunk);
        if (unwelcome || finite != 0) args.all.marks.all[task.walk] = 1;
    }
}

} // namespace

const void *rl_tiles_sum_kernel(bool backward)
{
    return backward ? kernel_address<sum_kernel<true>>() : kernel_address<sum_kernel<false>>();
}

const void *rl_tiles_answer_kernel(bool pieces)
{
    return pieces ? kernel_address<answer_kernel<true>>() : kernel_address<answer_kernel<false>>();
}

size_t rl_tiles_sum_shared(void)
{
    return SumLayout::BYTES;
}

size_t rl_tiles_answer_shared(void)
{
    return Layout::BYTES;
}

size_t rl_tiles_gates_bytes(void)
{
    return sizeof(Gates);
}
