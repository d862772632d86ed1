/* The launcher of the split scan of few channels of float32. */
#include "scan_strip.h"

#include "counts.h"
#include "scan_split_args.h"

static const int TILE_STEPS = 32 * RL_STRIP_STEPS;
static const int SMS_OF_A_CARRIER = 40; /* so however many kernels run at a time, carriers alone never fill the GPU */

static bool lies_in_rows(const rl_scan_view *view)
{
    return !view->data || (view->dtype == RILL_F32 && view->channel == 1 && (uintptr_t)view->data % 16 == 0 &&
                           view->batch % 4 == 0 && view->step % 4 == 0);
}

static int64_t chains_of(const rl_scan_args *args)
{
    return args->sequences * rl_quotient_up(args->channels, RL_STRIP_LANES);
}

bool rl_cuda_scan_strips_wanted(const rill_context *context, const rl_scan_args *args)
{
    const int64_t chains = chains_of(args),
                  most = rl_cuda_state_of(context)->sms / SMS_OF_A_CARRIER * RL_STRIP_CHAINS;
    return !args->offsets && args->channels % 4 == 0 && args->channels >= RL_STRIP_LANES && chains <= most &&
           chains * rl_quotient_up(args->length, TILE_STEPS) < INT32_MAX / 2 && lies_in_rows(&args->a) &&
           lies_in_rows(&args->input) && lies_in_rows(&args->output) && lies_in_rows(&args->before) &&
           lies_in_rows(&args->decay);
}

cudaError_t rl_cuda_prepare_scan_strips(void)
{
    cudaError_t error = cudaSuccess;
    for (int backward = 0; backward < 2 && error == cudaSuccess; backward++)
        error = cudaFuncSetAttribute(rl_scan_strip_kernel(backward), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)rl_scan_strip_shared(backward));
    return error;
}

/* The blocks' common memory; *units of 16 bytes. */
static rill_status take_common(rill_context *context, rl_strip_args *args, void **common, int64_t *units)
{
    const size_t places = (size_t)args->chains * (size_t)args->tiles * RL_STRIP_LANES;
    const size_t groups = (size_t)rl_quotient_up(args->tiles, RL_STRIP_GROUP);
    const size_t told = places * 16, ends = places * 8, states = (size_t)args->chains * groups * RL_STRIP_LANES * 8;
    const size_t joined = 2 * states;
    rill_status status = rl_workspace_take(context, told + ends + states + joined, common);
    if (status != RILL_OK) return status;
    args->told = *common;
    args->ends = (char *)*common + told;
    args->states = (char *)*common + told + ends;
    args->joined = (char *)*common + told + ends + states;
    *units = (int64_t)(told + ends + states + joined) / 16;
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

rill_status rl_cuda_scan_strips(rill_context *context, const rl_scan_args *scan, bool backward)
{
    rl_strip_args args = {.scan = *scan, .chains = (int32_t)chains_of(scan)};
    args.carriers = rl_cuda_state_of(context)->sms / SMS_OF_A_CARRIER;
    if (args.carriers > args.chains) args.carriers = args.chains;
    args.tiles = rl_quotient_up(scan->length, TILE_STEPS);
    void *common;
    int64_t units;
    rill_status status = take_common(context, &args, &common, &units);
    if (status == RILL_OK) status = launch_reset(context, common, units);
    void *arguments[] = {&args};
    return status != RILL_OK
               ? status
               : rl_cuda_launch_early(context, rl_scan_strip_kernel(backward),
                                      args.carriers + args.chains * args.tiles, 1, 32 * RL_STRIP_WARPS,
                                      rl_scan_strip_shared(backward), arguments, "scan: launch over strips");
}
