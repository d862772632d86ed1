/* The split scan's launcher: how the tensors lie, how wide a tile is, and the blocks' common memory. */
#include "scan_split.h"

#include "counts.h"
#include "scan_split_args.h"
#include "scan_strip.h"

static const int64_t LEAST_STEPS = 4096; /* of a sequence, on the average: several tiles */
static const int64_t MOST_WALKS = 16;    /* channels of sequences for each multiprocessor */
static const int64_t MOST_GROUPS = 2;    /* of channels, for each multiprocessor */

static rl_split_kernel kernel_of(rill_dtype dtype, rl_split_layout layout, bool backward)
{
    if (layout == RL_SPLIT_ROWS) return rl_scan_split_rows(dtype, backward);
    switch (dtype) {
    case RILL_BF16:
        return rl_scan_split_bf16(layout, backward);
    case RILL_F16:
        return rl_scan_split_f16(layout, backward);
    case RILL_F64:
        return rl_scan_split_f64(layout, backward);
    case RILL_C64:
        return rl_scan_split_c64(layout, backward);
    case RILL_C128:
        return rl_scan_split_c128(layout, backward);
    default:
        return rl_scan_split_f32(layout, backward);
    }
}

cudaError_t rl_cuda_prepare_scan_split(rl_cuda_state *state)
{
    static const rill_dtype dtypes[] = {RILL_F32, RILL_BF16, RILL_F16, RILL_F64, RILL_C64, RILL_C128};
    cudaError_t error = cudaSuccess;
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        for (int layout = 0; layout < RL_SPLIT_LAYOUTS; layout++) {
            for (int backward = 0; backward < 2 && error == cudaSuccess; backward++) {
                const rl_split_kernel kernel = kernel_of(dtypes[k], (rl_split_layout)layout, backward);
                error = rl_cuda_allow(state, kernel.kernel, kernel.shared);
            }
        }
    }
    return error == cudaSuccess ? rl_cuda_prepare_scan_strips(state) : error;
}

/* Whether 16 bytes may be moved at a time from any multiple of 16 bytes on along an axis of stride `unit`. */
static bool is_aligned(const rl_scan_view *view, int64_t size, int64_t other)
{
    return (uintptr_t)view->data % 16 == 0 && view->batch * size % 16 == 0 && other * size % 16 == 0;
}

static bool lies_in_rows(const rl_scan_args *args, const rl_scan_view *view)
{
    int64_t size = (int64_t)rill_dtype_size((rill_dtype)args->a.dtype);
    return !view->data || (view->dtype == args->a.dtype && view->channel == 1 && is_aligned(view, size, view->step));
}

static bool lies_in_runs(const rl_scan_args *args, const rl_scan_view *view)
{
    int64_t size = (int64_t)rill_dtype_size((rill_dtype)args->a.dtype);
    return !view->data || (view->dtype == args->a.dtype && view->step == (args->down ? -1 : 1) &&
                           is_aligned(view, size, view->channel));
}

static bool all_lie(const rl_scan_args *args, bool (*lies)(const rl_scan_args *, const rl_scan_view *))
{
    return lies(args, &args->a) && lies(args, &args->input) && lies(args, &args->output) &&
           lies(args, &args->before) && lies(args, &args->decay);
}

static rl_split_layout layout_of(const rl_scan_args *args)
{
    int64_t size = (int64_t)rill_dtype_size((rill_dtype)args->a.dtype);
    if (size == 16) return RL_SPLIT_ANY;
    if (all_lie(args, lies_in_runs)) return args->down ? RL_SPLIT_DOWN : RL_SPLIT_RUNS;
    if (args->channels * size % 16 == 0 && all_lie(args, lies_in_rows)) return RL_SPLIT_ROWS;
    return RL_SPLIT_ANY;
}

/* Channels of a tile: one where a channel's steps are neighbours, and else enough of them for a row. */
static int lanes_log2(const rl_scan_args *args, rl_split_layout layout)
{
    int size = (int)rill_dtype_size((rill_dtype)args->a.dtype);
    const rl_scan_view *result = args->output.data ? &args->output : args->decay.data ? &args->decay : &args->a;
    bool along = result->step == 1 || result->step == -1;
    if (layout == RL_SPLIT_ROWS) return rl_split_row(size);
    if (layout != RL_SPLIT_ANY || along) return 0;
    int log2 = size > 4 ? 2 : 3;
    while (log2 > 0 && (int64_t)1 << (log2 - 1) >= args->channels) log2--;
    return log2;
}

static int64_t groups_of(const rl_scan_args *args, rl_split_layout layout)
{
    return rl_quotient_up(args->channels, (int64_t)1 << lanes_log2(args, layout));
}

/*
 * Groups beyond the blocks have none that begins with them, and blocks that look for work in so many lose more time
 * than splitting saves: f32 [1,4096,1024] with neighbouring steps took .30 ms, and .056 not split (H200).
 */
bool rl_cuda_scan_split_wanted(const rill_context *context, const rl_scan_args *args, bool backward)
{
    const rl_split_layout layout = layout_of(args);
    int64_t sms = rl_cuda_state_of(context)->sms, most = MOST_WALKS * sms;
    if (context->options.reproducible || args->sequences > most) return false;
    int64_t steps = args->offsets ? args->length / args->sequences : args->length;
    if (steps < LEAST_STEPS || args->channels > most / args->sequences) return false;
    if (kernel_of((rill_dtype)args->a.dtype, layout, backward).shared > rl_cuda_state_of(context)->most_shared)
        return false;
    return groups_of(args, layout) <= MOST_GROUPS * sms;
}

static int64_t tiles_of_a_group(const rl_scan_args *args, int64_t steps)
{
    const int64_t skew = 8; /* at most */
    if (args->offsets) return (args->length + skew * args->sequences) / steps + args->sequences;
    return args->sequences * rl_quotient_up(args->length + skew, steps);
}

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The blocks' common memory, a multiple of 256 bytes, and in args where its parts lie. */
static rill_status take_common(rill_context *context, rl_split_args *args, const rl_split_kernel *kernel,
                               void **common, int64_t *units)
{
    size_t places = ((size_t)args->groups * (size_t)args->most_tiles) << args->lanes_log2;
    size_t tickets = rounded((size_t)args->groups * sizeof *args->tickets);
    size_t summaries = rounded(places * (size_t)kernel->summary), ends = rounded(places * (size_t)kernel->end);
    rill_status status = rl_workspace_take(context, tickets + summaries + ends, common);
    if (status != RILL_OK) return status;
    args->tickets = *common;
    args->summaries = (char *)*common + tickets;
    args->ends = (char *)*common + tickets + summaries;
    *units = (int64_t)(tickets + summaries + ends) / 16;
    return RILL_OK;
}

rill_status rl_cuda_reset_common(rill_context *context, void *common, int64_t units)
{
    const int threads = 256;
    int64_t blocks = rl_quotient_up(units, threads), most = rl_cuda_state_of(context)->sms;
    void *arguments[] = {&common, &units};
    return rl_cuda_launch(context, rl_scan_split_reset(), blocks < most ? blocks : most, 1, threads, 0, arguments,
                          "scan: launch of a reset");
}

static rl_split_kernel lay_out(rl_split_args *args)
{
    const rl_scan_args *scan = &args->scan;
    const rl_split_layout layout = layout_of(scan);
    const bool runs = layout == RL_SPLIT_RUNS || layout == RL_SPLIT_DOWN;
    rl_split_kernel kernel = kernel_of((rill_dtype)scan->a.dtype, layout, args->is_backward);
    args->lanes_log2 = lanes_log2(scan, layout);
    args->groups = (int32_t)groups_of(scan, layout);
    args->unit = runs ? 16 / (int32_t)rill_dtype_size((rill_dtype)scan->a.dtype) : 1;
    while ((int64_t)2 << args->steps_log2 <= (int64_t)kernel.steps * kernel.workers >> args->lanes_log2)
        args->steps_log2++;
    args->most_tiles = tiles_of_a_group(scan, (int64_t)1 << args->steps_log2);
    return kernel;
}

rill_status rl_cuda_scan_split(rill_context *context, const rl_scan_args *scan, bool backward)
{
    rl_split_args args = {.scan = *scan, .is_backward = backward};
    if (rl_cuda_scan_strips_wanted(context, scan, layout_of(scan), backward))
        return rl_cuda_scan_strips(context, scan, backward);
    const rl_split_kernel kernel = lay_out(&args);
    int64_t blocks = (int64_t)rl_cuda_state_of(context)->sms * kernel.blocks, units;
    if (blocks > args.groups * args.most_tiles) blocks = args.groups * args.most_tiles;
    void *common;
    rill_status status = take_common(context, &args, &kernel, &common, &units);
    if (status == RILL_OK) status = rl_cuda_reset_common(context, common, units);
    void *arguments[] = {&args};
    return status != RILL_OK ? status
                             : rl_cuda_launch_early(context, kernel.kernel, blocks, 1, kernel.threads, kernel.shared,
                                                    arguments, "scan: launch over split time");
}
