/*
 * One step of linear attention for many states, as a server decodes: the states go through shared memory by bulk
 * copies, so that what is on its way takes no registers and never waits for arithmetic.
 *
 *     block  = one for each multiprocessor, one state after the other: two arrive while one is at work
 *     thread = ROWS keys by COLUMNS values of a state, as in linear_attention_walk.cu, and the sums in the same order
 *
 * A state's inputs are loaded into registers one state ahead.
 */
#include <machine/bulk.cuh>
#include <machine/early.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_kernels.h"
#include "linear_attention_walk.cuh"

namespace
{

using namespace attention;

constexpr int ROWS = RL_ATTENTION_ROWS, COLUMNS = 4, STAGES = RL_ATTENTION_DECODE_STAGES;

/* What a thread needs of a step besides the state. */
struct Step {
    float q[ROWS], k[ROWS], v[COLUMNS], gate, beta;
    bool reset;

    __device__ Step(const rl_attention_inputs &in, int64_t unit, int64_t units, int row, int column)
    {
        if (unit >= units) return;
        const int64_t sequence = divide(unit, in.heads), head = unit - sequence * in.heads;
        const int64_t query_head = divide(head, in.share);
        const Span span(in, sequence);
        load_lanes(k, in.k, sequence, query_head, row, ROWS);
        load_lanes(v, in.v, sequence, head, column, COLUMNS);
        load_lanes(q, in.q, sequence, query_head, row, ROWS);
        const Factor<float> factor(in, span, head, 0);
        gate = factor.value;
        reset = factor.reset;
        beta = beta_at<float>(in, span, head, 0);
    }
};

/* The block's states, in the order in which it takes them; thread 0 moves them. */
struct Ring {
    const rl_attention_args &args;
    const int numbers; /* of a state */
    float *const stages;
    uint64_t *const barriers;

    __device__ float *stage(int n) const
    {
        return stages + n % STAGES * numbers;
    }
    __device__ int64_t unit(int n) const
    {
        return blockIdx.x + (int64_t)n * gridDim.x;
    }
    __device__ float *place(const rl_attention_state &state, int n) const
    {
        const int64_t sequence = divide(unit(n), args.in.heads), head = unit(n) - sequence * args.in.heads;
        return (float *)state.data + sequence * state.sequence + head * state.head;
    }
    __device__ void fill(int n) const
    {
        const uint32_t bytes = (uint32_t)numbers * (uint32_t)sizeof(float);
        barrier_expect(barriers + n % STAGES, bytes);
        bytes_load(stage(n), place(args.in.S_init, n), bytes, barriers + n % STAGES);
    }
    __device__ void empty(int n) const
    {
        bytes_store(place(args.S_final, n), stage(n), (uint32_t)numbers * (uint32_t)sizeof(float));
        stores_commit();
    }
    __device__ void await(int n) const
    {
        barrier_wait(barriers + n % STAGES, (uint32_t)(n / STAGES) & 1);
    }
};

__device__ __forceinline__ void take(float *state, float *parts, const Step &step, int wide)
{
    Tile<float, ROWS, COLUMNS> S;
    float total[COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) read_run(S.at[r], state + r * wide);
    take_step(S, step.gate, step.reset, step.beta, step.k, step.v);
#pragma unroll
    for (int r = 0; r < ROWS; r++) write_run(state + r * wide, S.at[r]);
    read_state(total, S, step.q, ROWS);
    write_run(parts, total);
}

__global__ void __launch_bounds__(RL_ATTENTION_DECODE_THREADS, 1)
    decode_kernel(const __grid_constant__ rl_attention_args args)
{
    if constexpr (HAS_PRODUCTS) {
        const rl_attention_inputs &in = args.in;
        const int wide = (int)in.values, groups = (int)in.keys / ROWS, thread = (int)threadIdx.x;
        const int column = thread % (wide / COLUMNS) * COLUMNS, group = thread / (wide / COLUMNS), row = group * ROWS;
        const int64_t units = in.sequences * in.heads;
        float *const shared = (float *)dynamic_shared, *const parts = shared + STAGES * (int)in.keys * wide;
        const Ring ring = {args, (int)in.keys * wide, shared, (uint64_t *)(parts + 2 * groups * wide)};
        let_later_start();
        await_earlier();
        if (thread == 0) {
            for (int s = 0; s < STAGES; s++) barrier_init(ring.barriers + s, 1);
            barrier_publish();
            for (int n = 0; n + 1 < STAGES && ring.unit(n) < units; n++) ring.fill(n);
        }
        Step next(in, ring.unit(0), units, row, column);
        __syncthreads(); /* the barriers are there */
        for (int n = 0; ring.unit(n) < units; n++) {
            const Step now = next;
            float *const own = parts + n % 2 * groups * wide;
            next = Step(in, ring.unit(n + 1), units, row, column);
            ring.await(n);
            take(ring.stage(n) + row * wide + column, own + group * wide + column, now, wide);
            shared_publish();
            __syncthreads(); /* the state and all parts are there */
            if (thread == 0) {
                ring.empty(n);
                stores_wait<1>(); /* the state before is out of the stage that is filled next */
                if (ring.unit(n + STAGES - 1) < units) ring.fill(n + STAGES - 1);
            }
            if (thread >= wide) continue;
            const int64_t sequence = divide(ring.unit(n), in.heads), head = ring.unit(n) - sequence * in.heads;
            store_any(args.y.data, args.y.dtype, Span(in, sequence).at(args.y, head, 0) + thread * args.y.lane,
                      rounded_product((float)in.scale, parts_of_keys<ROWS>(own + thread, groups, wide)));
        }
        if (thread == 0) stores_wait<0>();
    }
}

} // namespace

const void *rl_attention_decode_kernel(void)
{
    return kernel_address<decode_kernel>();
}
