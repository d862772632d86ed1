/* A tile of the scan's ring in shared memory: where its elements lie, and groups of steps in and out of registers. */
#ifndef RL_CUDA_SCAN_RING_TILE_CUH
#define RL_CUDA_SCAN_RING_TILE_CUH

#include "scan_recurrence.cuh"
#include "scan_ring_args.h"

namespace scan_ring
{

constexpr int LINE = RL_SCAN_RING_LINE, GROUP = RL_SCAN_RING_GROUP;

/* 16 bytes of a channel as they lie; 16-bit ones stay packed in words until they are used. */
template <typename T, int size = sizeof(T)> struct Chunk {
    alignas(16) T lane[16 / size];

    __device__ T get(int k) const
    {
        return lane[k];
    }
};
template <typename T> struct Chunk<T, 2> {
    alignas(16) uint32_t word[4];

    __device__ T get(int k) const
    {
        return T{(uint16_t)(word[k / 2] >> (k % 2 * 16))};
    }
};

/* Steps of a channel as they lie: where time is contiguous (ALONG) chunks of it, else each for itself. */
template <typename T, bool ALONG> struct Steps {
    T lane[GROUP];

    template <bool DOWN> __device__ T get(int k) const
    {
        return lane[k];
    }
};
template <typename T> struct Steps<T, true> {
    static constexpr int CHUNK = 16 / sizeof(T);
    Chunk<T> chunk[GROUP / CHUNK];

    template <bool DOWN> __device__ T get(int k) const
    {
        return chunk[k / CHUNK].get(DOWN ? CHUNK - 1 - k % CHUNK : k % CHUNK);
    }
};

/*
 * A tile's elements, by step in the order of running.  Where channels are contiguous in memory a step is a row of
 * them.  Where time is, a tile is LINES boxes side by side in time, which the copy engine moves one by one: a line of
 * a channel is a row of a box, its chunks swizzled by the channel.
 */
template <typename T, bool ALONG, int CHANNELS, int LINES> struct Tile {
    static constexpr int STEPS = LINES * rl_scan_ring_steps(sizeof(T), ALONG), BYTES = STEPS * CHANNELS * sizeof(T),
                         CHUNK = 16 / sizeof(T), LINE_STEPS = STEPS / LINES, LINE_BYTES = BYTES / LINES;
    typedef scan_ring::Steps<T, ALONG> Steps;

    static __device__ int in_time(int k, bool down)
    {
        return down ? STEPS - 1 - k : k;
    }
    static __device__ T *element(char *tile, unsigned channel, unsigned time)
    {
        if (!ALONG) return (T *)tile + time * CHANNELS + channel;
        const unsigned row = channel * LINE + channel % 8 * 16, chunk = time % LINE_STEPS / CHUNK;
        return (T *)(tile + time / LINE_STEPS * LINE_BYTES + (row ^ chunk * 16)) + time % CHUNK;
    }

    template <bool DOWN> static __device__ void load(Steps &steps, char *tile, int channel, int first)
    {
        if constexpr (ALONG) {
#pragma unroll
            for (int k = 0; k < GROUP; k += CHUNK) {
                const int time = DOWN ? STEPS - CHUNK - first - k : first + k;
                steps.chunk[k / CHUNK] = *(const Chunk<T> *)element(tile, channel, time);
            }
        } else {
#pragma unroll
            for (int k = 0; k < GROUP; k++) steps.lane[k] = *element(tile, channel, in_time(first + k, DOWN));
        }
    }
    template <bool DOWN, typename N>
    static __device__ void write(const N (&value)[GROUP], char *tile, int channel, int first)
    {
        if constexpr (ALONG) {
#pragma unroll
            for (int k = 0; k < GROUP; k += CHUNK) {
                const int time = DOWN ? STEPS - CHUNK - first - k : first + k;
                struct alignas(16) {
                    T lane[CHUNK];
                } chunk;
#pragma unroll
                for (int i = 0; i < CHUNK; i++) chunk.lane[DOWN ? CHUNK - 1 - i : i] = rounded<T>(value[k + i]);
                *(decltype(chunk) *)element(tile, channel, time) = chunk;
            }
        } else {
#pragma unroll
            for (int k = 0; k < GROUP; k++) *element(tile, channel, in_time(first + k, DOWN)) = rounded<T>(value[k]);
        }
    }
};

} // namespace scan_ring

#endif
