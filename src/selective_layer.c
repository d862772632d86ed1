/* selective_layer, the front: the arguments of both directions as data, and the way to the backend. */
#include <rill/selective_layer.h>

#include <stddef.h>

#include "clamp.h"
#include "context.h"
#include "signature.h"

enum { CHANNELS = RL_OWN_SIZE, STATES, RANK, SIZES };

/* clang-format off */
#define BY_CHANNEL {RL_BATCH, RL_LENGTH, CHANNELS}
#define OF_STATES {RL_SEQUENCES, CHANNELS, STATES}

/* What both directions take, by the PLACE and SIZE of each.  Without W_delta_down the rank is the channels: W_delta is square. */
#define INPUTS \
    {PLACE(x), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL}, \
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL}, \
    {PLACE(W_delta_down), RL_OPTIONAL_INPUT, RL_WEIGHT, 2, {RANK, CHANNELS}, NULL}, \
    {PLACE(W_delta), RL_INPUT, RL_WEIGHT, 2, {CHANNELS, RANK}, NULL}, \
    {PLACE(W_B), RL_INPUT, RL_WEIGHT, 2, {STATES, CHANNELS}, NULL}, \
    {PLACE(W_C), RL_INPUT, RL_WEIGHT, 2, {STATES, CHANNELS}, NULL}, \
    {PLACE(A_log), RL_INPUT, RL_PARAMETER, 2, {CHANNELS, STATES}, NULL}, \
    {PLACE(b_delta), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL}, \
    {PLACE(D), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL}, \
    {PLACE(z), RL_OPTIONAL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL}, \
    {PLACE(h_init), RL_OPTIONAL_INPUT, RL_STATE, 3, OF_STATES, NULL}
#define SIZE_ROWS \
    [RL_BATCH] = {SIZE(batch), RL_BATCH, NULL}, \
    [RL_LENGTH] = {SIZE(length), RL_LENGTH, NULL}, \
    [RL_SEQUENCES] = {SIZE(sequences), RL_BATCH, "offsets"}, \
    [CHANNELS] = {SIZE(channels), CHANNELS, NULL}, \
    [STATES] = {SIZE(states), STATES, NULL}, \
    [RANK] = {SIZE(rank), CHANNELS, "W_delta_down"}
/* clang-format on */

/* Forward */

#define PLACE(field) #field, offsetof(rill_selective_layer_args, field), offsetof(rl_selective_layer_problem, field)
#define SIZE(field) #field, offsetof(rl_selective_layer_problem, field)

static const rl_argument arguments[] = {
    INPUTS,
    {PLACE(y), RL_OUTPUT, RL_RESULT, 3, BY_CHANNEL, NULL},
    {PLACE(h_final), RL_OPTIONAL_OUTPUT, RL_STATE, 3, OF_STATES, "h_init"},
};

static const rl_size sizes[SIZES] = {SIZE_ROWS};

static const rl_signature signature = {
    .name = "selective_layer",
    .arguments = arguments,
    .argument_count = sizeof arguments / sizeof arguments[0],
    .sizes = sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_selective_layer_args, reserved),
};

static rill_status run(rill_context *context, const void *problem)
{
    return context->backend->selective_layer(context, problem);
}

rill_status rill_selective_layer(rill_context *context, const rill_selective_layer_args *args)
{
    rl_selective_layer_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &signature, args, &problem);
    if (status == RILL_OK)
        status = rl_check_clamp(context, args->delta_min, args->delta_max, &problem.delta_min, &problem.delta_max);
    if (status != RILL_OK) return status;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &signature, args, &problem, context->backend->selective_layer ? run : NULL);
}

#undef PLACE
#undef SIZE

/* Backward */

#define PLACE(field)                                                                                                 \
#field, offsetof(rill_selective_layer_backward_args, field), offsetof(rl_selective_layer_backward_problem, field)
#define SIZE(field) #field, offsetof(rl_selective_layer_backward_problem, field)

static const rl_argument backward_arguments[] = {
    INPUTS,
    {PLACE(dy), RL_OPTIONAL_INPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dh_final), RL_OPTIONAL_INPUT, RL_STATE_GRADIENT, 3, OF_STATES, NULL},
    {PLACE(dx), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dW_delta), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 2, {CHANNELS, RANK}, NULL},
    {PLACE(dW_delta_down), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 2, {RANK, CHANNELS}, NULL},
    {PLACE(dW_B), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 2, {STATES, CHANNELS}, NULL},
    {PLACE(dW_C), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 2, {STATES, CHANNELS}, NULL},
    {PLACE(dA_log), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 2, {CHANNELS, STATES}, NULL},
    {PLACE(db_delta), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 1, {CHANNELS}, NULL},
    {PLACE(dD), RL_OPTIONAL_OUTPUT, RL_PARAMETER_GRADIENT, 1, {CHANNELS}, NULL},
    {PLACE(dz), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dh_init), RL_OPTIONAL_OUTPUT, RL_STATE_GRADIENT, 3, OF_STATES, NULL},
};

static const rl_size backward_sizes[SIZES] = {SIZE_ROWS};

static const rl_signature backward_signature = {
    .name = "selective_layer_backward",
    .arguments = backward_arguments,
    .argument_count = sizeof backward_arguments / sizeof backward_arguments[0],
    .sizes = backward_sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_selective_layer_backward_args, reserved),
};

static rill_status run_backward(rill_context *context, const void *problem)
{
    return context->backend->selective_layer_backward(context, problem);
}

rill_status rill_selective_layer_backward(rill_context *context, const rill_selective_layer_backward_args *args)
{
    rl_selective_layer_backward_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &backward_signature, args, &problem);
    if (status == RILL_OK)
        status = rl_check_clamp(context, args->delta_min, args->delta_max, &problem.delta_min, &problem.delta_max);
    if (status != RILL_OK) return status;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &backward_signature, args, &problem,
                       context->backend->selective_layer_backward ? run_backward : NULL);
}
