/* The launcher of the split scan of few channels of float32. */
#include "scan_strip.h"

#include "counts.h"
#include "scan_split.h"

enum {
    MOST_CHAINS = 4,
    LEAST_SMS = 16 * MOST_CHAINS, /* so that carriers are few of the blocks that run */
    LEAST_CHANNELS = 16,          /* else much of a block would have none */
    MOST_WAVES = 1,               /* of small tiles */
    MOST_WAVES_BACK = 2
};

static int64_t chains_of(const rl_scan_args *args)
{
    return args->sequences * rl_quotient_up(args->channels, RL_STRIP_LANES);
}

/* Smaller tiles are sooner done, of larger ones the GPU has more steps at a time. */
static bool is_large(const rill_context *context, const rl_scan_args *args, bool backward)
{
    const rl_strip_kernel small = rl_scan_strip_kernel(backward, false);
    return rl_quotient_up(args->length, small.tile_steps) * chains_of(args) >
           (int64_t)(backward ? MOST_WAVES_BACK : MOST_WAVES) * small.together * rl_cuda_state_of(context)->sms;
}

/* Large problems with gradients take as long as tiles that blocks draw by tickets. */
bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args, rl_split_layout layout,
                                bool backward)
{
    return layout == RL_SPLIT_ROWS && args->a.dtype == RILL_F32 && !args->offsets &&
           args->channels >= LEAST_CHANNELS && chains_of(args) <= MOST_CHAINS &&
           rl_cuda_state_of(context)->sms >= LEAST_SMS && args->length < INT32_MAX &&
           (!backward || !is_large(context, args, backward));
}

cudaError_t rl_cuda_prepare_scan_strips(const rl_cuda_state *state)
{
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < 3 && error == cudaSuccess; k++) {
        const rl_strip_kernel kernel = rl_scan_strip_kernel(k & 1, k & 2);
        error = rl_cuda_allow(state, kernel.kernel, kernel.shared);
    }
    return error;
}

/* The blocks' common memory, and in args where its parts lie; *units of 16 bytes. */
static rill_status take_common(rill_context *context, rl_strip_args *args, void **common, int64_t *units)
{
    const size_t lanes = (size_t)args->chains * RL_STRIP_LANES;
    const size_t told = lanes * (size_t)args->tiles * 16;
    const size_t states = lanes * (size_t)args->groups * 8, ends = lanes * (size_t)args->tiles * 8;
    rill_status status = rl_workspace_take(context, told + states + ends, common);
    if (status != RILL_OK) return status;
    args->told = *common;
    args->states = (char *)args->told + told;
    args->ends = (char *)args->states + states;
    *units = (int64_t)(told + states + ends) / 16;
    return RILL_OK;
}

rill_status rl_cuda_scan_strips(rill_context *context, const rl_scan_args *scan, bool backward)
{
    const rl_strip_kernel kernel = rl_scan_strip_kernel(backward, is_large(context, scan, backward));
    rl_strip_args args = {.scan = *scan, .chains = (int32_t)chains_of(scan)};
    args.tiles = rl_quotient_up(scan->length, kernel.tile_steps);
    args.groups = rl_quotient_up(args.tiles, RL_STRIP_TILES);
    void *common;
    int64_t units;
    rill_status status = take_common(context, &args, &common, &units);
    if (status == RILL_OK) status = rl_cuda_reset_common(context, common, units);
    void *arguments[] = {&args};
    return status != RILL_OK
               ? status
               : rl_cuda_launch_early(context, kernel.kernel, args.chains * (1 + args.tiles), 1, 32 * RL_STRIP_WARPS,
                                      kernel.shared, arguments, "scan: launch over strips");
}
