/* scan, the front: the arguments of both directions as data, what the rows cannot say, and the way to the backend. */
#include <rill/scan.h>

#include <stddef.h>

#include "context.h"
#include "signature.h"

enum { CHANNELS = RL_OWN_SIZE, SIZES };

/* clang-format off */
#define BY_CHANNEL {RL_BATCH, RL_LENGTH, CHANNELS}
#define OF_STATES {RL_SEQUENCES, CHANNELS}

/* The sizes of both directions, by the SIZE of each. */
#define SIZE_ROWS \
    [RL_BATCH] = {SIZE(batch), RL_BATCH, NULL}, \
    [RL_LENGTH] = {SIZE(length), RL_LENGTH, NULL}, \
    [RL_SEQUENCES] = {SIZE(sequences), RL_BATCH, "offsets"}, \
    [CHANNELS] = {SIZE(channels), CHANNELS, NULL}
/* clang-format on */

/* Forward */

#define PLACE(field) #field, offsetof(rill_scan_args, field), offsetof(rl_scan_problem, field)
#define SIZE(field) #field, offsetof(rl_scan_problem, field)

static const rl_argument arguments[] = {
    {PLACE(a), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL},
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL},
    {PLACE(b), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL},
    {PLACE(h_init), RL_OPTIONAL_INPUT, RL_STATE, 2, OF_STATES, NULL},
    {PLACE(h), RL_OUTPUT, RL_RESULT, 3, BY_CHANNEL, "b"},
    {PLACE(h_final), RL_OPTIONAL_OUTPUT, RL_STATE, 2, OF_STATES, "h_init"},
};

static const rl_size sizes[SIZES] = {SIZE_ROWS};

static const rl_signature signature = {
    .name = "scan",
    .takes_complex = true,
    .arguments = arguments,
    .argument_count = sizeof arguments / sizeof arguments[0],
    .sizes = sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_scan_args, reserved),
};

static rill_status run(rill_context *context, const void *problem)
{
    return context->backend->scan(context, problem);
}

rill_status rill_scan(rill_context *context, const rill_scan_args *args)
{
    rl_scan_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &signature, args, &problem);
    if (status != RILL_OK) return status;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &signature, args, &problem, context->backend->scan ? run : NULL);
}

#undef PLACE
#undef SIZE

/* Backward */

#define PLACE(field) #field, offsetof(rill_scan_backward_args, field), offsetof(rl_scan_backward_problem, field)
#define SIZE(field) #field, offsetof(rl_scan_backward_problem, field)

static const rl_argument backward_arguments[] = {
    {PLACE(a), RL_INPUT, RL_ACTIVATION, 3, BY_CHANNEL, NULL},
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL},
    {PLACE(h), RL_OPTIONAL_INPUT, RL_RESULT, 3, BY_CHANNEL, NULL},
    {PLACE(h_init), RL_OPTIONAL_INPUT, RL_STATE, 2, OF_STATES, NULL},
    {PLACE(dh), RL_OPTIONAL_INPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dh_final), RL_OPTIONAL_INPUT, RL_STATE_GRADIENT, 2, OF_STATES, NULL},
    {PLACE(da), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(db), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, BY_CHANNEL, NULL},
    {PLACE(dh_init), RL_OPTIONAL_OUTPUT, RL_STATE_GRADIENT, 2, OF_STATES, NULL},
};

static const rl_size backward_sizes[SIZES] = {SIZE_ROWS};

static const rl_signature backward_signature = {
    .name = "scan_backward",
    .takes_complex = true,
    .arguments = backward_arguments,
    .argument_count = sizeof backward_arguments / sizeof backward_arguments[0],
    .sizes = backward_sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_scan_backward_args, reserved),
};

static rill_status check_wanted(rill_context *context, const rill_scan_backward_args *args)
{
    if (args->da.dtype == RILL_ABSENT || args->h.dtype != RILL_ABSENT) return RILL_OK;
    return rl_fail(context, RILL_INVALID_NULL,
                   "h: not given, expected a tensor [batch, length, channels] (da is given)");
}

static rill_status run_backward(rill_context *context, const void *problem)
{
    return context->backend->scan_backward(context, problem);
}

rill_status rill_scan_backward(rill_context *context, const rill_scan_backward_args *args)
{
    rl_scan_backward_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &backward_signature, args, &problem);
    if (status == RILL_OK) status = check_wanted(context, args);
    if (status != RILL_OK) return status;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &backward_signature, args, &problem,
                       context->backend->scan_backward ? run_backward : NULL);
}
