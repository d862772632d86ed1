/* The launcher of the split scan of few channels of float32. */
#include "scan_strip.h"

#include "counts.h"

enum { CARRIERS = 4, LEAST_SMS = 16 * CARRIERS }; /* so that carriers are few of the blocks that run */
enum { LEAST_ROW = 16, LEAST_RUNS = 4 };          /* channels: else much of a block would have none */
enum { MOST_WAVES = 2 };                          /* of small tiles */

static int64_t chains_of(const rl_scan_args *args)
{
    return args->sequences * rl_quotient_up(args->channels, RL_STRIP_LANES);
}

/* Blocks that tiles of some steps have. */
static int64_t blocks_of(const rl_scan_args *args, rl_split_layout layout, const rl_strip_kernel *kernel)
{
    const int64_t each =
        layout == RL_SPLIT_ROWS ? chains_of(args) : args->sequences * rl_quotient_up(args->channels, 4);
    return each * rl_quotient_up(args->length, kernel->tile_steps);
}

bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args, rl_split_layout layout)
{
    if (args->offsets || args->a.dtype != RILL_F32 || layout == RL_SPLIT_ANY) return false;
    const rl_strip_kernel kernel = rl_scan_strip_kernel(layout, false, false);
    return rl_cuda_state_of(context)->sms >= LEAST_SMS && chains_of(args) <= CARRIERS * RL_STRIP_MOST_SHARE &&
           args->channels >= (layout == RL_SPLIT_ROWS ? LEAST_ROW : LEAST_RUNS) &&
           args->length < INT32_MAX / 2 * (int64_t)kernel.tile_steps / args->sequences / args->channels;
}

cudaError_t rl_cuda_prepare_scan_strips(void)
{
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < 4 * RL_SPLIT_ANY && error == cudaSuccess; k++) {
        const rl_strip_kernel kernel = rl_scan_strip_kernel((rl_split_layout)(k / 4), k & 1, k & 2);
        error = cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kernel.shared);
    }
    return error;
}

/* Larger tiles cost less each; smaller ones leave less of the GPU without work at the end. */
static rl_strip_kernel pick_kernel(const rill_context *context, const rl_scan_args *args, rl_split_layout layout,
                                   bool backward)
{
    const rl_strip_kernel small = rl_scan_strip_kernel(layout, backward, false);
    const int64_t wave = (int64_t)rl_cuda_state_of(context)->sms * small.together;
    return blocks_of(args, layout, &small) > MOST_WAVES * wave ? rl_scan_strip_kernel(layout, backward, true) : small;
}

/* The blocks' common memory, and in args where its parts lie; *units of 16 bytes. */
static rill_status take_common(rill_context *context, rl_strip_args *args, void **common, int64_t *units)
{
    const size_t places = (size_t)args->chains * (size_t)args->tiles * RL_STRIP_LANES;
    rill_status status = rl_workspace_take(context, places * 32, common);
    if (status != RILL_OK) return status;
    args->told = *common;
    args->states = (char *)*common + places * 16;
    args->ends = (char *)*common + places * 24;
    *units = (int64_t)places * 2;
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
    const rl_strip_kernel kernel = pick_kernel(context, scan, layout, backward);
    rl_strip_args args = {.scan = *scan, .chains = (int32_t)chains_of(scan), .carriers = CARRIERS};
    args.tiles = rl_quotient_up(scan->length, kernel.tile_steps);
    void *common;
    int64_t units;
    rill_status status = take_common(context, &args, &common, &units);
    if (status == RILL_OK) status = launch_reset(context, common, units);
    void *arguments[] = {&args};
    return status != RILL_OK
               ? status
               : rl_cuda_launch_early(context, kernel.kernel, CARRIERS + blocks_of(scan, layout, &kernel), 1,
                                      32 * RL_STRIP_WARPS, kernel.shared, arguments, "scan: launch over strips");
}
