/* Where a sequence lies in tensors by time: a row of the batch, or some steps of packed ones. */
#ifndef RL_CUDA_SEQUENCE_CUH
#define RL_CUDA_SEQUENCE_CUH

#include <stdint.h>

struct Sequence {
    int64_t row, begin, count; /* of the batch; its first step in time; steps */

    /* offsets, NULL where sequences are rows, are on the device and not checked: clamp. */
    __device__ Sequence(const int64_t *offsets, int64_t stride, int64_t length, int64_t sequence)
        : row(sequence), begin(0), count(length)
    {
        if (!offsets) return;
        const int64_t *from = offsets + sequence * stride;
        row = 0;
        begin = clamped(from[0], length);
        count = clamped(from[stride], length) - begin;
        if (count < 0) count = 0;
    }
    __device__ static int64_t clamped(int64_t value, int64_t most)
    {
        return value < 0 ? 0 : value > most ? most : value;
    }
    /* Of the first step that is run, in steps of running: down from the last one, or up from the first. */
    __device__ int64_t first(bool down) const
    {
        return down ? -(begin + count - 1) : begin;
    }
};

#endif
