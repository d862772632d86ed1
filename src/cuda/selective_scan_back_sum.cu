/* The last kernels of the selective scan's gradients (selective_scan_back.cuh): sums in one fixed order. */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

/* dB and dC: a thread a number, over the blocks of its group.  Without channels there is no block: zero. */
template <typename Acc> __global__ void sum_kernel(const __grid_constant__ rl_s6_back_args args)
{
    const int64_t states = args.scan.states, row_size = 2 * states, per_group = args.rows * row_size;
    const int64_t count = args.groups * per_group, stride = (int64_t)gridDim.x * blockDim.x;
    const int64_t blocks = args.scan.channels == 0 ? 0 : args.scan.blocks_per_group;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += stride) {
        const int64_t group = k / per_group, rest = k - group * per_group, row = rest / row_size;
        const int64_t number = rest - row * row_size, state = number % states;
        const rl_s6_view &view = number < states ? args.dB : args.dC;
        if (!view.data) continue;
        const Acc *from = (const Acc *)args.bc_parts + group * blocks * per_group + rest;
        Acc sum = 0;
#pragma unroll 8
        for (int64_t block = 0; block < blocks; block++) sum += from[block * per_group];
        const int64_t batch = row / args.scan.length, time = row - batch * args.scan.length;
        const int64_t step = args.scan.reverse ? -view.step : view.step;
        store_any(view.data, view.dtype, batch * view.batch + time * step + group * view.group + state * view.lane,
                  sum);
    }
}

constexpr int NUMBERS = 32, SHARES = 8;

/* Parts first, first + SHARES, ... of one number. */
template <typename Acc> __device__ Acc sum_parts(const Acc *from, int64_t pieces, int64_t step, int share)
{
    Acc sum = 0;
#pragma unroll 8
    for (int64_t piece = share; piece < pieces; piece += SHARES) sum += from[piece * step];
    return sum;
}

/*
 * The parameters' gradients: 32 numbers a block, each in eight shares.  Numbers are those of dA, of dD, of
 * ddelta_bias, one after the other.  Of A none flows where it lies beyond the finite range.
 */
template <typename Acc> __global__ void parameters_kernel(const __grid_constant__ rl_s6_back_args args)
{
    __shared__ Acc shared[SHARES][NUMBERS];
    const int64_t channels = args.scan.channels, states = args.scan.states, matrix = channels * states;
    const int64_t count = matrix + 2 * channels;
    const int column = threadIdx.x % NUMBERS, share = threadIdx.x / NUMBERS;
    for (int64_t first = (int64_t)blockIdx.x * NUMBERS; first < count; first += (int64_t)gridDim.x * NUMBERS) {
        const int64_t k = first + column, vector = k < matrix ? -1 : (k - matrix) / channels;
        const int64_t channel = k < matrix ? k / states : k - matrix - vector * channels;
        const int64_t state = k < matrix ? k - channel * states : 0;
        const rl_s6_target &target = k < matrix ? args.dA : vector == 0 ? args.dD : args.dbias;
        Acc sum = 0;
        if (k < count && target.data && k < matrix)
            sum = sum_parts((const Acc *)args.A_parts + k, args.pieces, matrix, share);
        else if (k < count && target.data)
            sum = sum_parts((const Acc *)(vector == 0 ? args.D_parts : args.bias_parts) + channel, args.pieces,
                            channels, share);
        __syncthreads(); /* the round before has been read */
        shared[share][column] = sum;
        __syncthreads(); /* all shares are there */
        if (share != 0 || k >= count || !target.data) continue;
        for (int other = 1; other < SHARES; other++) sum += shared[other][column];
        if (k < matrix &&
            fabs(((const Acc *)args.scan.A)[channel * args.scan.A_channel + state * args.scan.A_state]) >
                Limits<Acc>::top)
            sum = 0;
        store_any(target.data, target.dtype, channel * target.channel + state * target.state, sum);
    }
}

} // namespace

const void *rl_s6_back_sum_kernel(bool f64)
{
    return f64 ? kernel_address<sum_kernel<double>>() : kernel_address<sum_kernel<float>>();
}

const void *rl_s6_back_parameters_kernel(bool f64)
{
    return f64 ? kernel_address<parameters_kernel<double>>() : kernel_address<parameters_kernel<float>>();
}
