/*
 * A strip of rows, where channels are neighbours in memory: four channels of a tile, whose block has 16 of them.  A
 * thread has STEPS steps, 16 bytes each.  In shared memory the 16 bytes are turned within each 128, by the sub-chunk,
 * so that the threads of a warp meet different banks.
 *
 * The more tiles a multiprocessor has at a time the better, for most of the time they wait for each other.  So a
 * thread may keep its last HELD steps in registers, where shared memory has no room for one tile more; their results
 * go out through where its first decays were.
 */
#ifndef RL_CUDA_SCAN_STRIP_ROWS_CUH
#define RL_CUDA_SCAN_STRIP_ROWS_CUH

#include <machine/copies.cuh>

#include "scan_strip_place.cuh"

namespace
{

template <bool backward, int steps, int held> struct Rows : Place {
    static constexpr int BLOCKS = (backward ? 4 : held > 0 ? 8 : 6) * 8 / steps; /* of a multiprocessor */
    static constexpr int CHANNELS = 4, STEPS = steps, TILE_STEPS = 32 * STEPS;
    static constexpr int HELD = held, LAID = steps - held, KEPT = held > 0 ? held : 1;
    static constexpr int ROW = 4 * LANES, SUB_CHUNK = LAID * ROW;
    static constexpr int ROOM = 32 * SUB_CHUNK + (backward ? ROW : 0),
                         BYTES = (backward ? 3 : 2) * ROOM; /* a row more */
    static constexpr int AT_ONCE = THREADS / 4;             /* rows, 16 bytes a thread */
    static_assert(AT_ONCE % STEPS == 0, "a thread copies one step of many sub-chunks");
    static_assert(LAID % 2 == 0, "rows are turned in pairs");
    static_assert(!backward || held == 0, "the decays' gradients would have no place");

    unsigned char *const rooms;
    const int copy_row, copy_lane;
    int64_t first; /* the row that the thread copies first, in steps of running */
    float4 held_decays[KEPT], held_inputs[KEPT];

    __device__ Rows(const rl_strip_args &args, unsigned char *rooms)
        : Place(args, TILE_STEPS), rooms(rooms), copy_row((int)threadIdx.x / 4), copy_lane((int)threadIdx.x % 4 * 4),
          first(tile * TILE_STEPS + copy_row - (scan.down ? scan.length - 1 : 0))
    {
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

    /* 16 bytes of a sub-chunk: a step of four channels. */
    __device__ float4 &unit(int room, int chunk, int step, int four) const
    {
        return *(float4 *)(rooms + room * ROOM + chunk * SUB_CHUNK + (step ^ (chunk >> 2 & 1)) * ROW +
                           (four ^ (chunk & 3)) * 16);
    }
    /* Of the k-th row that the thread copies. */
    __device__ float4 &copied_unit(int room, int step, int k) const
    {
        return unit(room, copy_row / STEPS + k * (AT_ONCE / STEPS), step, copy_lane / 4);
    }

    /* Asks for a tile; where the sequence has no steps there is `beyond`. */
    __device__ __forceinline__ void ask(int room, const rl_scan_view &view, float beyond) const
    {
        const int left = copy_rows(view), step = copy_row % STEPS;
        const float *from = copied(view);
        if (step >= LAID) return;
        if (left > (STEPS - 1) * AT_ONCE) {
#pragma unroll
            for (int k = 0; k < STEPS; k++, from += AT_ONCE * view.step)
                copy_async_16(&copied_unit(room, step, k), from, 16);
            return;
        }
#pragma unroll 1
        for (int k = 0; k < STEPS; k++, from += AT_ONCE * view.step) {
            if (k * AT_ONCE < left)
                copy_async_16(&copied_unit(room, step, k), from, 16);
            else
                copied_unit(room, step, k) = make_float4(beyond, beyond, beyond, beyond);
        }
    }
    __device__ __forceinline__ void hold(float4 (&own)[KEPT], const rl_scan_view &view, float beyond) const
    {
        const int row = lane * STEPS + LAID;
        const float *from = copied(view) + (row - copy_row) * view.step + (own_lane - copy_lane);
#pragma unroll
        for (int k = 0; k < HELD; k++, from += view.step)
            own[k] = view.data && has_channels() && row + k < count ? *(const float4 *)from
                                                                    : make_float4(beyond, beyond, beyond, beyond);
    }
    __device__ __forceinline__ void ask_all()
    {
        ask(DECAYS, scan.a, 1.0f);
        ask(INPUTS, scan.input, 0.0f);
        if (backward && scan.before.data) {
            ask(BEFORE, scan.before, 0.0f);
            if (!is_last && (int)threadIdx.x < 4 && channel + copy_lane < scan.channels)
                copy_async_16(&unit(BEFORE, 32, 0, copy_lane / 4),
                              copied(scan.before) + TILE_STEPS * scan.before.step, 16);
        }
        close_copies();
        hold(held_decays, scan.a, 1.0f);
        hold(held_inputs, scan.input, 0.0f);
    }
    __device__ __forceinline__ void give(int room, const rl_scan_view &view) const
    {
        const int left = copy_rows(view), step = copy_row % STEPS;
        const bool was_held = step >= LAID;
        float *to = copied(view);
#pragma unroll
        for (int k = 0; k < STEPS; k++, to += AT_ONCE * view.step)
            if (k * AT_ONCE < left)
                *(float4 *)to = copied_unit(was_held ? DECAYS : room, was_held ? step - LAID : step, k);
    }

    /* Four of the thread's steps, of which `part` is a channel's. */
    __device__ static float &part(float4 (&four)[4], int step, int j)
    {
        return ((float(&)[4])four[step])[j];
    }
    __device__ __forceinline__ void get_four(int room, int first_step, float4 (&four)[4]) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
            four[k] = first_step + k < LAID
                          ? unit(room, lane, first_step + k, warp)
                          : (room == DECAYS ? held_decays : held_inputs)[(first_step + k - LAID) % KEPT];
    }
    __device__ __forceinline__ void set_four(int room, int first_step, const float4 (&four)[4])
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (first_step + k < LAID)
                unit(room, lane, first_step + k, warp) = four[k];
            else
                held_inputs[(first_step + k - LAID) % KEPT] = four[k];
        }
    }
    /* Once all decays have been used. */
    __device__ __forceinline__ void lay_held() const
    {
#pragma unroll
        for (int k = 0; k < HELD; k++) unit(DECAYS, lane, k, warp) = held_inputs[k];
    }
    __device__ float4 before(int step) const
    {
        return step + 1 < STEPS ? unit(BEFORE, lane, step + 1, warp) : unit(BEFORE, lane + 1, 0, warp);
    }
    /* A thread's own elements as sum_with_care sees them. */
    __device__ float element(int room, int step, int j) const
    {
        float4 v = unit(room, lane, step < LAID ? step : 0, warp);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (step == LAID + k) v = (room == DECAYS ? held_decays : held_inputs)[k];
        return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
    }

    /* Which of the thread's steps is the sequence's last one run; else outside of them. */
    __device__ int last_step() const
    {
        return is_last ? count - 1 - lane * STEPS : -1;
    }
    __device__ void drop_at(int step)
    {
        if (step < LAID) unit(DECAYS, lane, step, warp) = make_float4(0, 0, 0, 0);
    }
    __device__ void set_before(int step, const float (&start)[CHANNELS]) const
    {
        float4 &place = step + 1 < STEPS ? unit(BEFORE, lane, step + 1, warp) : unit(BEFORE, lane + 1, 0, warp);
        place = make_float4(start[0], start[1], start[2], start[3]);
    }
};

} // namespace

#endif
