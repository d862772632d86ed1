/* The launcher of the split scan of few channels of float32. */
#include "scan_strip.h"

#include "counts.h"

static const int SMS_OF_A_CARRIER = 40; /* so however many kernels run at a time, carriers alone never fill the GPU */
static const int64_t LEAST_ROW = 16, LEAST_RUNS = 4; /* channels: else much of a block would have none */

static int64_t chains_of(const rl_scan_args *args)
{
    return args->sequences * rl_quotient_up(args->channels, RL_STRIP_LANES);
}

static int64_t tiles_of(const rl_scan_args *args, const rl_strip_kernel *kernel)
{
    return rl_quotient_up(args->length, kernel->tile_steps);
}

/* Blocks of all chains' tiles of some steps. */
static int64_t blocks_of_a_tile(const rl_scan_args *args, rl_split_layout layout)
{
    return layout == RL_SPLIT_ROWS ? chains_of(args) : args->sequences * rl_quotient_up(args->channels, 4);
}

bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args, rl_split_layout layout)
{
    const int64_t most = rl_cuda_state_of(context)->sms / SMS_OF_A_CARRIER * RL_STRIP_CHAINS;
    if (args->offsets || args->a.dtype != RILL_F32 || layout == RL_SPLIT_ANY || chains_of(args) > most) return false;
    const rl_strip_kernel kernel = rl_scan_strip_kernel(layout, false);
    return args->channels >= (layout == RL_SPLIT_ROWS ? LEAST_ROW : LEAST_RUNS) &&
           tiles_of(args, &kernel) < INT32_MAX / 2 / blocks_of_a_tile(args, layout);
}

cudaError_t rl_cuda_prepare_scan_strips(void)
{
    cudaError_t error = cudaSuccess;
    for (int layout = 0; layout < RL_SPLIT_ANY; layout++) {
        for (int backward = 0; backward < 2 && error == cudaSuccess; backward++) {
            const rl_strip_kernel kernel = rl_scan_strip_kernel((rl_split_layout)layout, backward);
            error =
                cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kernel.shared);
        }
    }
    return error;
}

/* The blocks' common memory, and in args where its parts lie; *units of 16 bytes. */
static rill_status take_common(rill_context *context, rl_strip_args *args, void **common, int64_t *units)
{
    const size_t lanes = (size_t)args->chains * RL_STRIP_LANES;
    const size_t told = lanes * (size_t)args->tiles * 16, joined = lanes * (size_t)(args->groups - 1) * 16;
    const size_t states = lanes * (size_t)args->groups * 8, ends = lanes * (size_t)args->tiles * 8;
    rill_status status = rl_workspace_take(context, told + joined + states + ends, common);
    if (status != RILL_OK) return status;
    args->told = *common;
    args->joined = (char *)args->told + told;
    args->states = (char *)args->joined + joined;
    args->ends = (char *)args->states + states;
    *units = (int64_t)(told + joined + states + ends) / 16;
    return RILL_OK;
}

static rill_status launch_reset(rill_context *context, void *common, int64_t units)
{
    const int threads = 256;
    int64_t blocks = rl_quotient_up(units, threads), most = rl_cuda_state_of(context)->sms;
    void *arguments[] = {&common, &units};
    return rl_cuda_launch(context, rl_scan_split_reset(), blocks < most ? blocks : most, 1, threads, 0, arguments,
                          "scan: launch of a reset");
}

rill_status rl_cuda_scan_strips(rill_context *context, const rl_scan_args *scan, rl_split_layout layout,
                                bool backward)
{
    const rl_strip_kernel kernel = rl_scan_strip_kernel(layout, backward);
    rl_strip_args args = {.scan = *scan, .chains = (int32_t)chains_of(scan), .group_tiles = kernel.group_tiles};
    args.carriers = rl_cuda_state_of(context)->sms / SMS_OF_A_CARRIER;
    if (args.carriers > args.chains) args.carriers = args.chains;
    args.tiles = tiles_of(scan, &kernel);
    args.groups = rl_quotient_up(args.tiles, kernel.group_tiles);
    void *common;
    int64_t units, blocks = args.carriers + args.tiles * blocks_of_a_tile(scan, layout);
    rill_status status = take_common(context, &args, &common, &units);
    if (status == RILL_OK) status = launch_reset(context, common, units);
    void *arguments[] = {&args};
    return status != RILL_OK ? status
                             : rl_cuda_launch_early(context, kernel.kernel, blocks, 1, 32 * RL_STRIP_WARPS,
                                                    kernel.shared, arguments, "scan: launch over strips");
}
