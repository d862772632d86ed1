/* The sums of short sequences, which selective_scan_back_short.cu includes in its namespace. */

/*
 * Over the blocks of a group: number k of [groups, rows, 2, states].  Of all there are fewer than 2^31.  Where a
 * number lies is found before the wait for the parts.
 */
template <typename Acc> __device__ void sum_input(const rl_s6_back_args &args, int k)
{
    const int states = (int)args.scan.states, per_group = (int)args.rows * 2 * states;
    const int blocks = (int)args.scan.blocks_per_group, group = k / per_group, in_group = k - group * per_group;
    const int row = in_group / (2 * states), number = in_group - row * 2 * states, kind = number >= states;
    const rl_s6_view &view = kind ? args.dC : args.dB;
    if (!view.data) return;
    const Acc *from = (const Acc *)args.bc_parts + group * blocks * per_group + in_group;
    Acc sum = 0;
    await_earlier();
#pragma unroll 32
    for (int block = 0; block < blocks; block++) sum += from[block * per_group];
    const int length = (int)args.scan.length, batch = row / length, time = row - batch * length;
    const int64_t step = args.scan.reverse ? -view.step : view.step;
    store_any(view.data, view.dtype,
              batch * view.batch + time * step + group * view.group + (number - kind * states) * view.lane, sum);
}

/* Over sequences: number k of those of dA, of dD, of ddelta_bias.  Of A none flows beyond the finite range. */
template <typename Acc> __device__ void sum_parameter(const rl_s6_back_args &args, int k)
{
    const int channels = (int)args.scan.channels, states = (int)args.scan.states, matrix = channels * states;
    const bool is_A = k < matrix, is_D = !is_A && k < matrix + channels;
    const int size = is_A ? matrix : channels, at = is_A ? k : is_D ? k - matrix : k - matrix - channels;
    const int channel = is_A ? k / states : at, state = is_A ? k - channel * states : 0;
    const rl_s6_target &target = is_A ? args.dA : is_D ? args.dD : args.dbias;
    const void *const parts = is_A ? args.A_parts : is_D ? args.D_parts : args.bias_parts;
    if (!target.data) return;
    Acc sum = 0;
    await_earlier();
#pragma unroll 4
    for (int sequence = 0; sequence < (int)args.scan.sequences; sequence++)
        sum += ((const Acc *)parts)[sequence * size + at];
    if (is_A && fabs(((const Acc *)args.scan.A)[channel * args.scan.A_channel + state * args.scan.A_state]) >
                    Limits<Acc>::top)
        sum = 0;
    store_any(target.data, target.dtype, channel * target.channel + state * target.state, sum);
}

template <typename Acc> __global__ void short_sums_kernel(const __grid_constant__ rl_s6_back_args args)
{
    const int inputs = args.bc_parts ? (int)(args.groups * args.rows * 2 * args.scan.states) : 0;
    const int count = inputs + (int)(args.scan.channels * (args.scan.states + 2));
    let_later_start();
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        k < inputs ? sum_input<Acc>(args, k) : sum_parameter<Acc>(args, k - inputs);
    await_earlier(); /* those that had nothing to sum */
}
