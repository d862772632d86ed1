/* The scan's launcher: resolves a problem of either direction into scan_args.h, chooses a kernel, and launches it. */
#include "counts.h"
#include "device.h"
#include "scan_args.h"
#include "scan_kernels.h"
#include "scan_ring.h"
#include "scan_split.h"

/* A launch never asks for more blocks: they stride over the work beyond. */
static const int64_t MOST_BLOCKS = 1 << 30;

enum {
    SHORT_STEPS = 16,  /* up to these a thread a channel does all */
    SMALL_STEPS = 512, /* of a problem of a few blocks */
    PANEL_LEAST = 8    /* channels: below, most of a panel would be empty */
};

/* `down`: steps are run from the last to the first. */
static rl_scan_view view_of(const rill_tensor *tensor, bool down)
{
    rl_scan_view view = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return view;
    view.batch = rl_cuda_stride(tensor, 0);
    view.step = down ? -rl_cuda_stride(tensor, 1) : rl_cuda_stride(tensor, 1);
    view.channel = rl_cuda_stride(tensor, 2);
    return view;
}

static rl_scan_state state_of(const rill_tensor *tensor)
{
    rl_scan_state state = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return state;
    state.sequence = rl_cuda_stride(tensor, 0);
    state.channel = rl_cuda_stride(tensor, 1);
    return state;
}

static rl_scan_args resolve(const rl_scan_problem *problem)
{
    bool down = problem->reverse;
    return (rl_scan_args){
        .a = view_of(&problem->a, down),
        .input = view_of(&problem->b, down),
        .output = view_of(&problem->h, down),
        .enter = state_of(&problem->h_init),
        .leave = state_of(&problem->h_final),
        .offsets = problem->offsets.data,
        .offsets_stride = problem->offsets.data ? problem->offsets.stride[0] : 0,
        .length = problem->length,
        .channels = problem->channels,
        .sequences = problem->sequences,
        .down = down,
    };
}

static rl_scan_args resolve_backward(const rl_scan_backward_problem *problem)
{
    bool down = !problem->reverse;
    rl_scan_args args = {
        .a = view_of(&problem->a, down),
        .input = view_of(&problem->dh, down),
        .output = view_of(&problem->db, down),
        .decay = view_of(&problem->da, down),
        .enter = state_of(&problem->dh_final),
        .leave = state_of(&problem->dh_init),
        .start = state_of(&problem->h_init),
        .offsets = problem->offsets.data,
        .offsets_stride = problem->offsets.data ? problem->offsets.stride[0] : 0,
        .length = problem->length,
        .channels = problem->channels,
        .sequences = problem->sequences,
        .down = down,
    };
    if (problem->da.data) args.before = view_of(&problem->h, down);
    return args;
}

/* Of a sequence, or of packed ones on the average. */
static int64_t steps_of(const rl_scan_args *args)
{
    return args->offsets ? args->length / args->sequences : args->length;
}

/* Blocks of one warp until every multiprocessor has some. */
static int plain_threads(const rill_context *context, int64_t walks)
{
    int64_t most = (int64_t)rl_cuda_state_of(context)->sms * 16;
    int threads = 32;
    while (threads < RL_SCAN_PLAIN_THREADS && walks / threads > most) threads *= 2;
    return threads;
}

static rill_status launch_plain(rill_context *context, rl_scan_args *args, bool backward)
{
    int64_t walks = args->sequences * args->channels;
    int threads = plain_threads(context, walks);
    int64_t blocks = rl_quotient_up(walks, threads);
    bool is_short = steps_of(args) <= SHORT_STEPS && threads == RL_SCAN_PLAIN_THREADS;
    const void *kernel = rl_scan_plain_kernel((rill_dtype)args->a.dtype, backward, is_short);
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, kernel, blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, 1, threads, 0,
                                arguments, "scan: launch");
}

static bool differs(const rl_scan_args *args, const rl_scan_view *view)
{
    return view->data && view->dtype != args->a.dtype;
}

static bool is_mixed(const rl_scan_args *args)
{
    return differs(args, &args->input) || differs(args, &args->output) || differs(args, &args->before) ||
           differs(args, &args->decay);
}

static rill_status launch_panels(rill_context *context, rl_scan_args *args, bool backward)
{
    int64_t blocks = args->sequences * rl_quotient_up(args->channels, RL_SCAN_PANEL_MANY);
    const void *kernel = rl_scan_panel_kernel((rill_dtype)args->a.dtype, is_mixed(args), backward);
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, kernel, blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, 1,
                                rl_scan_panel_threads(RL_SCAN_PANEL_MANY), 0, arguments, "scan: launch of panels");
}

/* Within a panel of a small problem 32 bits tell the elements apart. */
static bool is_near(const rl_scan_view *view)
{
    int64_t most = INT32_MAX / 2 / rl_scan_panel_threads(RL_SCAN_PANEL_FEW);
    return view->step >= -most && view->step <= most && view->channel >= -most && view->channel <= most;
}

/* Small problems wait for their first loads and their last stores. */
static bool is_small(const rill_context *context, const rl_scan_args *args)
{
    int64_t blocks = rl_quotient_up(args->channels, RL_SCAN_PANEL_FEW);
    return args->length <= SMALL_STEPS && blocks <= rl_cuda_state_of(context)->sms / args->sequences &&
           !is_mixed(args) && is_near(&args->a) && is_near(&args->input) && is_near(&args->output) &&
           is_near(&args->before) && is_near(&args->decay);
}

static rill_status launch_small(rill_context *context, rl_scan_args *args, bool backward)
{
    int64_t blocks = rl_quotient_up(args->channels, RL_SCAN_PANEL_FEW);
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, rl_scan_small_kernel((rill_dtype)args->a.dtype, backward), blocks,
                                args->sequences, rl_scan_panel_threads(RL_SCAN_PANEL_FEW), 0, arguments,
                                "scan: launch of a small problem");
}

/*
 * The choice depends on sizes, types, strides and addresses only.  Each kernel but the time split walks in the loop's
 * own order with the same arithmetic, so that the choice among them does not show in the bits.
 */
static rill_status launch(rill_context *context, rl_scan_args *args, bool backward)
{
    bool taken = false;
    if (rl_cuda_scan_split_wanted(context, args, backward)) return rl_cuda_scan_split(context, args, backward);
    if (steps_of(args) <= SHORT_STEPS) return launch_plain(context, args, backward);
    if (is_small(context, args)) return launch_small(context, args, backward);
    rill_status status = rl_cuda_scan_ring(context, args, backward, &taken);
    if (status != RILL_OK || taken) return status;
    if (args->channels < PANEL_LEAST) return launch_plain(context, args, backward);
    return launch_panels(context, args, backward);
}

static rill_status run(rill_context *context, rl_scan_args *args, bool backward)
{
    if (args->sequences == 0 || args->channels == 0) return RILL_OK;
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = launch(context, args, backward);
    rl_cuda_leave(context, &scope);
    return status;
}

rill_status rl_cuda_scan(rill_context *context, const rl_scan_problem *problem)
{
    rl_scan_args args = resolve(problem);
    return run(context, &args, false);
}

rill_status rl_cuda_scan_backward(rill_context *context, const rl_scan_backward_problem *problem)
{
    rl_scan_args args = resolve_backward(problem);
    return run(context, &args, true);
}
