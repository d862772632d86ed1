/* The selective scan's launcher: resolves a problem into s6_args.h, cuts it up, and launches one or three kernels.
 */
#include <math.h>

#include "counts.h"
#include "device.h"
#include "s6_kernels.h"
#include "s6_tuning.h"
#include "s6_views.h"

static const int64_t MOST_BLOCKS = 1 << 30; /* of a launch */

enum { OF_TWO_BLOCKS = 77 << 10 }; /* bytes of shared memory: no third block joins them on a multiprocessor */

static rl_s6_args resolve(const rl_selective_scan_problem *problem)
{
    int64_t groups = problem->groups, group_channels = problem->channels / groups;
    return (rl_s6_args){
        .x = rl_s6_turned(rl_s6_channels_of(&problem->x, groups, group_channels), problem->reverse),
        .delta = rl_s6_turned(rl_s6_channels_of(&problem->delta, groups, group_channels), problem->reverse),
        .z = rl_s6_turned(rl_s6_channels_of(&problem->z, groups, group_channels), problem->reverse),
        .y = rl_s6_turned(rl_s6_channels_of(&problem->y, groups, group_channels), problem->reverse),
        .B = rl_s6_turned(rl_s6_view_of(&problem->B), problem->reverse),
        .C = rl_s6_turned(rl_s6_view_of(&problem->C), problem->reverse),
        .D = rl_s6_vector_of(&problem->D),
        .bias = rl_s6_vector_of(&problem->delta_bias),
        .A = problem->A.data,
        .A_channel = problem->A.stride[0],
        .A_state = problem->A.stride[1],
        .h_init = rl_s6_state_of(&problem->h_init),
        .h_final = rl_s6_state_of(&problem->h_final),
        .offsets = (const int64_t *)problem->offsets.data,
        .offsets_stride = problem->offsets.data ? problem->offsets.stride[0] : 0,
        .length = problem->length,
        .channels = problem->channels,
        .states = problem->states,
        .sequences = problem->sequences,
        .group_channels = group_channels,
        .softplus = problem->delta_softplus,
        .reverse = problem->reverse,
        .clamps = problem->delta_min > (problem->delta_softplus ? 0 : -INFINITY) || problem->delta_max < INFINITY,
        .steady = problem->delta_max >= 0 && problem->delta_min <= 1e6,
        .delta_min = problem->delta_min,
        .delta_max = problem->delta_max,
    };
}

static bool all_wide(const rl_s6_args *args)
{
    return args->x.wide && args->delta.wide && args->B.wide && args->C.wide && args->y.wide &&
           (args->z.wide || !args->z.data);
}

static bool is_wide_state(const rl_s6_args *args, const rl_s6_state *state)
{
    rill_dtype accumulated = args->x.dtype == RILL_F64 ? RILL_F64 : RILL_F32;
    return !state->data || (state->wide && state->dtype == (int32_t)accumulated);
}

static bool all_states_wide(const rl_s6_args *args)
{
    return args->A_wide && args->B.wide && args->C.wide && args->states % RL_S6_OWN == 0 &&
           is_wide_state(args, &args->h_init) && is_wide_state(args, &args->h_final);
}

static void cut_channels(rl_s6_args *args, int64_t groups, int32_t block_channels)
{
    args->block_channels = block_channels;
    args->blocks_per_group = rl_s6_ceil(args->group_channels, block_channels);
    args->blocks = args->blocks_per_group * groups;
}

/* Of work that is cut into blocks. */
static bool is_whole(const rl_s6_args *args)
{
    static const int32_t channels[] = {RL_S6_CHANNELS, RL_S6_MIDDLE_CHANNELS, RL_S6_FINE_CHANNELS};
    return args->x.dtype != RILL_F64 && args->wide && args->states == RL_S6_PANEL && args->softplus &&
           !args->clamps && args->steady && args->block_channels == channels[args->shape] &&
           args->group_channels % args->block_channels == 0;
}

/* Whether chunks may be summarised shortly: what must be redone is read again, so y may not lie where x does. */
static bool may_fade(const rl_s6_args *args)
{
    return is_whole(args) && args->x.data != args->y.data;
}

/* Into chunks that are summarised shortly. */
static bool cut_long(rl_s6_args *args, int64_t groups, int sms)
{
    args->shape = RL_S6_USUAL_SHAPE;
    cut_channels(args, groups, RL_S6_CHANNELS);
    args->chunks = rl_s6_long_chunks(args->sequences * args->blocks, args->length, sms);
    return args->chunks > 1 && may_fade(args);
}

static void cut_usually(rl_s6_args *args, int64_t groups, int sms, bool reproducible)
{
    cut_channels(args, groups, rl_s6_block_channels(args->sequences, groups, args->group_channels, sms));
    args->chunks = rl_s6_chunks(args->sequences, args->blocks, args->length, sms, reproducible);
    args->shape = RL_S6_USUAL_SHAPE;
    if (args->x.dtype == RILL_F64 || reproducible) return;
    args->shape =
        args->chunks > 1 ? RL_S6_MIDDLE_SHAPE : rl_s6_pick_shape(args->sequences, groups, args->group_channels, sms);
    if (args->shape != RL_S6_USUAL_SHAPE)
        cut_channels(args, groups, args->shape == RL_S6_FINE_SHAPE ? RL_S6_FINE_CHANNELS : RL_S6_MIDDLE_CHANNELS);
}

static rl_s6_pace pace_of(const rl_s6_view *view)
{
    const int64_t step = view->step * (int64_t)rill_dtype_size((rill_dtype)view->dtype);
    return (rl_s6_pace){.step = step, .tile = step * RL_S6_STEPS};
}

static rl_s6_paces paces_of(const rl_s6_args *args)
{
    return (rl_s6_paces){.x = pace_of(&args->x),
                         .delta = pace_of(&args->delta),
                         .z = pace_of(&args->z),
                         .y = pace_of(&args->y),
                         .B = pace_of(&args->B),
                         .C = pace_of(&args->C)};
}

static void cut(rill_context *context, rl_s6_args *args, int64_t groups)
{
    int sms = rl_cuda_state_of(context)->sms;
    bool reproducible = context->options.reproducible;
    args->fades = !reproducible && cut_long(args, groups, sms);
    if (!args->fades) cut_usually(args, groups, sms, reproducible);
    args->whole = is_whole(args);
    args->tasks = args->sequences * args->chunks * args->blocks;
    args->panels = args->states == 0 ? 1 : (int32_t)rl_s6_ceil(args->states, RL_S6_PANEL);
}

static rill_status take_scratch(rill_context *context, rl_s6_args *args, size_t element)
{
    bool split = args->chunks > 1;
    size_t places = (size_t)args->sequences * (size_t)args->chunks * (size_t)args->channels;
    size_t states = places * (size_t)args->states * element;
    rill_status status = RILL_OK;
    if (split || args->panels > 1) status = rl_workspace_take(context, states, &args->carry);
    if (!split) return status;
    if (status == RILL_OK) status = rl_workspace_take(context, states, &args->local);
    if (status == RILL_OK)
        status = rl_workspace_take(context, places * sizeof *args->step_sums, (void **)&args->step_sums);
    if (status == RILL_OK) status = rl_workspace_take(context, places * sizeof *args->wild, (void **)&args->wild);
    return status;
}

static rl_s6_kernel kernel_of(rill_dtype dtype, bool projected, bool whole, rl_s6_walk walk)
{
    switch (dtype) {
    case RILL_F64:
        return rl_s6_kernel_f64(walk);
    case RILL_F32:
        return rl_s6_kernel_f32(walk, whole);
    case RILL_BF16:
        return rl_s6_kernel_bf16(walk, projected, whole);
    default:
        return rl_s6_kernel_f16(walk, projected, whole);
    }
}

/* The tiles take more shared memory than a kernel may have unasked. */
cudaError_t rl_cuda_prepare_selective_scan(rl_cuda_state *state)
{
    const rill_dtype dtypes[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16};
    cudaError_t error = cudaSuccess;
    for (int k = 0; k < 4 * 4 * RL_S6_WALKS && error == cudaSuccess; k++) {
        const int kind = k / RL_S6_WALKS;
        rl_s6_kernel kernel = kernel_of(dtypes[kind / 4], kind / 2 % 2, kind % 2, (rl_s6_walk)(k % RL_S6_WALKS));
        error = rl_cuda_allow(state, kernel.address, rl_most((int64_t)kernel.shared, OF_TWO_BLOCKS));
    }
    return error;
}

/*
 * Whether two blocks a multiprocessor are all that there is: where a third joins, all wait for those three.  What may
 * fade is cut into chunks for two.
 */
static bool is_for_two(rill_context *context, const rl_s6_args *args)
{
    return args->shape == RL_S6_USUAL_SHAPE && args->tasks <= 2 * (int64_t)rl_cuda_state_of(context)->sms;
}

static rill_status launch_walk(rill_context *context, rl_s6_args *args, rl_s6_walk walk)
{
    static const int lanes[] = {RL_S6_LANES, RL_S6_MIDDLE_LANES, RL_S6_FINE_LANES};
    rl_s6_kernel kernel = kernel_of((rill_dtype)args->x.dtype, args->delta.dtype != args->x.dtype, args->whole, walk);
    int threads = RL_S6_PRODUCERS + args->block_channels * lanes[args->shape];
    rl_s6_walk_args walk_args = {.scan = *args, .paces = paces_of(args)};
    void *arguments[] = {&walk_args};
    const size_t shared =
        is_for_two(context, args) ? (size_t)rl_most((int64_t)kernel.shared, OF_TWO_BLOCKS) : kernel.shared;
    rill_status status = RILL_OK;
    for (int64_t first = 0; first < args->tasks && status == RILL_OK; first += MOST_BLOCKS) {
        int64_t blocks = args->tasks - first < MOST_BLOCKS ? args->tasks - first : MOST_BLOCKS;
        walk_args.scan.first_task = first;
        status = rl_cuda_launch_early(context, kernel.address, blocks, 1, threads, shared, arguments,
                                      "selective_scan: launch");
    }
    return status;
}

static rill_status launch_carry(rill_context *context, rl_s6_args *args)
{
    const int threads = 128;
    int64_t blocks = rl_s6_ceil(args->sequences * args->channels * args->states, threads);
    if (blocks == 0) return RILL_OK;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, rl_s6_carry_kernel(args->x.dtype == RILL_F64), blocks, 1, threads, 0,
                                arguments, "selective_scan: launch of the carries");
}

static rill_status launch_redo(rill_context *context, rl_s6_args *args)
{
    const int threads = 128;
    int64_t blocks = rl_s6_ceil(args->sequences * args->channels, threads / 32);
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, rl_s6_redo_kernel(), blocks, 1, threads, 0, arguments,
                                "selective_scan: launch of what must be redone");
}

static const void *pick_step(const rl_s6_args *args, bool whole)
{
    bool projected = args->delta.dtype != args->x.dtype;
    switch (args->x.dtype) {
    case RILL_F64:
        return rl_s6_step_f64(whole);
    case RILL_F32:
        return rl_s6_step_f32(whole);
    case RILL_BF16:
        return rl_s6_step_bf16(projected, whole);
    default:
        return rl_s6_step_f16(projected, whole);
    }
}

static rill_status launch_step(rill_context *context, rl_s6_args *args)
{
    bool whole = args->states_wide && args->states <= RL_S6_PANEL;
    int threads = whole ? RL_S6_STEP_WHOLE_THREADS : RL_S6_STEP_THREADS;
    int64_t blocks = rl_s6_ceil(args->channels, threads / RL_S6_LANES);
    int64_t rows = rl_s6_step_rows(args->sequences, blocks, rl_cuda_state_of(context)->sms);
    if (whole) rows = rl_s6_step_whole_rows(args->sequences);
    void *arguments[] = {args};
    return rl_cuda_launch_early(context, pick_step(args, whole), blocks, rows, threads, 0, arguments,
                                "selective_scan: launch of a step");
}

static rill_status launch_walks(rill_context *context, rl_s6_args *args, int64_t groups)
{
    cut(context, args, groups);
    rill_status status = take_scratch(context, args, args->x.dtype == RILL_F64 ? sizeof(double) : sizeof(float));
    if (status == RILL_OK && args->chunks > 1) {
        status = launch_walk(context, args, args->shape == RL_S6_MIDDLE_SHAPE ? RL_S6_MIDDLE_SUMMARY : RL_S6_SUMMARY);
        if (status == RILL_OK) status = launch_carry(context, args);
    }
    static const rl_s6_walk walks[] = {RL_S6_USUAL, RL_S6_MIDDLE, RL_S6_FINE};
    if (status == RILL_OK) status = launch_walk(context, args, walks[args->shape]);
    return status == RILL_OK && args->fades ? launch_redo(context, args) : status;
}

rill_status rl_cuda_selective_scan(rill_context *context, const rl_selective_scan_problem *problem)
{
    if (problem->channels == 0 || problem->sequences == 0) return RILL_OK;
    rl_s6_args args = resolve(problem);
    rl_cuda_scope scope = rl_cuda_enter(context);
    int64_t A_stride[RILL_MAX_RANK] = {0};
    rl_s6_own_strides(&problem->A, A_stride);
    args.A_wide = rl_s6_is_wide(&problem->A, A_stride);
    args.wide = all_wide(&args);
    args.states_wide = all_states_wide(&args);
    bool one_step = args.length == 1 && !args.offsets;
    rill_status status = one_step ? launch_step(context, &args) : launch_walks(context, &args, problem->groups);
    rl_cuda_leave(context, &scope);
    return status;
}
