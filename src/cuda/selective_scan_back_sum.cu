/* The last kernels of the selective scan's gradients (selective_scan_back.cuh): sums in one fixed order. */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

/* Numbers first .. first + 3 of dB or dC, over the blocks of their group. */
template <typename Acc, int count>
__device__ void add_shares(const rl_s6_back_args &args, int64_t first, Acc (&sum)[4])
{
    const int64_t per_group = args.rows * 2 * args.scan.states, group = first / per_group;
    const int64_t blocks = args.scan.channels == 0 ? 0 : args.scan.blocks_per_group;
    const Acc *from = (const Acc *)args.bc_parts + group * (blocks - 1) * per_group + first;
#pragma unroll 16
    for (int64_t block = 0; block < blocks; block++, from += per_group) {
        if (count == 4) {
            const Four<Acc> share = *(const Four<Acc> *)from;
#pragma unroll
            for (int k = 0; k < count; k++) sum[k] += share.state[k];
        } else {
            sum[0] += *from;
        }
    }
}

/* dB and dC: a thread `count` neighbouring states.  Without channels there is no block: zero. */
template <typename Acc, int count> __device__ void sum_inputs(const rl_s6_back_args &args)
{
    const int64_t states = args.scan.states, row_size = 2 * states, all = args.groups * args.rows * row_size;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x * count;
    for (int64_t k = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * count; k < all; k += stride) {
        const int64_t group_row = k / row_size, number = k - group_row * row_size;
        const int64_t group = group_row / args.rows, row = group_row - group * args.rows;
        const rl_s6_view &view = number < states ? args.dB : args.dC;
        if (!view.data) continue;
        Acc sum[4] = {};
        add_shares<Acc, count>(args, k, sum);
        const int64_t batch = row / args.scan.length, time = row - batch * args.scan.length;
        const int64_t step = args.scan.reverse ? -view.step : view.step;
        const int64_t state = number < states ? number : number - states;
        const int64_t to = batch * view.batch + time * step + group * view.group + state * view.lane;
        store_four<RL_S6_BACK_ANY>((char *)view.data + to * bytes_of(view), view, OF_B, count == 4 && view.wide,
                                   count, sum);
    }
}
template <typename Acc> __global__ void sum_kernel(const __grid_constant__ rl_s6_back_args args)
{
    let_later_start();
    await_earlier();
    if (args.scan.states % 4 == 0)
        sum_inputs<Acc, 4>(args);
    else
        sum_inputs<Acc, 1>(args);
}

constexpr int THREADS_OF_SUMS = RL_S6_BACK_SUM_THREADS;

/* Parts first, first + shares, ... of one number. */
template <typename Acc, int shares> __device__ Acc sum_parts(const Acc *from, int64_t pieces, int64_t step, int share)
{
    Acc sum = 0;
#pragma unroll 8
    for (int64_t piece = share; piece < pieces; piece += shares) sum += from[piece * step];
    return sum;
}

/*
 * The parameters' gradients, each in `shares` shares.  Numbers are those of dA, of dD, of ddelta_bias, one after the
 * other.  Of A none flows where it lies beyond the finite range.
 */
template <typename Acc, int shares> __device__ void sum_parameters(const rl_s6_back_args &args, Acc *shared)
{
    constexpr int NUMBERS = THREADS_OF_SUMS / shares;
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
            sum = sum_parts<Acc, shares>((const Acc *)args.A_parts + place_of_state(args.scan, 0, channel, state),
                                         args.pieces, place_of_state(args.scan, 1, 0, 0), share);
        else if (k < count && target.data)
            sum = sum_parts<Acc, shares>((const Acc *)(vector == 0 ? args.D_parts : args.bias_parts) + channel,
                                         args.pieces, channels, share);
        if (shares > 1) {
            __syncthreads(); /* the round before has been read */
            shared[share * NUMBERS + column] = sum;
            __syncthreads(); /* all shares are there */
        }
        if (share != 0 || k >= count || !target.data) continue;
        for (int other = 1; other < shares; other++) sum += shared[other * NUMBERS + column];
        if (k < matrix &&
            fabs(((const Acc *)args.scan.A)[channel * args.scan.A_channel + state * args.scan.A_state]) >
                Limits<Acc>::top)
            sum = 0;
        store_any(target.data, target.dtype, channel * target.channel + state * target.state, sum);
    }
}

template <typename Acc> __global__ void parameters_kernel(const __grid_constant__ rl_s6_back_args args)
{
    __shared__ Acc shared[THREADS_OF_SUMS];
    let_later_start();
    await_earlier();
    if (args.shares > 1)
        sum_parameters<Acc, RL_S6_BACK_SHARES>(args, shared);
    else
        sum_parameters<Acc, 1>(args, shared);
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
