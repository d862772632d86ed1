/*
 * The scan by a ring of tiles in shared memory: time in the loop's own order, each tensor read or written once.
 *
 *     block  = CHANNELS channels of one sequence
 *     tile   = STEPS steps of these.  Where channels are contiguous in memory a step is a row of the tile; where time
 *              is (ALONG), a channel is, its 16-byte chunks swizzled by the copy engine so that no bank is met twice
 *     ring   = `stages` slots of the tiles of one stretch of time: input, before (backward), a (where streamed)
 *     mover  = one thread, which has the copy engine fill slots, and write results out of them
 *     walker = any other thread: has a channel, and leaves results where input (backward: and before) was
 *
 * A slot goes round: filled (a barrier counts its bytes), walked (a barrier counts warps), written, filled again.
 */
#ifndef RL_CUDA_SCAN_RING_CUH
#define RL_CUDA_SCAN_RING_CUH

#include "scan_bulk.cuh"
#include "scan_chain.cuh"
#include "scan_ring_tile.cuh"

namespace scan_ring
{

/*
 * What a block works on, and its slots in shared memory.  The copy engine wants inner coordinates at multiples of 16
 * bytes, and none that are negative: a sequence that begins between such places skips the first steps of its first
 * tile.
 */
template <typename T, bool ALONG, bool BACKWARD, int CHANNELS> struct Task {
    typedef scan_ring::Tile<T, ALONG, CHANNELS> Tile;
    static constexpr int STEPS = Tile::STEPS;
    static constexpr bool is_along = ALONG, is_backward = BACKWARD;

    const rl_scan_ring_args &args;
    int64_t sequence, channel; /* the block's first channel */
    Span span;
    int skipped; /* steps of the first tile, at its start in the order of running */
    int64_t total, tiles;
    char *ring;
    uint64_t *filled, *walked;

    __device__ Task(const rl_scan_ring_args &args, char *shared)
        : args(args), sequence((uint32_t)blockIdx.x / (uint32_t)args.blocks),
          channel((int64_t)(blockIdx.x - (uint32_t)sequence * (uint32_t)args.blocks) * CHANNELS),
          span(args.scan, sequence), skipped(0), ring(shared),
          filled((uint64_t *)(shared + args.stages * slot_bytes())), walked(filled + args.stages)
    {
        if (args.scan.down)
            skipped = -(int)(span.begin + span.count) & (STEPS - 1);
        else if (ALONG)
            skipped = (int)span.begin & (Tile::CHUNK - 1);
        total = span.count > 0 ? span.count + skipped : 0;
        tiles = (total + STEPS - 1) / STEPS;
    }
    __device__ int slot_bytes() const
    {
        return Tile::BYTES * (1 + BACKWARD + args.streams_a);
    }
    __device__ char *input(int slot) const
    {
        return ring + slot * slot_bytes();
    }
    __device__ char *before(int slot) const
    {
        return input(slot) + Tile::BYTES;
    }
    __device__ char *a(int slot) const
    {
        return input(slot) + Tile::BYTES * (1 + BACKWARD);
    }

    /* Where the tile begins in time. */
    __device__ int64_t time(int64_t tile) const
    {
        return args.scan.down ? span.begin + span.count + skipped - (tile + 1) * STEPS
                              : span.begin - skipped + tile * STEPS;
    }
    /* The tile's steps are those of the sequence from `from` on, and before `left`. */
    __device__ int from(int64_t tile) const
    {
        return tile == 0 ? skipped : 0;
    }
    __device__ int64_t left(int64_t tile) const
    {
        return total - tile * STEPS;
    }
    /* Else other sequences' steps lie beside them; where the tensors end there, the copy engine knows. */
    __device__ bool stored_whole(int64_t tile) const
    {
        return (left(tile) >= STEPS && from(tile) == 0) || !args.scan.offsets;
    }
};

/* The slot of a tile, and the parity of its turn. */
struct Turn {
    int slot = 0;
    uint32_t parity = 0;

    __device__ void advance(int stages)
    {
        if (++slot < stages) return;
        slot = 0;
        parity ^= 1;
    }
};

template <typename Task> struct Mover {
    static constexpr int STEPS = Task::STEPS, UNITS = Task::Tile::CHUNK == 1 ? 2 : 1; /* copied as float64 pairs */
    const Task &task;
    const rl_scan_ring_args &args;

    __device__ Mover(const Task &task) : task(task), args(task.args)
    {
    }
    __device__ TileAt at(int64_t tile) const
    {
        const int time = (int)task.time(tile), channel = (int)task.channel, row = (int)task.span.row;
        if (Task::is_along) return {time * UNITS, channel, row};
        return {channel * UNITS, time, row};
    }
    __device__ void fill(int64_t tile, int slot) const
    {
        const bool has_before = Task::is_backward && args.scan.decay.data;
        uint64_t *barrier = task.filled + slot;
        barrier_expect(barrier, Task::Tile::BYTES * (1 + has_before + args.streams_a));
        if (args.streams_a) tile_load(task.a(slot), args.a, at(tile), barrier);
        tile_load(task.input(slot), args.input, at(tile), barrier);
        if (has_before) tile_load(task.before(slot), args.before, at(tile), barrier);
    }
    __device__ void write(int64_t tile, int slot) const
    {
        if (task.stored_whole(tile)) {
            if (args.scan.output.data) tile_store(args.output, at(tile), task.input(slot));
            if (Task::is_backward && args.scan.decay.data) tile_store(args.decay, at(tile), task.before(slot));
        }
        stores_commit();
    }
    __device__ void prefetch() const
    {
        if (args.streams_a) tile_prefetch(args.a);
        tile_prefetch(args.input);
        if (args.scan.before.data) tile_prefetch(args.before);
    }

    /* The slots that no walker has to leave first. */
    __device__ void begin() const
    {
        for (int k = 0; k < args.stages && k < task.tiles; k++) fill(k, k);
    }
    /* A slot is filled again one tile late, so that reading it for the write is not waited for. */
    __device__ void run() const
    {
        Turn now;
        int last = 0;
        for (int64_t tile = 0; tile < task.tiles; tile++) {
            barrier_wait(task.walked + now.slot, now.parity);
            write(tile, now.slot);
            const int64_t next = tile - 1 + args.stages;
            if (tile > 0 && next < task.tiles) {
                stores_wait<1>();
                fill(next, last);
            }
            last = now.slot;
            now.advance(args.stages);
        }
        stores_wait<0>();
    }
};

/* A thread's channel. */
template <typename Task, typename T> struct Walker {
    typedef typename Task::Tile Tile;
    typedef typename Accumulated<T>::type N;
    static constexpr int STEPS = Task::STEPS;

    const Task &task;
    const rl_scan_args &args;
    const int own; /* the channel within the block */
    const bool exists;
    Chain<N> chain;
    N constant; /* the decay, where it is not streamed */

    /* Threads beyond the channels walk the last one's state over tiles of zeros, and write nothing. */
    __device__ Walker(const Task &task, int own)
        : task(task), args(task.args.scan), own(own), exists(task.channel + own < args.channels),
          chain(args, task.sequence, exists ? task.channel + own : task.channel), constant()
    {
        if (task.args.streams_a || task.span.count == 0 || !exists) return;
        constant = load_number<N>(args.a.data, args.a.dtype, task.span.at(args.a, task.channel + own, args.down));
    }

    template <bool DOWN> __device__ void read_decays(N (&a)[GROUP], int slot, int first) const
    {
        if (task.args.streams_a) {
            Tile::template read<DOWN>(a, task.a(slot), own, first);
        } else {
#pragma unroll
            for (int k = 0; k < GROUP; k++) a[k] = constant;
        }
    }

    template <bool DOWN, bool WHOLE> __device__ void forward(int slot, int first, int from, int left)
    {
        N a[GROUP], h[GROUP];
        read_decays<DOWN>(a, slot, first);
        Tile::template read<DOWN>(h, task.input(slot), own, first);
        chain.template forward<WHOLE>(a, h, from, left);
        Tile::template write<DOWN>(h, task.input(slot), own, first);
    }

    /* What a step before the group's last is preceded by, in time, is h of the next one in the order of running. */
    template <bool DOWN, bool WHOLE> __device__ void backward(const Turn &now, int first, int from, int left)
    {
        const int slot = now.slot;
        N a[GROUP], g[GROUP], before[GROUP];
        read_decays<DOWN>(a, slot, first);
        Tile::template read<DOWN>(g, task.input(slot), own, first);
        if (args.decay.data) {
            N h[GROUP];
            Tile::template read<DOWN>(h, task.before(slot), own, first);
#pragma unroll
            for (int k = 0; k + 1 < GROUP; k++) before[k] = h[k + 1];
            before[GROUP - 1] = following<DOWN>(now, first + GROUP, left > GROUP);
        }
        chain.template backward<WHOLE>(a, g, from, left);
        if (args.output.data) Tile::template write<DOWN>(g, task.input(slot), own, first);
        if (!args.decay.data) return;
        chain.template differentiate<WHOLE>(a, g, before, left);
        Tile::template write<DOWN>(before, task.before(slot), own, first);
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

    template <bool DOWN, bool WHOLE> __device__ void group(const Turn &now, int first, int from, int left)
    {
        if (Task::is_backward)
            backward<DOWN, WHOLE>(now, first, from - first, left - first);
        else
            forward<DOWN, WHOLE>(now.slot, first, from - first, left - first);
    }

    /* Writes the few steps of a packed sequence's first or last tile, beside which another sequence's lie. */
    template <bool DOWN>
    __device__ void write_part(const rl_scan_view &view, char *data, int64_t tile, int from, int left) const
    {
        if (!view.data) return;
        const int64_t done = tile * STEPS - task.skipped;
        const int end = left < STEPS ? left : STEPS;
        if (Task::is_along) { /* a warp's channels one by one, lanes along time */
            const int lane = threadIdx.x % 32;
            for (int other = own - lane; other < own - lane + 32; other++) {
                const int64_t channel = task.channel + other;
                if (channel >= args.channels) break;
                T *to = (T *)view.data + task.span.at(view, channel, DOWN) + done * view.step;
                for (int k = from + lane; k < end; k += 32)
                    to[k * view.step] = *Tile::element(data, other, Tile::in_time(k, DOWN));
            }
        } else if (exists) {
            T *to = (T *)view.data + task.span.at(view, task.channel + own, DOWN) + done * view.step;
            for (int k = from; k < end; k++) to[k * view.step] = *Tile::element(data, own, Tile::in_time(k, DOWN));
        }
    }

    template <bool DOWN> __device__ void walk(int64_t tile, const Turn &now)
    {
        const int from = task.from(tile);
        const int64_t most = task.left(tile);
        const int left = most > STEPS ? STEPS + 1 : (int)most; /* one more: the sequence's end is not here */
        if (left >= STEPS + Task::is_backward && from == 0) {
#pragma unroll
            for (int first = 0; first < STEPS; first += GROUP) group<DOWN, true>(now, first, 0, STEPS + 1);
        } else {
#pragma unroll 1
            for (int first = 0; first < STEPS && first < left; first += GROUP)
                group<DOWN, false>(now, first, from, left);
        }
        if (!task.stored_whole(tile)) {
            __syncwarp(); /* all channels of the warp are in the tile */
            write_part<DOWN>(args.output, task.input(now.slot), tile, from, left);
            if (Task::is_backward) write_part<DOWN>(args.decay, task.before(now.slot), tile, from, left);
        }
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

template <typename T, bool ALONG, bool BACKWARD, int CHANNELS>
__global__ void __launch_bounds__(CHANNELS + 32) ring_kernel(const __grid_constant__ rl_scan_ring_args args)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* else never launched */
    typedef Task<T, ALONG, BACKWARD, CHANNELS> Work;
    extern __shared__ __align__(1024) char shared[];
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
        mover.begin();
    }
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

template <typename T, bool ALONG> const void *pick_direction(bool backward, int channels)
{
    constexpr int most = rl_scan_ring_channels(sizeof(T), ALONG);
    if (channels == most)
        return backward ? (const void *)ring_kernel<T, ALONG, true, most>
                        : (const void *)ring_kernel<T, ALONG, false, most>;
    return backward ? (const void *)ring_kernel<T, ALONG, true, most / 2>
                    : (const void *)ring_kernel<T, ALONG, false, most / 2>;
}

template <typename T> const void *pick(bool along, bool backward, int channels)
{
    return along ? pick_direction<T, true>(backward, channels) : pick_direction<T, false>(backward, channels);
}

} // namespace scan_ring

#endif
