/* A tile of the scan's ring in shared memory: where its elements lie, and groups of steps in and out of registers. */
#ifndef RL_CUDA_SCAN_RING_TILE_CUH
#define RL_CUDA_SCAN_RING_TILE_CUH

#include "scan_recurrence.cuh"
#include "scan_ring_args.h"

namespace scan_ring
{

constexpr int LINE = RL_SCAN_RING_LINE, GROUP = RL_SCAN_RING_GROUP;

/* A tile's elements, by step in the order of running. */
template <typename T, bool ALONG, int CHANNELS> struct Tile {
    static constexpr int STEPS = rl_scan_ring_steps(sizeof(T), ALONG), BYTES = STEPS * CHANNELS * sizeof(T),
                         CHUNK = 16 / sizeof(T);
    struct alignas(16) Chunk {
        T lane[CHUNK];
    };

    static __device__ int in_time(int k, bool down)
    {
        return down ? STEPS - 1 - k : k;
    }
    static __device__ T *element(char *tile, int channel, int time)
    {
        if (ALONG) return (T *)(tile + channel * LINE + ((time / CHUNK ^ channel % 8) * 16)) + time % CHUNK;
        return (T *)tile + time * CHANNELS + channel;
    }

    template <bool DOWN, typename N>
    static __device__ void read(N (&value)[GROUP], char *tile, int channel, int first)
    {
        if constexpr (ALONG) {
#pragma unroll
            for (int k = 0; k < GROUP; k += CHUNK) {
                const int time = DOWN ? STEPS - CHUNK - first - k : first + k;
                const Chunk chunk = *(const Chunk *)element(tile, channel, time);
#pragma unroll
                for (int i = 0; i < CHUNK; i++) value[k + i] = widen(chunk.lane[DOWN ? CHUNK - 1 - i : i]);
            }
        } else {
#pragma unroll
            for (int k = 0; k < GROUP; k++) value[k] = widen(*element(tile, channel, in_time(first + k, DOWN)));
        }
    }
    template <bool DOWN, typename N>
    static __device__ void write(const N (&value)[GROUP], char *tile, int channel, int first)
    {
        if constexpr (ALONG) {
#pragma unroll
            for (int k = 0; k < GROUP; k += CHUNK) {
                const int time = DOWN ? STEPS - CHUNK - first - k : first + k;
                Chunk chunk;
#pragma unroll
                for (int i = 0; i < CHUNK; i++) chunk.lane[DOWN ? CHUNK - 1 - i : i] = rounded<T>(value[k + i]);
                *(Chunk *)element(tile, channel, time) = chunk;
            }
        } else {
#pragma unroll
            for (int k = 0; k < GROUP; k++) *element(tile, channel, in_time(first + k, DOWN)) = rounded<T>(value[k]);
        }
    }
};

} // namespace scan_ring

#endif
