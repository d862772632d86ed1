/*
 * A strip of runs, where a channel's steps are neighbours in memory: one channel of a tile, which its warp alone
 * copies and walks.  A thread has UNITS times 16 bytes of steps.  Tiles begin at multiples of their size in memory,
 * so where steps are run down the first one may be short, and whatever is not there leaves the state alone.  In
 * shared memory a sub-chunk is followed by 16 bytes more, so that the threads of a warp meet different banks.
 */
#ifndef RL_CUDA_SCAN_STRIP_RUNS_CUH
#define RL_CUDA_SCAN_STRIP_RUNS_CUH

#include <machine/copies.cuh>

#include "scan_strip_place.cuh"

namespace
{

template <bool backward, int units, bool down> struct Runs : Place {
    static constexpr int BLOCKS = (backward ? 4 : 6) * 8 / units; /* of a multiprocessor */
    static constexpr int CHANNELS = 1, UNITS = units, STEPS = 4 * UNITS, TILE_STEPS = 32 * STEPS;
    static constexpr int SUB_CHUNK = STEPS * 4 + 16;
    static constexpr int ROOM = 32 * SUB_CHUNK + 32; /* and an element before and after */
    static constexpr int ROOMS = backward ? 3 : 2, BYTES = RL_STRIP_WARPS * ROOMS * ROOM;

    unsigned char *const rooms; /* the warp's */
    int64_t low;                /* the tile's lowest step in memory */

    __device__ Runs(const rl_strip_args &args, unsigned char *block_rooms)
        : Place(args), rooms(block_rooms + (int)threadIdx.x / 32 * ROOMS * ROOM)
    {
        const unsigned fours = (unsigned)(scan.channels + 3) / 4, all = (unsigned)scan.sequences * fours;
        const unsigned place = blockIdx.x - (unsigned)args.carriers, which = place % all, four = which % fours;
        tile = place / all;
        sequence = quotient(which, fours);
        channel = four * 4 + (unsigned)warp;
        chain = sequence * (args.chains / scan.sequences) + channel / LANES;
        own_lane = (int)(channel % LANES);
        is_last = tile == args.tiles - 1;
        low = (down ? args.tiles - 1 - tile : tile) * TILE_STEPS;
        count = (int)min((int64_t)TILE_STEPS, scan.length - low);
    }
    __device__ bool has_channels() const
    {
        return channel < scan.channels;
    }
    __device__ static int place_of(int index) /* of an element of the tile, in memory's order */
    {
        return 16 + index * 4 + (index >= 0 ? index / STEPS * 16 : 0);
    }
    __device__ float &element_at(int room, int index) const
    {
        return *(float *)(rooms + room * ROOM + place_of(index));
    }
    __device__ float *at(const rl_scan_view &view) const
    {
        return (float *)view.data + sequence * view.batch + channel * view.channel + low;
    }

    /* Asks for a tile; where the sequence has no steps there is `beyond`. */
    __device__ __forceinline__ void ask(int room, const rl_scan_view &view, float beyond) const
    {
        const int left = view.data ? count : 0;
        const float *from = at(view);
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int first = (lane + k * 32) * 4;
            if (first + 4 <= left)
                copy_async_16(&element_at(room, first), from + first, 16);
            else
                for (int j = first; j < first + 4; j++) element_at(room, j) = j < left ? from[j] : beyond;
        }
    }
    __device__ __forceinline__ void ask_all() const
    {
        if (!has_channels()) return;
        ask(DECAYS, scan.a, 1.0f);
        ask(INPUTS, scan.input, 0.0f);
        if (backward && scan.before.data) {
            const int next = down ? -1 : TILE_STEPS;
            ask(BEFORE, scan.before, 0.0f);
            if (!is_last && lane == 0) copy_async(&element_at(BEFORE, next), at(scan.before) + next, true);
        }
        close_copies();
    }
    __device__ static void meet() /* whoever copies for each other */
    {
        __syncwarp();
    }
    __device__ __forceinline__ void give(int room, const rl_scan_view &view) const
    {
        if (!has_channels()) return;
        float *to = at(view);
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int first = (lane + k * 32) * 4;
            if (first + 4 <= count)
                *(float4 *)(to + first) = *(const float4 *)&element_at(room, first);
            else
                for (int j = first; j < count; j++) to[j] = element_at(room, j);
        }
    }

    /* A thread's own steps, in the order of running. */
    __device__ int index_of(int step) const
    {
        return down ? (32 - lane) * STEPS - 1 - step : lane * STEPS + step;
    }
    __device__ float4 &unit(int room, int k) const
    {
        return *(float4 *)&element_at(room, down ? (32 - lane) * STEPS - 4 - 4 * k : lane * STEPS + 4 * k);
    }
    __device__ static float4 turned(float4 v)
    {
        return down ? make_float4(v.w, v.z, v.y, v.x) : v;
    }
    __device__ float4 get(int room, int k) const
    {
        return turned(unit(room, k));
    }
    __device__ void set(int room, int k, float4 value) const
    {
        unit(room, k) = turned(value);
    }
    __device__ float4 before(int k) const
    {
        const float4 own = get(BEFORE, k);
        return make_float4(own.y, own.z, own.w, element_at(BEFORE, index_of(4 * k + 4)));
    }
    /* As sum_with_care sees them. */
    __device__ float element(int room, int step, int) const
    {
        return element_at(room, index_of(step));
    }

    /* Which of the thread's steps is the sequence's first one run, and which the last; else outside of them. */
    __device__ int first_step() const
    {
        if (tile > 0) return -1;
        return down ? (32 - lane) * STEPS - count : lane == 0 ? 0 : -1;
    }
    __device__ int last_step() const
    {
        if (!is_last) return -1;
        return down ? (lane == 31 ? STEPS - 1 : -1) : count - 1 - lane * STEPS;
    }
    __device__ void drop_at(int step) const
    {
        element_at(DECAYS, index_of(step)) = 0;
    }
    __device__ void set_before(int step, const float (&start)[CHANNELS]) const
    {
        element_at(BEFORE, index_of(step + 1)) = start[0];
    }
};

} // namespace

#endif
