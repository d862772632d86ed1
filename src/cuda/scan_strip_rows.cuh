/*
 * A strip of rows, where channels are neighbours in memory: four channels of a tile, whose block has 16 of them.  A
 * thread has STEPS steps, 16 bytes each.  In shared memory a sub-chunk's rows are followed by 16 bytes more, so that
 * the threads of a warp meet different banks.
 */
#ifndef RL_CUDA_SCAN_STRIP_ROWS_CUH
#define RL_CUDA_SCAN_STRIP_ROWS_CUH

#include <machine/copies.cuh>

#include "scan_strip_place.cuh"

namespace
{

template <bool backward, int steps> struct Rows : Place {
    static constexpr int BLOCKS = (backward ? 4 : 6) * 8 / steps; /* of a multiprocessor */
    static constexpr int CHANNELS = 4, STEPS = steps, TILE_STEPS = 32 * STEPS;
    static constexpr int TILES = RL_STRIP_GROUP_STEPS / TILE_STEPS; /* of a group */
    static constexpr int ROW = 4 * LANES, SUB_CHUNK = STEPS * ROW + 16;
    static constexpr int ROOM = 32 * SUB_CHUNK + ROW, BYTES = (backward ? 3 : 2) * ROOM; /* a row more */
    static constexpr int AT_ONCE = THREADS / 4, STRIDE = AT_ONCE / STEPS * SUB_CHUNK;    /* rows, 16 bytes a thread */
    static_assert(AT_ONCE % STEPS == 0, "places advance alike");

    unsigned char *const rooms;
    const int copy_row, copy_lane;
    int64_t first; /* the row that the thread copies first, in steps of running */

    __device__ Rows(const rl_strip_args &args, unsigned char *rooms)
        : Place(args), rooms(rooms), copy_row((int)threadIdx.x / 4), copy_lane((int)threadIdx.x % 4 * 4)
    {
        const unsigned place = blockIdx.x - (unsigned)args.chains, each = (unsigned)(args.chains / scan.sequences);
        const unsigned row = quotient(place, (unsigned)args.chains), its_chain = place - row * (unsigned)args.chains;
        tile = row;
        chain = its_chain;
        sequence = quotient(its_chain, each);
        channel = (its_chain - (unsigned)sequence * each) * LANES;
        own_lane = warp * 4;
        is_last = tile == args.tiles - 1;
        count = is_last ? (int)(scan.length - tile * TILE_STEPS) : TILE_STEPS;
        first = tile * TILE_STEPS + copy_row - (scan.down ? scan.length - 1 : 0);
    }
    __device__ bool has_channels() const
    {
        return channel + own_lane < scan.channels;
    }
    __device__ static int place_of(int row)
    {
        return row * ROW + row / STEPS * 16;
    }
    __device__ float *copied(const rl_scan_view &view) const
    {
        return (float *)view.data + sequence * view.batch + first * view.step + channel + copy_lane;
    }
    /* Of the rows that a thread copies, those from its first one on that the sequence has. */
    __device__ int copy_rows(const rl_scan_view &view) const
    {
        return view.data && channel + copy_lane < scan.channels ? count - copy_row : 0;
    }

    /* Asks for a tile; where the sequence has no steps there is `beyond`. */
    __device__ __forceinline__ void ask(int room, const rl_scan_view &view, float beyond) const
    {
        const int left = copy_rows(view);
        const float *from = copied(view);
        unsigned char *to = rooms + room * ROOM + place_of(copy_row) + copy_lane * 4;
        if (left > (STEPS - 1) * AT_ONCE) {
#pragma unroll
            for (int k = 0; k < STEPS; k++, from += AT_ONCE * view.step) copy_async_16(to + k * STRIDE, from, 16);
            return;
        }
#pragma unroll 1
        for (int k = 0; k < STEPS; k++, from += AT_ONCE * view.step, to += STRIDE) {
            if (k * AT_ONCE < left)
                copy_async_16(to, from, 16);
            else
                *(float4 *)to = make_float4(beyond, beyond, beyond, beyond);
        }
    }
    __device__ __forceinline__ void ask_all() const
    {
        ask(DECAYS, scan.a, 1.0f);
        ask(INPUTS, scan.input, 0.0f);
        if (backward && scan.before.data) {
            ask(BEFORE, scan.before, 0.0f);
            if (!is_last && (int)threadIdx.x < 4 && channel + copy_lane < scan.channels)
                copy_async_16(rooms + BEFORE * ROOM + place_of(TILE_STEPS) + copy_lane * 4,
                              copied(scan.before) + TILE_STEPS * scan.before.step, 16);
        }
        close_copies();
    }
    __device__ static void meet() /* whoever copies for each other */
    {
        __syncthreads();
    }
    __device__ __forceinline__ void give(int room, const rl_scan_view &view) const
    {
        const int left = copy_rows(view);
        float *to = copied(view);
        const unsigned char *from = rooms + room * ROOM + place_of(copy_row) + copy_lane * 4;
#pragma unroll
        for (int k = 0; k < STEPS; k++, to += AT_ONCE * view.step, from += STRIDE)
            if (k * AT_ONCE < left) *(float4 *)to = *(const float4 *)from;
    }

    __device__ float4 &unit(int room, int step) const
    {
        return *(float4 *)(rooms + room * ROOM + lane * SUB_CHUNK + step * ROW + step / STEPS * 16 + warp * 16);
    }
    __device__ float4 get(int room, int step) const
    {
        return unit(room, step);
    }
    __device__ void set(int room, int step, float4 value) const
    {
        unit(room, step) = value;
    }
    __device__ float4 before(int step) const
    {
        return unit(BEFORE, step + 1);
    }
    /* A thread's own elements as sum_with_care sees them. */
    __device__ float element(int room, int step, int j) const
    {
        return (&unit(room, step).x)[j];
    }

    /* Which of the thread's steps is the sequence's first one run, and which the last; else outside of them. */
    __device__ int first_step() const
    {
        return tile == 0 && lane == 0 ? 0 : -1;
    }
    __device__ int last_step() const
    {
        return is_last ? count - 1 - lane * STEPS : -1;
    }
    __device__ void drop_at(int step) const
    {
        unit(DECAYS, step) = make_float4(0, 0, 0, 0);
    }
    __device__ void set_before(int step, const float (&start)[CHANNELS]) const
    {
        unit(BEFORE, step + 1) = make_float4(start[0], start[1], start[2], start[3]);
    }
};

} // namespace

#endif
