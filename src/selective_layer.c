/* selective_layer, the front: the arguments as data, and the way to the backend. */
#include <rill/selective_layer.h>

#include <stddef.h>

#include "clamp.h"
#include "context.h"
#include "signature.h"

enum { CHANNELS = RL_OWN_SIZE, STATES, RANK, SIZES };

typedef rill_selective_layer_args args_type;
typedef rl_selective_layer_problem problem_type;

#define PLACE(field) #field, offsetof(args_type, field), offsetof(problem_type, field)

static const rl_argument arguments[] = {
    {PLACE(x), RL_INPUT, RL_ACTIVATION, 3, {RL_BATCH, RL_LENGTH, CHANNELS}, NULL},
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL},
    {PLACE(W_delta_down), RL_OPTIONAL_INPUT, RL_WEIGHT, 2, {RANK, CHANNELS}, NULL},
    {PLACE(W_delta), RL_INPUT, RL_WEIGHT, 2, {CHANNELS, RANK}, NULL},
    {PLACE(W_B), RL_INPUT, RL_WEIGHT, 2, {STATES, CHANNELS}, NULL},
    {PLACE(W_C), RL_INPUT, RL_WEIGHT, 2, {STATES, CHANNELS}, NULL},
    {PLACE(A_log), RL_INPUT, RL_PARAMETER, 2, {CHANNELS, STATES}, NULL},
    {PLACE(b_delta), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL},
    {PLACE(D), RL_OPTIONAL_INPUT, RL_PARAMETER, 1, {CHANNELS}, NULL},
    {PLACE(z), RL_OPTIONAL_INPUT, RL_ACTIVATION, 3, {RL_BATCH, RL_LENGTH, CHANNELS}, NULL},
    {PLACE(h_init), RL_OPTIONAL_INPUT, RL_STATE, 3, {RL_SEQUENCES, CHANNELS, STATES}, NULL},
    {PLACE(y), RL_OUTPUT, RL_RESULT, 3, {RL_BATCH, RL_LENGTH, CHANNELS}, NULL},
    {PLACE(h_final), RL_OPTIONAL_OUTPUT, RL_STATE, 3, {RL_SEQUENCES, CHANNELS, STATES}, "h_init"},
};

/* Without W_delta_down the rank is the channels: W_delta is square. */
static const rl_size sizes[SIZES] = {
    [RL_BATCH] = {"batch", offsetof(problem_type, batch), RL_BATCH, NULL},
    [RL_LENGTH] = {"length", offsetof(problem_type, length), RL_LENGTH, NULL},
    [RL_SEQUENCES] = {"sequences", offsetof(problem_type, sequences), RL_BATCH, "offsets"},
    [CHANNELS] = {"channels", offsetof(problem_type, channels), CHANNELS, NULL},
    [STATES] = {"states", offsetof(problem_type, states), STATES, NULL},
    [RANK] = {"rank", offsetof(problem_type, rank), CHANNELS, "W_delta_down"},
};

static const rl_signature signature = {
    .name = "selective_layer",
    .arguments = arguments,
    .argument_count = sizeof arguments / sizeof arguments[0],
    .sizes = sizes,
    .size_count = SIZES,
    .reserved = offsetof(args_type, reserved),
};

static rill_status run(rill_context *context, const void *problem)
{
    return context->backend->selective_layer(context, problem);
}

rill_status rill_selective_layer(rill_context *context, const rill_selective_layer_args *args)
{
    problem_type problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &signature, args, &problem);
    if (status == RILL_OK)
        status = rl_check_clamp(context, args->delta_min, args->delta_max, &problem.delta_min, &problem.delta_max);
    if (status != RILL_OK) return status;
    problem.reverse = args->reverse;
    if (problem.channels == 0 || problem.sequences == 0) return RILL_OK; /* no output has an element */

    return rl_dispatch(context, &signature, args, &problem, context->backend->selective_layer ? run : NULL);
}
