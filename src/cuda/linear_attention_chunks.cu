/*
 * The kernels of linear attention by chunks (linear_attention_chunk_walk.cuh has the work of a block).
 *
 * Where heads are too few for the device, time is cut into segments.  Those but the last are summed first: the first
 * from the state that enters, the others from zero, each with the product of its gates.  A block of the walk then
 * makes the state that enters its segment from these, in their order.  If one of them has no sum (its gates grow, or
 * numbers are not finite), the block walks from there.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_chunk_walk.cuh"

namespace
{

using namespace attention_chunks;

/* Which part of the work is the block's. */
struct Task {
    int slab, head, sequence, segment;
    int64_t part; /* of all heads' slabs */

    __device__ Task(const rl_chunks_args &args)
    {
        const uint32_t slabs = (uint32_t)args.slabs, heads = (uint32_t)args.heads;
        const uint32_t sequences = (uint32_t)args.sequences, line = blockIdx.x / slabs, walk = line / heads;
        slab = (int)(blockIdx.x - line * slabs);
        head = (int)(line - walk * heads);
        segment = (int)(walk / sequences);
        sequence = (int)(walk - (uint32_t)segment * sequences);
        part = (sequence * args.heads + head) * args.slabs + slab;
    }
    /* The chunk that a segment begins with. */
    __device__ static int cut(const rl_chunks_args &args, int chunks, int64_t segment)
    {
        return (int)(chunks * segment / args.segments);
    }
    __device__ int64_t own(const rl_chunks_args &args, int64_t which) const
    {
        return part * args.segments + which;
    }
};

template <int KEYS> __device__ inline float *part_of(const rl_chunks_args &args, const Task &task, int64_t which)
{
    return args.parts + task.own(args, which) * (KEYS * VALUES);
}

/* The state that enters the block's segment, or an earlier one whose chunk is returned. */
template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ int enter(const rl_chunks_args &args, const Task &task, Walk<KEYS, PURPOSE> &walk)
{
    const int64_t from = task.own(args, 0);
    int64_t segment = 0;
    while (segment < task.segment && !(args.marks[from + segment] & RL_CHUNKS_UNSTEADY)) segment++;
    walk.recall_state(part_of<KEYS>(args, task, segment > 0 ? 1 : 0));
    for (int64_t next = 1; next < segment; next++)
        walk.fold_state(args.decays[from + next], args.marks[from + next] & RL_CHUNKS_RESETS,
                        part_of<KEYS>(args, task, next + 1));
    return Task::cut(args, walk.course.chunks, segment);
}

template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ void walk_segment(const rl_chunks_args &args, char *shared)
{
    const Task task(args);
    Walk<KEYS, PURPOSE> walk(args, task.sequence, task.head, task.slab, shared);
    const int chunks = walk.course.chunks;
    const int begin = Task::cut(args, chunks, task.segment), stop = Task::cut(args, chunks, task.segment + 1);
    const bool is_last = task.segment + 1 == args.segments;
    if (chunks == 0) {
        if (is_last && args.end.data) walk.pass_state_on();
        return;
    }
    int chunk = begin;
    if (args.segments > 1)
        chunk = enter(args, task, walk);
    else
        walk.load_state();
    walk.start(chunk, stop);
    for (; chunk < stop; chunk++) walk.run(chunk, chunk >= begin && args.y.data);
    if (is_last && args.end.data) walk.store_state();
}

template <int KEYS> __device__ __forceinline__ void sum_segment(const rl_chunks_args &args, char *shared)
{
    const Task task(args);
    Walk<KEYS, SUM> walk(args, task.sequence, task.head, task.slab, shared);
    const int chunks = walk.course.chunks;
    const int begin = Task::cut(args, chunks, task.segment), stop = Task::cut(args, chunks, task.segment + 1);
    double decay = 1, growth = 1;
    bool resets = false, zeros = false, steady = true;
    if (task.segment == 0) {
        walk.load_state();
        walk.keep_state(part_of<KEYS>(args, task, 0));
    } else {
        walk.clear_state();
    }
    walk.start(begin, stop);
    for (int chunk = begin; chunk < stop && steady; chunk++) {
        const Decays &d = walk.decays(chunk);
        steady = walk.add(chunk);
        decay *= d.carry[0] * d.carry[1];
        growth *= d.growth[0] * d.growth[1];
        resets = resets || d.resets[0] || d.resets[1];
        zeros = zeros || d.zeros[0] || d.zeros[1];
        if (decay == 0 && !zeros) decay = LEAST_DECAY;
        if (!steady) walk.drain(chunk);
    }
    walk.keep_state(part_of<KEYS>(args, task, task.segment + 1));
    if (threadIdx.x > 0) return;
    steady = steady && growth <= GROWTH_MOST;
    args.decays[task.own(args, task.segment)] = decay;
    args.marks[task.own(args, task.segment)] = (resets ? RL_CHUNKS_RESETS : 0) | (steady ? 0 : RL_CHUNKS_UNSTEADY);
}

template <int KEYS, Purpose PURPOSE>
__global__ void __launch_bounds__(THREADS, RL_CHUNKS_TOGETHER)
    chunks_kernel(const __grid_constant__ rl_chunks_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        if constexpr (PURPOSE == SUM)
            sum_segment<KEYS>(args, (char *)dynamic_shared);
        else
            walk_segment<KEYS, PURPOSE>(args, (char *)dynamic_shared);
    }
}

template <Purpose PURPOSE> const void *pick(int64_t keys)
{
    return keys <= WIDE ? kernel_address<chunks_kernel<WIDE, PURPOSE>>()
                        : kernel_address<chunks_kernel<2 * WIDE, PURPOSE>>();
}

template <int KEYS> size_t bytes(rl_chunks_purpose purpose)
{
    return purpose == RL_CHUNKS_Y ? Layout<KEYS>::BYTES : Layout<KEYS>::BYTES_OF_GATES;
}

} // namespace

const void *rl_chunks_walk_kernel(int64_t keys, rl_chunks_purpose purpose)
{
    return purpose == RL_CHUNKS_Y    ? pick<ANSWER>(keys)
           : purpose == RL_CHUNKS_DQ ? pick<READ_STATES>(keys)
                                     : pick<READ_GRADIENTS>(keys);
}

const void *rl_chunks_sum_kernel(int64_t keys)
{
    return pick<SUM>(keys);
}

size_t rl_chunks_shared(int64_t keys, rl_chunks_purpose purpose)
{
    return keys <= WIDE ? bytes<WIDE>(purpose) : bytes<2 * WIDE>(purpose);
}

bool rl_chunks_has_products(void)
{
#ifdef RL_GPU_90A
    return true;
#else
    return false;
#endif
}
