/* The scan's launcher: resolves a problem of either direction into scan_args.h, chooses a kernel, and launches it. */
#include "device.h"
#include "scan_args.h"
#include "scan_kernels.h"

/* A launch never asks for more blocks: they stride over the work beyond. */
static const int64_t MOST_BLOCKS = 1 << 30;

static const int64_t SHORT_STEPS = 16; /* of a sequence, or of packed ones on the average */

static int64_t stride_of(const rill_tensor *tensor, int axis)
{
    return tensor->shape[axis] == 1 ? 0 : tensor->stride[axis]; /* an axis of one element has none */
}

/* `down`: steps are run from the last to the first. */
static rl_scan_view view_of(const rill_tensor *tensor, bool down)
{
    rl_scan_view view = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return view;
    view.batch = stride_of(tensor, 0);
    view.step = down ? -stride_of(tensor, 1) : stride_of(tensor, 1);
    view.channel = stride_of(tensor, 2);
    return view;
}

static rl_scan_state state_of(const rill_tensor *tensor)
{
    rl_scan_state state = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return state;
    state.sequence = stride_of(tensor, 0);
    state.channel = stride_of(tensor, 1);
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
    int64_t blocks = (walks - 1) / threads + 1;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    bool is_short = args->length / (args->offsets ? args->sequences : 1) <= SHORT_STEPS;
    const void *kernel = rl_scan_plain_kernel((rill_dtype)args->a.dtype, backward, is_short);
    void *arguments[] = {args};
    return rl_cuda_launch(context, kernel, blocks, 1, threads, 0, arguments, "scan: launch");
}

static rill_status run(rill_context *context, rl_scan_args *args, bool backward)
{
    if (args->sequences == 0 || args->channels == 0) return RILL_OK;
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status = launch_plain(context, args, backward);
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
