/*
 * The kernels of linear attention by chunks (linear_attention_chunk_walk.cuh has the work of a block).
 *
 * Where heads are too few for the device, time is cut into segments.  Those but the last are summed first: the first
 * from the state that enters, the others from zero, each with the product of its gates.  A block of the walk then
 * makes the state that enters its segment from these, in their order.  If one of them has no sum (its gates grow, or
 * numbers are not finite), the block walks from there.
 *
 * Each purpose has its own file, for they take the compiler long.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_BLOCK_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_BLOCK_CUH

#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "linear_attention_chunk_choice.cuh"
#include "linear_attention_chunk_mixer.cuh"
#include "linear_attention_chunk_walk.cuh"

namespace attention_chunks
{

/* Which part of the work is the block's. */
template <int GROUPS> struct Task {
    int slab, head, sequence, segment;
    int64_t part; /* of all heads' slabs, the block's first */

    __device__ Task(const rl_chunks_args &args)
    {
        const uint32_t own = (uint32_t)(args.slabs + GROUPS - 1) / GROUPS, heads = (uint32_t)args.heads;
        const uint32_t sequences = (uint32_t)args.sequences, line = blockIdx.x / own, walk = line / heads;
        slab = (int)(blockIdx.x - line * own) * GROUPS;
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
    __device__ int64_t own(const rl_chunks_args &args, int group, int64_t which) const
    {
        return (part + group) * args.segments + which;
    }
    /* The first segment that has no sum of its own in one of the block's slabs, if before the block's own; else that.
     */
    __device__ int64_t entry(const rl_chunks_args &args) const
    {
        int64_t found = 0;
        for (bool goes_on = true; goes_on && found < segment; found += goes_on)
            for (int group = 0; group < GROUPS && slab + group < args.slabs; group++)
                if (args.marks[own(args, group, found)] & RL_CHUNKS_UNSTEADY) goes_on = false;
        return found;
    }
};

template <int KEYS, Purpose PURPOSE> using TaskOf = Task<Layout<KEYS, PURPOSE>::GROUPS>;

template <int KEYS, Purpose PURPOSE>
__device__ inline float *part_of(const rl_chunks_args &args, const TaskOf<KEYS, PURPOSE> &task, int group,
                                 int64_t which)
{
    return args.parts + task.own(args, group, which) * (KEYS * VALUES);
}

/* A number that all of the warp have alike; so the compiler knows it, or it would not let products run across it. */
__device__ inline int same(int number)
{
    return __shfl_sync(ALL, number, 0);
}

/* The state that enters a segment, from those of the segments before it. */
template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ void enter(const rl_chunks_args &args, const TaskOf<KEYS, PURPOSE> &task, int64_t segment,
                                      Walk<KEYS, PURPOSE> &walk)
{
    const int64_t from = task.own(args, walk.group, 0);
    walk.recall_state(part_of<KEYS, PURPOSE>(args, task, walk.group, segment > 0 ? 1 : 0));
    for (int64_t next = 1; next < segment; next++)
        walk.fold_state(args.decays[from + next], args.marks[from + next] & RL_CHUNKS_RESETS,
                        part_of<KEYS, PURPOSE>(args, task, walk.group, next + 1));
}

template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ void walk_segment(const rl_chunks_args &args, const TaskOf<KEYS, PURPOSE> &task,
                                             Walk<KEYS, PURPOSE> &walk, int64_t entry)
{
    const int chunks = walk.course.chunks;
    const int begin = task.cut(args, chunks, task.segment), stop = task.cut(args, chunks, task.segment + 1);
    const bool is_last = task.segment + 1 == args.segments, exists = walk.first_value < args.values;
    if (chunks == 0) {
        if (is_last && args.end.data) walk.pass_state_on();
        return;
    }
    if (args.segments > 1 && exists)
        enter<KEYS, PURPOSE>(args, task, entry, walk);
    else
        walk.load_state();
    walk.first = same(task.cut(args, chunks, entry));
    const int end = same(stop);
#pragma unroll 1
    for (int chunk = walk.first; chunk < end; chunk++) {
        if (exists)
            walk.run(chunk, chunk >= begin && args.y.data);
        else
            walk.pass(chunk);
    }
    walk.finish_stores();
    if (is_last && args.end.data) walk.store_state();
}

/* What a segment's gates are, all of them. */
struct Fate {
    double decay = 1;
    float growth = 1;
    bool resets = false, zeros = false;

    __device__ __forceinline__ void take(const Decays &d)
    {
        decay *= d.carry;
        growth *= d.growth[0] * d.growth[1];
        resets = resets || d.resets[0] || d.resets[1];
        zeros = zeros || d.zeros[0] || d.zeros[1];
        if (decay == 0 && !zeros) decay = LEAST_DECAY;
    }
};

template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ void sum_segment(const rl_chunks_args &args, const TaskOf<KEYS, PURPOSE> &task,
                                            Walk<KEYS, PURPOSE> &walk)
{
    const int chunks = walk.course.chunks;
    const int begin = task.cut(args, chunks, task.segment), stop = task.cut(args, chunks, task.segment + 1);
    const bool exists = walk.first_value < args.values;
    Fate fate;
    if (task.segment == 0) {
        walk.load_state();
        if (exists) walk.keep_state(part_of<KEYS, PURPOSE>(args, task, walk.group, 0));
    } else {
        walk.clear_state();
    }
    walk.first = same(begin);
    const int end = same(stop);
    int chunk = exists ? walk.sum_up(fate, end) : walk.first;
    const bool steady = chunk == end && fate.growth <= GROWTH_MOST;
#pragma unroll 1
    for (; chunk < end; chunk++) walk.pass(chunk);
    if (!exists) return;
    walk.keep_state(part_of<KEYS, PURPOSE>(args, task, walk.group, task.segment + 1));
    if (walk.thread > 0) return;
    args.decays[task.own(args, walk.group, task.segment)] = fate.decay;
    args.marks[task.own(args, walk.group, task.segment)] =
        (fate.resets ? RL_CHUNKS_RESETS : 0) | (steady ? 0 : RL_CHUNKS_UNSTEADY);
}

/* Registers of a thread.  A block begins with the same for all, and its warpgroups exchange them: never more. */
template <int KEYS, Purpose PURPOSE> struct Share {
    typedef attention_chunks::Layout<KEYS, PURPOSE> Layout;
    static constexpr int TOGETHER = KEYS > WIDE ? 1 : 2;
    static constexpr int BLOCK = Layout::SECONDS ? 4 * 128 : KEYS > WIDE ? 3 * 168 : 2 * 128;
    static constexpr int STATE = Layout::SECONDS  ? 176
                                 : KEYS <= WIDE   ? (Layout::PAIRED ? 160 : 144)
                                 : Layout::PAIRED ? 192
                                                  : 208;
    static constexpr int SECOND = 64;
    static constexpr int MIXER = BLOCK - STATE * Layout::GROUPS - SECOND * Layout::SECONDS;
};

template <int KEYS, Purpose PURPOSE>
__device__ __forceinline__ void run_block(const rl_chunks_args &args, char *shared)
{
    typedef attention_chunks::Layout<KEYS, PURPOSE> Layout;
    const TaskOf<KEYS, PURPOSE> task(args);
    const int group = same((int)threadIdx.x / THREADS);
    const int64_t entry = !Layout::SUMS && args.segments > 1 ? task.entry(args) : task.segment;
    if (threadIdx.x == 0) {
        Signals &signals = *(Signals *)(shared + Layout::SIGNALS);
        for (uint64_t &full : signals.full) barrier_init(&full, 1);
        for (uint64_t &ready : signals.ready) barrier_init(&ready, WALK_WARPS);
        for (uint64_t &used : signals.used) barrier_init(&used, (Layout::WARPGROUPS - 1) * WALK_WARPS);
        barrier_init(&signals.shared, Layout::GROUPS * WALK_WARPS);
        barrier_init(&signals.taken, WALK_WARPS);
        for (uint64_t &stored : signals.stored) barrier_init(&stored, Layout::GROUPS);
        barrier_publish();
    }
    __syncthreads(); /* the signals are there */
    if (group == Layout::WARPGROUPS - 1) {
        registers_lower<Share<KEYS, PURPOSE>::MIXER>();
        Mixer<KEYS, PURPOSE> mixer(args, task.sequence, task.head, task.slab * VALUES, shared);
        const int chunks = mixer.course.chunks;
        mixer.run(same(task.cut(args, chunks, entry)), same(task.cut(args, chunks, task.segment + 1)));
    } else if (group == Layout::GROUPS) {
        registers_lower<Share<KEYS, PURPOSE>::SECOND>();
        if constexpr (Layout::SECONDS > 0) {
            Second<KEYS, PURPOSE> second(args, task.sequence, task.head, shared);
            const int chunks = second.course.chunks;
            second.run(same(task.cut(args, chunks, entry)), same(task.cut(args, chunks, task.segment)),
                       same(task.cut(args, chunks, task.segment + 1)));
        }
    } else {
        registers_raise<Share<KEYS, PURPOSE>::STATE>();
        Walk<KEYS, PURPOSE> walk(args, task.sequence, task.head, group, (task.slab + group) * VALUES, shared);
        if constexpr (Layout::SUMS)
            sum_segment<KEYS, PURPOSE>(args, task, walk);
        else
            walk_segment<KEYS, PURPOSE>(args, task, walk, entry);
    }
}

template <int KEYS, Purpose PURPOSE>
__global__ void __launch_bounds__(Layout<KEYS, PURPOSE>::WARPGROUPS *THREADS, Share<KEYS, PURPOSE>::TOGETHER)
    chunks_kernel(const __grid_constant__ rl_chunks_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        run_block<KEYS, PURPOSE>(args, (char *)dynamic_shared);
    }
}

template <int KEYS, Purpose PURPOSE> Choice choice()
{
    typedef attention_chunks::Layout<KEYS, PURPOSE> Layout;
    return {kernel_address<chunks_kernel<KEYS, PURPOSE>>(), Layout::BYTES, Layout::WARPGROUPS * THREADS};
}
template <Purpose PURPOSE> Choice choose(int64_t keys)
{
    return keys <= WIDE ? choice<WIDE, PURPOSE>() : choice<2 * WIDE, PURPOSE>();
}

} // namespace attention_chunks

#endif
