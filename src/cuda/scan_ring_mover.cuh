/* The scan's ring: what a block works on, its slots, and the thread that has the copy engine fill and write them. */
#ifndef RL_CUDA_SCAN_RING_MOVER_CUH
#define RL_CUDA_SCAN_RING_MOVER_CUH

#include <machine/bulk.cuh>

#include "scan_ring_tile.cuh"

namespace scan_ring
{

/* Some of a tile's lines. */
struct Lines {
    int begin, end;

    __device__ bool has(int line) const
    {
        return line >= begin && line < end;
    }
};

/*
 * What a block works on, and its slots in shared memory.  The copy engine wants inner coordinates at multiples of 16
 * bytes, and none that are negative: a sequence that begins between such places skips the first steps of its first
 * tile.
 */
template <typename T, bool ALONG, bool BACKWARD, int CHANNELS> struct Task {
    static constexpr int LINES = rl_scan_ring_lines(ALONG, BACKWARD);
    typedef scan_ring::Tile<T, ALONG, CHANNELS, LINES> Tile;
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
          filled((uint64_t *)(a(args.stages - args.streams_a) + Tile::BYTES)), walked(filled + args.stages)
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
    /* Where a is not streamed, one tile behind the slots holds it for all. */
    __device__ char *a(int slot) const
    {
        return args.streams_a ? input(slot) + Tile::BYTES * (1 + BACKWARD) : input(args.stages);
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
    /* Lines of the tile that hold any of its steps; `whole`: nothing else.  In the order of running. */
    __device__ Lines lines(int64_t tile, bool whole) const
    {
        const int more = Tile::LINE_STEPS - 1, begin = (from(tile) + (whole ? more : 0)) / Tile::LINE_STEPS;
        const int64_t end = (left(tile) + (whole ? 0 : more)) / Tile::LINE_STEPS;
        return {begin, end < LINES ? (int)end : LINES};
    }
    /* Else other sequences' steps lie beside them; where the tensors end there, the copy engine knows. */
    __device__ Lines stored(int64_t tile) const
    {
        return lines(tile, args.scan.offsets);
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
    typedef typename Task::Tile Tile;
    static constexpr int UNITS = Tile::CHUNK == 1 ? 2 : 1; /* complex128 is copied as pairs of float64 */

    const Task &task;
    const rl_scan_ring_args &args;
    const bool has_before;

    __device__ Mover(const Task &task)
        : task(task), args(task.args), has_before(Task::is_backward && args.scan.decay.data)
    {
    }
    __device__ TileAt at(int64_t tile) const
    {
        const int time = (int)task.time(tile), channel = (int)task.channel, row = (int)task.span.row;
        if (Task::is_along) return {time * UNITS, channel, row};
        return {channel * UNITS, time, row};
    }
    /* Of a line, in memory's order, its place in the order of running. */
    __device__ int running(int line) const
    {
        return args.scan.down ? Task::LINES - 1 - line : line;
    }
    /*
     * Along time, what is written leaves the L2 cache before what is read: f32 [8,4096,4096] took 1.3 % less time
     * (H200), and work that followed found the cache as fast as ever.
     */
    __device__ void load(char *tile, const CUtensorMap &map, TileAt at, Lines lines, uint64_t *barrier) const
    {
#pragma unroll
        for (int line = 0; line < Task::LINES; line++, at.inner += Tile::LINE_STEPS * UNITS) {
            if (!lines.has(running(line))) continue;
            if (Task::is_along)
                tile_load_lasting(tile + line * Tile::LINE_BYTES, map, at, barrier);
            else
                tile_load(tile + line * Tile::LINE_BYTES, map, at, barrier);
        }
    }
    __device__ void store(const CUtensorMap &map, TileAt at, Lines lines, const char *tile) const
    {
#pragma unroll
        for (int line = 0; line < Task::LINES; line++, at.inner += Tile::LINE_STEPS * UNITS)
            if (lines.has(running(line))) tile_store(map, at, tile + line * Tile::LINE_BYTES);
    }
    __device__ void fill(int64_t tile, int slot) const
    {
        uint64_t *barrier = task.filled + slot;
        const TileAt from = at(tile);
        const Lines lines = task.lines(tile, false);
        barrier_expect(barrier, Tile::LINE_BYTES * (lines.end - lines.begin) * (1 + has_before + args.streams_a));
        if (args.streams_a) load(task.a(slot), args.a, from, lines, barrier);
        load(task.input(slot), args.input, from, lines, barrier);
        if (has_before) load(task.before(slot), args.before, from, lines, barrier);
    }
    __device__ void write(int64_t tile, int slot) const
    {
        const TileAt to = at(tile);
        const Lines lines = task.stored(tile);
        if (args.scan.output.data) store(args.output, to, lines, task.input(slot));
        if (has_before) store(args.decay, to, lines, task.before(slot));
        stores_commit();
    }
    __device__ void prefetch() const
    {
        if (args.streams_a) tile_prefetch(args.a);
        tile_prefetch(args.input);
        if (has_before) tile_prefetch(args.before);
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

} // namespace scan_ring

#endif
