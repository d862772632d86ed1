/*
 * What follows a chunk whose summary left out what had not faded (RL_S6_UNFADED): a warp a channel, a lane a state,
 * in the loop's own order, from the chunk's true last states on, until a chunk begins as it had been supposed to.
 * Slow, but right, and next to never needed: it takes states that fall by dozens of binary digits within a chunk.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "s6.cuh"
#include "s6_kernels.h"

namespace
{

constexpr int THREADS = 128;

__device__ float load_from(const rl_s6_view &view, int64_t at)
{
    return load_any<float>(view.data, view.dtype, at);
}

/* One state of a channel by each lane. */
struct Redo {
    const rl_s6_args &args;
    int64_t sequence, channel, state;
    bool exists;
    float a, bias, skip;

    __device__ Redo(const rl_s6_args &args, int64_t sequence, int64_t channel, int lane)
        : args(args), sequence(sequence), channel(channel), state(lane < args.states ? lane : 0),
          exists(lane < args.states), bias(0), skip(0)
    {
        a = finite_range(((const float *)args.A)[channel * args.A_channel + state * args.A_state]);
        if (args.bias.data) bias = ((const float *)args.bias.data)[channel * args.bias.stride];
        if (args.D.data) skip = ((const float *)args.D.data)[channel * args.D.stride];
    }

    /* Where a view's first step of a piece lies, for the channel or its group's states. */
    __device__ int64_t start_of(const rl_s6_view &view, const Piece &piece) const
    {
        return first_row(args, view, piece) + channel * view.lane;
    }
    __device__ int64_t states_of(const rl_s6_view &view, const Piece &piece) const
    {
        return first_row(args, view, piece) + channel / args.group_channels * view.group + state * view.lane;
    }

    __device__ void write(float sum, float value, int64_t z_at, int64_t y_at) const
    {
        for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
        if (args.D.data) sum = fma(skip, value, sum);
        if (args.z.data) sum *= gate(load_from(args.z, z_at));
        if (threadIdx.x % 32 == 0) store_any(args.y.data, args.y.dtype, y_at, sum);
    }

    __device__ float run_chunk(const Piece &piece, float h) const
    {
        const StepSize<float> step_size(args);
        const int64_t x = start_of(args.x, piece), delta = start_of(args.delta, piece), y = start_of(args.y, piece);
        const int64_t z = start_of(args.z, piece), B = states_of(args.B, piece), C = states_of(args.C, piece);
        for (int64_t k = 0; k < piece.count; k++) {
            float step[] = {load_from(args.delta, delta + k * args.delta.step) + bias};
            const float value = load_from(args.x, x + k * args.x.step);
            const float b = load_from(args.B, B + k * args.B.step), c = load_from(args.C, C + k * args.C.step);
            step_size(step);
            h = advance(exponential(step[0] * a), h, step[0] * value * b);
            write(exists ? c * h : 0, value, z + k * args.z.step, y + k * args.y.step);
        }
        return h;
    }

    /* Of [sequences, chunks, channels, states]. */
    __device__ int64_t place_of(int64_t chunk) const
    {
        return ((sequence * args.chunks + chunk) * args.channels + channel) * args.states + state;
    }

    /* Runs the chunks behind `chunk`; returns the last one that had to be. */
    __device__ int64_t run_on(int64_t chunk) const
    {
        float h = ((const float *)args.local)[place_of(chunk)];
        for (;;) {
            const Piece piece = locate_piece(args, sequence, ++chunk);
            h = run_chunk(piece, h);
            if (piece.ends && args.h_final.data && exists)
                store_any(args.h_final.data, args.h_final.dtype,
                          sequence * args.h_final.sequence + channel * args.h_final.channel +
                              state * args.h_final.state,
                          h);
            if (piece.ends || chunk + 1 == args.chunks) return args.chunks;
            if (__all_sync(~0u, h == ((const float *)args.carry)[place_of(chunk + 1)])) return chunk;
        }
    }
};

__global__ void __launch_bounds__(THREADS) redo_kernel(const __grid_constant__ rl_s6_args args)
{
    let_later_start();
    await_earlier();
    const int64_t count = args.sequences * args.channels, stride = (int64_t)gridDim.x * (THREADS / 32);
    for (int64_t k = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; k < count; k += stride) {
        const int64_t sequence = k / args.channels, channel = k - sequence * args.channels;
        const Redo redo(args, sequence, channel, threadIdx.x % 32);
        for (int64_t chunk = 0; chunk + 1 < args.chunks; chunk++)
            if (args.wild[(sequence * args.chunks + chunk) * args.channels + channel] == RL_S6_UNFADED)
                chunk = redo.run_on(chunk);
    }
}

} // namespace

const void *rl_s6_redo_kernel(void)
{
    return kernel_address<redo_kernel>();
}
