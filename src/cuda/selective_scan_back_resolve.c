/* A problem of the selective scan's gradients as its kernels take it (s6_back_args.h), and what is known of it. */
#include "s6_back_resolve.h"

#include <math.h>

#include "device.h"
#include "s6_back_tuning.h"
#include "s6_views.h"

static rl_s6_view by_channel(const rl_selective_scan_backward_problem *p, const rill_tensor *tensor)
{
    return rl_s6_turned(rl_s6_channels_of(tensor, p->groups, p->channels / p->groups), p->reverse);
}

static rl_s6_view by_group(const rl_selective_scan_backward_problem *p, const rill_tensor *tensor)
{
    return rl_s6_turned(rl_s6_view_of(tensor), p->reverse);
}

static rl_s6_target target_of(const rill_tensor *tensor)
{
    rl_s6_target target = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return target;
    target.channel = rl_cuda_stride(tensor, 0);
    target.state = tensor->rank == 2 ? rl_cuda_stride(tensor, 1) : 0;
    return target;
}

static rl_s6_args resolve_scan(const rl_selective_scan_backward_problem *p)
{
    return (rl_s6_args){
        .x = by_channel(p, &p->x),
        .delta = by_channel(p, &p->delta),
        .z = by_channel(p, &p->z),
        .B = by_group(p, &p->B),
        .C = by_group(p, &p->C),
        .D = rl_s6_vector_of(&p->D),
        .bias = rl_s6_vector_of(&p->delta_bias),
        .A = p->A.data,
        .A_channel = p->A.stride[0],
        .A_state = p->A.stride[1],
        .h_init = rl_s6_state_of(&p->h_init),
        .offsets = (const int64_t *)p->offsets.data,
        .offsets_stride = p->offsets.data ? p->offsets.stride[0] : 0,
        .length = p->length,
        .channels = p->channels,
        .states = p->states,
        .sequences = p->sequences,
        .group_channels = p->channels / p->groups,
        .softplus = p->delta_softplus,
        .reverse = p->reverse,
        .delta_min = p->delta_min,
        .delta_max = p->delta_max,
    };
}

static rl_s6_back_args describe(const rl_selective_scan_backward_problem *p)
{
    return (rl_s6_back_args){
        .scan = resolve_scan(p),
        .dy = by_channel(p, &p->dy),
        .dx = by_channel(p, &p->dx),
        .ddelta = by_channel(p, &p->ddelta),
        .dz = by_channel(p, &p->dz),
        .dB = by_group(p, &p->dB),
        .dC = by_group(p, &p->dC),
        .dh_final = rl_s6_state_of(&p->dh_final),
        .dh_init = rl_s6_state_of(&p->dh_init),
        .dA = target_of(&p->dA),
        .dD = target_of(&p->dD),
        .dbias = target_of(&p->ddelta_bias),
        .groups = p->groups,
        .rows = p->batch * p->length,
        .clamps = p->delta_min > -INFINITY || p->delta_max < INFINITY,
        .whole = p->length <= RL_S6_BACK_STEPS,
        .needs_outputs = p->dz.data && p->dy.data,
    };
}

/* Whether four neighbours are one access in all tensors by channel. */
static bool all_wide(const rl_s6_back_args *args)
{
    const rl_s6_view *views[] = {&args->scan.x, &args->scan.delta, &args->scan.z, &args->dy,
                                 &args->dx,     &args->ddelta,     &args->dz};
    for (int i = 0; i < 7; i++)
        if (views[i]->data && !views[i]->wide) return false;
    return true;
}

static bool all_neat(const rl_s6_back_args *args)
{
    const rl_s6_view *views[] = {&args->scan.B, &args->scan.C, &args->dB, &args->dC};
    for (int i = 0; i < 4; i++)
        if (views[i]->data && !views[i]->wide) return false;
    return args->scan.wide && args->scan.group_channels % 4 == 0 && args->scan.states % 4 == 0;
}

/* Whether x, z and their outputs' gradients are of one type, and what the layer makes of x by products of another. */
static bool are_of_types(const rl_s6_back_args *args, rill_dtype outer, rill_dtype inner)
{
    const rl_s6_view *views[] = {&args->scan.x,     &args->scan.z, &args->dy,     &args->dz,
                                 &args->scan.delta, &args->scan.B, &args->scan.C, &args->dx,
                                 &args->ddelta,     &args->dB,     &args->dC};
    for (int i = 0; i < 11; i++)
        if (views[i]->data && views[i]->dtype != (int32_t)(i < 4 ? outer : inner)) return false;
    return true;
}

bool rl_s6_back_all_of_type(const rl_s6_back_args *args, rill_dtype dtype)
{
    return are_of_types(args, dtype, dtype);
}

static rl_s6_back_form form_of(const rl_s6_back_args *args)
{
    if (!all_neat(args)) return RL_S6_BACK_ANY;
    if (args->scan.states == 0 || args->scan.states > RL_S6_PANEL) return RL_S6_BACK_NEAT;
    if (rl_s6_back_all_of_type(args, RILL_F32)) return RL_S6_BACK_NEAT_F32;
    if (rl_s6_back_all_of_type(args, RILL_BF16)) return RL_S6_BACK_NEAT_BF16;
    return are_of_types(args, RILL_BF16, RILL_F32) ? RL_S6_BACK_NEAT_MIXED : RL_S6_BACK_NEAT;
}

rl_s6_back_args rl_s6_back_resolve(const rl_selective_scan_backward_problem *problem)
{
    rl_s6_back_args args = describe(problem);
    args.scan.wide = all_wide(&args);
    args.form = form_of(&args);
    return args;
}
