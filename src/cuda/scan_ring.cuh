/*
 * The scan by a ring of tiles in shared memory: time in the loop's own order, each tensor read or written once.
 *
 *     block  = CHANNELS channels of one sequence
 *     tile   = STEPS steps of these (scan_ring_tile.cuh)
 *     ring   = `stages` slots of the tiles of one stretch of time: input, before (backward), a (where streamed)
 *     mover  = one thread, which has the copy engine fill slots, and write results out of them
 *     walker = any other thread: has a channel, and leaves results where input (backward: and before) was
 *
 * A slot goes round: filled (a barrier counts its bytes), walked (a barrier counts warps), written, filled again.
 */
#ifndef RL_CUDA_SCAN_RING_CUH
#define RL_CUDA_SCAN_RING_CUH

#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "scan_chain.cuh"
#include "scan_ring_mover.cuh"

namespace scan_ring
{

/* A thread's channel. */
template <typename Task, typename T> struct Walker {
    typedef typename Task::Tile Tile;
    typedef typename Accumulated<T>::type N;
    static constexpr int STEPS = Task::STEPS, LINE_STEPS = Tile::LINE_STEPS;

    const Task &task;
    const rl_scan_args &args;
    const int own; /* the channel within the block */
    const bool exists;
    Chain<N> chain;

    /* Steps as they lie in the tiles.  Tiles of tensors that are not given hold anything: none is stored. */
    struct Group {
        typename Tile::Steps a, input, before;
    };

    /* Threads beyond the channels walk the last one's state over tiles of zeros, and write nothing. */
    __device__ Walker(const Task &task, int own)
        : task(task), args(task.args.scan), own(own), exists(task.channel + own < args.channels),
          chain(args, task.sequence, exists ? task.channel + own : task.channel)
    {
        if (task.args.streams_a || task.span.count == 0) return;
        const int64_t at = task.span.at(args.a, task.channel + own, args.down);
        const T constant = exists ? ((const T *)args.a.data)[at] : T{};
        for (int k = 0; k < STEPS; k++) *Tile::element(task.a(0), own, k) = constant;
    }

    /* The tiles of a slot. */
    struct Tiles {
        char *a, *input, *before;

        __device__ Tiles(const Task &task, int slot)
            : a(task.a(slot)), input(task.input(slot)), before(task.before(slot))
        {
        }
    };

    template <bool DOWN> __device__ void load(Group &group, const Tiles &tiles, int first) const
    {
        Tile::template load<DOWN>(group.a, tiles.a, own, first);
        Tile::template load<DOWN>(group.input, tiles.input, own, first);
        if (Task::is_backward) Tile::template load<DOWN>(group.before, tiles.before, own, first);
    }
    template <bool DOWN, bool WHOLE>
    __device__ void forward(const Group &group, const Tiles &tiles, int first, int from, int left)
    {
        N a[GROUP], h[GROUP];
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            a[k] = widen(group.a.template get<DOWN>(k));
            h[k] = widen(group.input.template get<DOWN>(k));
        }
        chain.template forward<WHOLE>(a, h, from, left);
        Tile::template write<DOWN>(h, tiles.input, own, first);
    }

    /* What a step is preceded by, in time, is h of the next one in the order of running; `after` the group's last. */
    template <bool DOWN, bool WHOLE>
    __device__ void backward(const Group &group, N after, const Tiles &tiles, int first, int from, int left)
    {
        N a[GROUP], g[GROUP], before[GROUP];
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            a[k] = widen(group.a.template get<DOWN>(k));
            g[k] = widen(group.input.template get<DOWN>(k));
            before[k] = k + 1 < GROUP ? widen(group.before.template get<DOWN>(k + 1)) : after;
        }
        chain.template backward<WHOLE>(a, g, from, left);
        Tile::template write<DOWN>(g, tiles.input, own, first);
        chain.template differentiate<WHOLE>(a, g, before, left);
        Tile::template write<DOWN>(before, tiles.before, own, first);
    }

    /* h of one step: in this tile, or the first of the next, which is filled whether or not this one is walked. */
    template <bool DOWN> __device__ N following(Turn now, int k, bool exists) const
    {
        if (!exists) return N{};
        if (k == STEPS) {
            now.advance(task.args.stages);
            barrier_wait(task.filled + now.slot, now.parity);
            k = 0;
        }
        return widen(*Tile::element(task.before(now.slot), own, Tile::in_time(k, DOWN)));
    }

    /* Whole lines.  A group is read before the one ahead of it is walked, which hides the way to it. */
    template <bool DOWN> __device__ void walk_lines(const Turn &now, Lines lines)
    {
        const Tiles tiles(task, now.slot);
        const int end = lines.end * LINE_STEPS;
        Group groups[2];
        if (lines.begin < lines.end) load<DOWN>(groups[0], tiles, lines.begin * LINE_STEPS);
#pragma unroll 1
        for (int line = lines.begin * LINE_STEPS; line < end; line += LINE_STEPS) {
#pragma unroll
            for (int k = 0; k < LINE_STEPS; k += GROUP) {
                const int first = line + k;
                const bool last = k + GROUP == LINE_STEPS && line + LINE_STEPS == end;
                Group &group = groups[k / GROUP % 2], &next = groups[k / GROUP % 2 ^ 1];
                if (!last) load<DOWN>(next, tiles, first + GROUP);
                if constexpr (Task::is_backward) {
                    const N after =
                        last ? following<DOWN>(now, end, true) : (N)widen(next.before.template get<DOWN>(0));
                    backward<DOWN, true>(group, after, tiles, first, 0, STEPS + 1);
                } else {
                    forward<DOWN, true>(group, tiles, first, 0, STEPS + 1);
                }
            }
            if (LINE_STEPS / GROUP % 2 != 0) groups[0] = groups[1]; /* a line begins with the first */
        }
    }
    /* Groups of lines beside other sequences' steps, or beside nothing. */
    template <bool DOWN> __device__ void walk_parts(const Turn &now, Lines lines, int from, int left)
    {
        const Tiles tiles(task, now.slot);
        const int begin = lines.begin * LINE_STEPS,
                  end = lines.end * LINE_STEPS < left ? lines.end * LINE_STEPS : left;
#pragma unroll 1
        for (int first = begin < from ? from / GROUP * GROUP : begin; first < end; first += GROUP) {
            Group group;
            load<DOWN>(group, tiles, first);
            if constexpr (Task::is_backward) {
                const N after = following<DOWN>(now, first + GROUP, left - first > GROUP);
                backward<DOWN, false>(group, after, tiles, first, from - first, left - first);
            } else {
                forward<DOWN, false>(group, tiles, first, from - first, left - first);
            }
        }
    }

    /* Writes the few steps of a packed sequence's first or last lines, beside which another sequence's lie. */
    template <bool DOWN>
    __device__ void write_part(const rl_scan_view &view, char *data, int64_t tile, int begin, int end) const
    {
        if (!view.data) return;
        const int64_t done = tile * STEPS - task.skipped;
        if (Task::is_along) { /* a warp's channels one by one, lanes along time */
            const int lane = threadIdx.x % 32;
            for (int other = own - lane; other < own - lane + 32; other++) {
                const int64_t channel = task.channel + other;
                if (channel >= args.channels) break;
                T *to = (T *)view.data + task.span.at(view, channel, DOWN) + done * view.step;
                for (int k = begin + lane; k < end; k += 32)
                    to[k * view.step] = *Tile::element(data, other, Tile::in_time(k, DOWN));
            }
        } else if (exists) {
            T *to = (T *)view.data + task.span.at(view, task.channel + own, DOWN) + done * view.step;
            for (int k = begin; k < end; k++) to[k * view.step] = *Tile::element(data, own, Tile::in_time(k, DOWN));
        }
    }
    template <bool DOWN> __device__ void write_parts(int64_t tile, const Turn &now, int begin, int end) const
    {
        if (begin >= end) return;
        write_part<DOWN>(args.output, task.input(now.slot), tile, begin, end);
        if (Task::is_backward) write_part<DOWN>(args.decay, task.before(now.slot), tile, begin, end);
    }

    template <bool DOWN> __device__ void walk(int64_t tile, const Turn &now)
    {
        const int from = task.from(tile);
        const int64_t most = task.left(tile);
        const int left = most > STEPS ? STEPS + 1 : (int)most; /* one more: the sequence's end is not here */
        Lines whole = task.lines(tile, true);
        if (Task::is_backward && whole.end * LINE_STEPS == left) whole.end--; /* h_init comes before the last step */
        if (whole.end < whole.begin) whole.end = whole.begin;
        walk_parts<DOWN>(now, {0, whole.begin}, from, left);
        walk_lines<DOWN>(now, whole);
        walk_parts<DOWN>(now, {whole.end, Task::LINES}, from, left);
        if (!args.offsets) return;
        const Lines stored = task.stored(tile);
        const int end = left < STEPS ? left : STEPS, middle = stored.begin * LINE_STEPS;
        __syncwarp(); /* all channels of the warp are in the tile */
        write_parts<DOWN>(tile, now, from, middle < end ? middle : end);
        write_parts<DOWN>(tile, now, stored.end > stored.begin ? stored.end * LINE_STEPS : middle, end);
    }

    template <bool DOWN> __device__ void run()
    {
        Turn now;
        for (int64_t tile = 0; tile < task.tiles; tile++) {
            barrier_wait(task.filled + now.slot, now.parity);
            walk<DOWN>(tile, now);
            shared_publish();
            __syncwarp(); /* all of the warp has published */
            if (threadIdx.x % 32 == 0) barrier_arrive(task.walked + now.slot);
            now.advance(task.args.stages);
        }
    }
    __device__ void leave() const
    {
        if (!exists) return;
        if (task.span.count == 0)
            pass_on<N>(args, task.sequence, task.channel + own);
        else
            store_state(args.leave, task.sequence, task.channel + own, chain.state);
    }
};

/* Two blocks of a multiprocessor, at the least, leave registers for all that is unrolled. */
template <typename T, bool ALONG, bool BACKWARD, int CHANNELS>
__global__ void __launch_bounds__(CHANNELS + 32, 2) ring_kernel(const __grid_constant__ rl_scan_ring_args args)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* else never launched */
    typedef Task<T, ALONG, BACKWARD, CHANNELS> Work;
    char *const shared = (char *)dynamic_shared;
    let_later_start();
    if (args.scan.offsets) await_earlier();
    const Work task(args, shared);
    const Mover<Work> mover(task);
    const bool moves = threadIdx.x == CHANNELS;
    if (moves) {
        mover.prefetch();
        for (int k = 0; k < args.stages; k++) {
            barrier_init(task.filled + k, 1);
            barrier_init(task.walked + k, CHANNELS / 32);
        }
        barrier_publish();
    }
    await_earlier();
    if (moves) mover.begin();
    __syncthreads(); /* the barriers exist */
    if (moves) mover.run();
    if (threadIdx.x >= CHANNELS) return;
    Walker<Work, T> walker(task, threadIdx.x);
    if (args.scan.down)
        walker.template run<true>();
    else
        walker.template run<false>();
    walker.leave();
#endif
}

template <typename T, bool ALONG, bool BACKWARD> const void *pick_channels(int channels)
{
    constexpr int most = rl_scan_ring_most(sizeof(T), ALONG), least = rl_scan_ring_least(sizeof(T), ALONG);
    return channels == most ? kernel_address<ring_kernel<T, ALONG, BACKWARD, most>>()
                            : kernel_address<ring_kernel<T, ALONG, BACKWARD, least>>();
}

template <typename T> const void *pick(bool along, bool backward, int channels)
{
    if (along) return backward ? pick_channels<T, true, true>(channels) : pick_channels<T, true, false>(channels);
    return backward ? pick_channels<T, false, true>(channels) : pick_channels<T, false, false>(channels);
}

} // namespace scan_ring

#endif
