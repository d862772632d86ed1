/* selective_scan, the front: the arguments of both directions as data, what the rows cannot say, and the way to the
 * backend. */
#include <rill/selective_scan.h>

#include <inttypes.h>
#include <stddef.h>

#include "clamp.h"
#include "context.h"
#include "signature.h"

enum { CHANNELS = RL_OWN_SIZE, STATES, GROUPS, SIZES };

/* clang-format off */
#define BY_CHANNEL {RL_BATCH, RL_LENGTH, CHANNELS}
#define BY_GROUP {RL_BATCH, RL_LENGTH, GROUPS, STATES}
#define OF_STATES {RL_SEQUENCES, CHANNELS, STATES}

/* What both directions take, by the PLACE and SIZE of each. */
#define INPUTS \
    {PLACE(x), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL}, \
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL}, \
    {PLACE(delta), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL}, \
    {PLACE(A), RL_INPUT, RL_PARAMETER, 2, {CHANNELS, STATES}, NULL}, \
    {PLACE(B), RL_INPUT, RL_ACTIVATION, 4, BY_GROUP, NULL}, \
    {PLACE(C), RL_INPUT, RL_ACTIVATION, 4, BY_GROUP, NULL}, \
    {PLACE(D), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL}, \
    {PLACE(z), RL_OPTIONAL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL}, \
    {PLACE(delta_bias), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL}, \
    {PLACE(h_init), RL_OPTIONAL_INPUT, RL_STATE, 3, OF_STATES, NULL}
#define SIZE_ROWS \
    [RL_BATCH] = {SIZE(batch), RL_BATCH, NULL}, \
    [RL_LENGTH] = {SIZE(length), RL_LENGTH, NULL}, \
    [RL_SEQUENCES] = {SIZE(sequences), RL_BATCH, "offsets"}, \
    [CHANNELS] = {SIZE(channels), CHANNELS, NULL}, \
    [STATES] = {SIZE(states), STATES, NULL}, \
    [GROUPS] = {SIZE(groups), GROUPS, NULL}
/* clang-format on */

static rill_status check_groups(rill_context *context, int64_t groups, int64_t channels)
{
    if (groups < 1)
        return rl_fail(context, RILL_INVALID_SHAPE, "B: axis 2 is %" PRId64 ", expected at least 1 (groups)", groups);
    if (channels % groups == 0) return RILL_OK;
    return rl_fail(context, RILL_INVALID_SHAPE,
                   "B: axis 2 is %" PRId64 ", expected a divisor of %" PRId64 " (channels of x)", groups, channels);
}

/* Forward */

#define PLACE(field) #field, offsetof(rill_selective_scan_args, field), offsetof(rl_selective_scan_problem, field)
#define SIZE(field) #field, offsetof(rl_selective_scan_problem, field)

static const rl_argument arguments[] = {
    INPUTS,
    {PLACE(y), RL_OUTPUT, RL_RESULT, 3, BY_CHANNEL, "x"},
    {PLACE(h_final), RL_OPTIONAL_OUTPUT, RL_STATE, 3, OF_STATES, "h_init"},
};

static const rl_size sizes[SIZES] = {SIZE_ROWS};

static const rl_signature signature = {
    .name = "selective_scan",
    .arguments = arguments,
    .argument_count = sizeof arguments / sizeof arguments[0],
    .sizes = sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_selective_scan_args, reserved),
};

static rill_status run(rill_context *context, const void *problem)
{
    return context->backend->selective_scan(context, problem);
}

rill_status rill_selective_scan(rill_context *context, const rill_selective_scan_args *args)
{
    rl_selective_scan_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &signature, args, &problem);
    if (status == RILL_OK) status = check_groups(context, problem.groups, problem.channels);
    if (status == RILL_OK)
        status = rl_check_clamp(context, args->delta_min, args->delta_max, &problem.delta_min, &problem.delta_max);
    if (status != RILL_OK) return status;
    problem.delta_softplus = args->delta_softplus;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &signature, args, &problem, context->backend->selective_scan ? run : NULL);
}

#undef PLACE
#undef SIZE

/* Backward */

#define PLACE(field)                                                                                                 \
#field, offsetof(rill_selective_scan_backward_args, field), offsetof(rl_selective_scan_backward_problem, field)
#define SIZE(field) #field, offsetof(rl_selective_scan_backward_problem, field)

static const rl_argument backward_arguments[] = {
    INPUTS,
    {PLACE(dy), RL_OPTIONAL_INPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dh_final), RL_OPTIONAL_INPUT, RL_STATE_GRADIENT, 3, OF_STATES, NULL},
    {PLACE(dx), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(ddelta), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dA), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 2, {CHANNELS, STATES}, NULL},
    {PLACE(dB), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 4, BY_GROUP, NULL},
    {PLACE(dC), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 4, BY_GROUP, NULL},
    {PLACE(dD), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 1, {CHANNELS}, NULL},
    {PLACE(dz), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(ddelta_bias), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 1, {CHANNELS}, NULL},
    {PLACE(dh_init), RL_OPTIONAL_OUTPUT, RL_STATE_GRADIENT, 3, OF_STATES, NULL},
};

static const rl_size backward_sizes[SIZES] = {SIZE_ROWS};

static const rl_signature backward_signature = {
    .name = "selective_scan_backward",
    .arguments = backward_arguments,
    .argument_count = sizeof backward_arguments / sizeof backward_arguments[0],
    .sizes = backward_sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_selective_scan_backward_args, reserved),
};

static rill_status run_backward(rill_context *context, const void *problem)
{
    return context->backend->selective_scan_backward(context, problem);
}

rill_status rill_selective_scan_backward(rill_context *context, const rill_selective_scan_backward_args *args)
{
    rl_selective_scan_backward_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &backward_signature, args, &problem);
    if (status == RILL_OK) status = check_groups(context, problem.groups, problem.channels);
    if (status == RILL_OK)
        status = rl_check_clamp(context, args->delta_min, args->delta_max, &problem.delta_min, &problem.delta_max);
    if (status != RILL_OK) return status;
    problem.delta_softplus = args->delta_softplus;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &backward_signature, args, &problem,
                       context->backend->selective_scan_backward ? run_backward : NULL);
}
