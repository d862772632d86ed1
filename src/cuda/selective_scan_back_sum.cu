/* The last kernel of the selective scan's gradients (selective_scan_back.cuh): sums in one fixed order. */
#include <machine/kernel.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int THREADS_OF_SUMS = RL_S6_BACK_SUM_THREADS;

/* `some` parts of `count` neighbours, which are on their way together; goes on to the next. */
template <int some, int count, typename Acc> __device__ void add_some(const Acc *&from, int64_t step, Four<Acc> &sum)
{
    Four<Acc> part[some];
#pragma unroll
    for (int i = 0; i < some; i++) {
        if (count == 4)
            part[i] = *(const Four<Acc> *)(from + i * step);
        else
            part[i].state[0] = from[i * step];
    }
#pragma unroll
    for (int i = 0; i < some; i++)
#pragma unroll
        for (int k = 0; k < count; k++) sum.state[k] += part[i].state[k];
    from += some * step;
}

/* Numbers first .. first + 3 of dB or dC, over every `shares`th block of their group. */
template <typename Acc, int count, int shares>
__device__ void add_parts(const rl_s6_back_args &args, int64_t first, int share, Four<Acc> &sum)
{
    const int64_t per_group = args.rows * 2 * args.scan.states;
    const int64_t group = args.groups == 1 ? 0 : quotient(first, per_group);
    const int64_t blocks = args.scan.channels == 0 ? 0 : args.scan.blocks_per_group, step = shares * per_group;
    const Acc *from = (const Acc *)args.bc_parts + group * (blocks - 1) * per_group + first + share * per_group;
    int64_t left = blocks > share ? (blocks - share + shares - 1) / shares : 0;
    for (; left >= 8; left -= 8) add_some<8, count>(from, step, sum);
    if (left & 4) add_some<4, count>(from, step, sum);
    if (left & 2) add_some<2, count>(from, step, sum);
    if (left & 1) add_some<1, count>(from, step, sum);
}

template <typename Acc, int count>
__device__ void store_inputs(const rl_s6_back_args &args, int64_t first, const Four<Acc> &sum)
{
    const int64_t states = args.scan.states, group_row = quotient(first, 2 * states),
                  number = first - group_row * 2 * states;
    const int64_t group = args.groups == 1 ? 0 : quotient(group_row, args.rows), row = group_row - group * args.rows;
    const rl_s6_view &view = number < states ? args.dB : args.dC;
    if (!view.data) return;
    const int64_t batch = quotient(row, args.scan.length), time = row - batch * args.scan.length;
    const int64_t step = args.scan.reverse ? -view.step : view.step;
    const int64_t state = number < states ? number : number - states;
    const int64_t to = batch * view.batch + time * step + group * view.group + state * view.lane;
    store_four<RL_S6_BACK_ANY>((char *)view.data + to * bytes_of(view), view, OF_B, count == 4 && view.wide, count,
                               sum.state);
}

/* dB and dC: a thread a share of `count` neighbouring states.  Without channels there is no block: zero. */
template <typename Acc, int count, int shares>
__device__ void sum_inputs(const rl_s6_back_args &args, Four<Acc> (&shared)[THREADS_OF_SUMS])
{
    constexpr int NUMBERS = THREADS_OF_SUMS / shares;
    const int64_t all = args.groups * args.rows * 2 * args.scan.states, stride = args.sum_blocks * NUMBERS * count;
    const int column = threadIdx.x % NUMBERS, share = threadIdx.x / NUMBERS;
    for (int64_t first = (int64_t)blockIdx.x * NUMBERS * count; first < all; first += stride) {
        const int64_t k = first + column * count;
        Four<Acc> sum = {};
        if (k < all) add_parts<Acc, count, shares>(args, k, share, sum);
        if (shares > 1) {
            __syncthreads(); /* the round before has been read */
            shared[threadIdx.x] = sum;
            __syncthreads(); /* all shares are there */
        }
        if (share != 0 || k >= all) continue;
#pragma unroll
        for (int other = 1; other < shares; other++)
#pragma unroll
            for (int i = 0; i < count; i++) sum.state[i] += shared[other * NUMBERS + column].state[i];
        store_inputs<Acc, count>(args, k, sum);
    }
}

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
template <typename Acc, int shares>
__device__ void sum_parameters(const rl_s6_back_args &args, Acc (&shared)[THREADS_OF_SUMS])
{
    constexpr int NUMBERS = THREADS_OF_SUMS / shares;
    const int64_t channels = args.scan.channels, states = args.scan.states, matrix = channels * states;
    const int64_t count = matrix + 2 * channels;
    const int column = threadIdx.x % NUMBERS, share = threadIdx.x / NUMBERS;
    const int64_t block = blockIdx.x - args.sum_blocks, blocks = gridDim.x - args.sum_blocks;
    for (int64_t first = block * NUMBERS; first < count; first += blocks * NUMBERS) {
        const int64_t k = first + column, vector = k < matrix ? -1 : k - matrix >= channels;
        const int64_t channel = k < matrix ? quotient(k, states) : k - matrix - vector * channels;
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

/* The first blocks take dB and dC, the others the parameters' gradients. */
template <typename Acc>
__global__ void __launch_bounds__(THREADS_OF_SUMS) sums_kernel(const __grid_constant__ rl_s6_back_args args)
{
    __shared__ union {
        Four<Acc> inputs[THREADS_OF_SUMS];
        Acc parameters[THREADS_OF_SUMS];
    } shared;
    let_later_start();
    await_earlier();
    if (blockIdx.x >= args.sum_blocks) {
        if (args.shares > 1)
            sum_parameters<Acc, RL_S6_BACK_SHARES>(args, shared.parameters);
        else
            sum_parameters<Acc, 1>(args, shared.parameters);
    } else if (args.scan.states % 4 != 0) {
        sum_inputs<Acc, 1, 1>(args, shared.inputs);
    } else if (args.input_shares > 1) {
        sum_inputs<Acc, 4, RL_S6_BACK_SHARES>(args, shared.inputs);
    } else {
        sum_inputs<Acc, 4, 1>(args, shared.inputs);
    }
}

} // namespace

const void *rl_s6_back_sums_kernel(bool f64)
{
    return f64 ? kernel_address<sums_kernel<double>>() : kernel_address<sums_kernel<float>>();
}
