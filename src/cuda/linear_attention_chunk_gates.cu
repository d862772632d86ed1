/*
 * The gates' gradients from what the walks have left (linear_attention_chunk_gates.cuh).
 *
 *     warp = a chunk of a head; lane = two of its steps
 *
 * A gate given as a factor is divided out of its step's sum; where it is too small for that, or a sum is not finite,
 * the head is marked, and its gates are had in the loop's order.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_chunk_gates.cuh"
#include "numbers.cuh"

namespace
{

using namespace attention_chunks;

constexpr float LEAST_GATE = 0x1p-60f; /* that is divided out */

struct Two {
    float first, second;

    __device__ void add(const float *from, int lane)
    {
        const float2 own = ((const float2 *)from)[lane];
        first += own.x;
        second += own.y;
    }
};

struct Gates {
    const rl_chunks_gates_args &args;
    const rl_chunks_args &walk;
    Course course; /* in the recurrence's own order */
    const int64_t sequence, head;
    const int lane;

    __device__ Gates(const rl_chunks_gates_args &args, int64_t sequence, int64_t head)
        : args(args), walk(args.walk), course(args.walk, sequence), sequence(sequence), head(head),
          lane((int)threadIdx.x % 32)
    {
        course.down = false;
        course.lead = 0;
    }
    /* What a state is multiplied by at the step; 0 at a reset. */
    __device__ float factor_at(int64_t step) const
    {
        if (!args.gate.data || (step == 0 && !args.has_state)) return 1;
        const float gate = Raw::load(args.gate, course, head, step);
        return is_reset(walk, gate) ? 0 : factor_of(walk, gate);
    }
    /* Sums over slabs, and of states those of the warps. */
    __device__ void add_up(int chunk, Two &read, Two &given, Two &pairs, Two &whole, float &across) const
    {
        const int groups =
            walk.keys > RL_CHUNKS_MOST_KEYS / 2 ? 2 : 1; /* slabs of a block, which has one sum of pairs */
        for (int64_t slab = 0; slab < walk.slabs; slab++) {
            const int64_t place = place_of(walk, course, sequence, head * walk.slabs + slab, chunk);
            const float *sums = walk.sums + place * KINDS * STEPS, *cross = walk.cross + place * WALK_WARPS;
            read.add(args.read + place * STEPS, lane);
            given.add(sums + INNER * STEPS, lane);
            if (slab % groups == 0) pairs.add(sums + PAIRS * STEPS, lane);
            if (walk.wants_whole) whole.add(sums + WHOLE * STEPS, lane);
            for (int warp = 0; warp < WALK_WARPS; warp++) across += cross[warp];
        }
    }
    __device__ void store(int64_t step, float flow, float whole) const
    {
        if (!course.has(step)) return;
        if (args.dbeta.data) store_any(args.dbeta.data, args.dbeta.dtype, course.at(args.dbeta, head, step), whole);
        if (!args.dgate.data) return;
        const float factor = factor_at(step);
        const bool is_read = step > 0 || args.has_state, divides = is_read && !walk.gate_is_log;
        if (walk.gate_is_log && factor == 0) flow = 0;
        if ((divides && !(fabsf(factor) >= LEAST_GATE)) || !is_finite(flow))
            walk.bad[sequence * walk.heads + head] = 1;
        else
            store_any(args.dgate.data, args.dgate.dtype, course.at(args.dgate, head, step),
                      !is_read  ? 0
                      : divides ? flow / factor
                                : flow);
    }
    __device__ void run(int chunk) const
    {
        Two read = {0, 0}, given = {0, 0}, pairs = {0, 0}, whole = {0, 0};
        float across = 0;
        add_up(chunk, read, given, pairs, whole, across);
        across *= factor_at((int64_t)chunk * STEPS);
        const auto [earlier, later] =
            attention::sums_around(given.first + given.second, read.first + read.second, lane);
        const int64_t step = (int64_t)chunk * STEPS + 2 * lane;
        store(step, pairs.first + (read.first + (read.second + later)) + earlier + across, whole.first);
        store(step + 1, pairs.second + (read.second + later) + (earlier + given.first) + across, whole.second);
    }
};

__global__ void gates_kernel(const __grid_constant__ rl_chunks_gates_args args)
{
    const uint32_t heads = (uint32_t)args.walk.heads, sequence = blockIdx.x / heads;
    const int warps = (int)blockDim.x / 32;
    let_later_start();
    await_earlier();
    const Gates gates(args, sequence, blockIdx.x - sequence * heads);
    if (args.walk.bad[blockIdx.x]) return;
    for (int chunk = (int)blockIdx.y * warps + (int)threadIdx.x / 32; chunk < gates.course.chunks;
         chunk += (int)gridDim.y * warps)
        gates.run(chunk);
}

} // namespace

const void *rl_chunks_gates_kernel(void)
{
    return kernel_address<gates_kernel>();
}
