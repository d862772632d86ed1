/* linear_attention, the front: the arguments of both directions as data, what the rows cannot say, and the way to the
 * backend. */
#include <rill/linear_attention.h>

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "context.h"
#include "signature.h"

enum { QUERY_HEADS = RL_OWN_SIZE, KEYS, HEADS, VALUES, SIZES };

/* clang-format off */
#define OF_QUERIES {RL_BATCH, RL_LENGTH, QUERY_HEADS, KEYS}
#define OF_VALUES {RL_BATCH, RL_LENGTH, HEADS, VALUES}
#define OF_GATES {RL_BATCH, RL_LENGTH, HEADS}
#define OF_STATES {RL_SEQUENCES, HEADS, KEYS, VALUES}

/* What both directions take, by the PLACE and SIZE of each. */
#define INPUTS \
    {PLACE(q), RL_INPUT, RL_ACTIVATION, 4, OF_QUERIES, NULL}, \
    {PLACE(offsets), RL_OPTIONAL_INPUT, RL_OFFSETS, 1, {RL_SEQUENCES}, NULL}, \
    {PLACE(k), RL_INPUT, RL_ACTIVATION, 4, OF_QUERIES, NULL}, \
    {PLACE(v), RL_INPUT, RL_ACTIVATION, 4, OF_VALUES, NULL}, \
    {PLACE(gate), RL_OPTIONAL_INPUT, RL_GATE, 3, OF_GATES, NULL}, \
    {PLACE(beta), RL_OPTIONAL_INPUT, RL_GATE, 3, OF_GATES, NULL}, \
    {PLACE(S_init), RL_OPTIONAL_INPUT, RL_STATE, 4, OF_STATES, NULL}
#define SIZE_ROWS \
    [RL_BATCH] = {SIZE(batch), RL_BATCH, NULL}, \
    [RL_LENGTH] = {SIZE(length), RL_LENGTH, NULL}, \
    [RL_SEQUENCES] = {SIZE(sequences), RL_BATCH, "offsets"}, \
    [QUERY_HEADS] = {SIZE(query_heads), QUERY_HEADS, NULL}, \
    [KEYS] = {SIZE(keys), KEYS, NULL}, \
    [HEADS] = {SIZE(heads), HEADS, NULL}, \
    [VALUES] = {SIZE(values), VALUES, NULL}
/* clang-format on */

/* NaN is refused; 0 means 1. */
static rill_status check_scale(rill_context *context, double scale, double *resolved)
{
    if (isnan(scale)) return rl_fail(context, RILL_INVALID_OPTION, "scale: found nan, expected a number");
    *resolved = scale == 0 ? 1 : scale;
    return RILL_OK;
}

static rill_status check_heads(rill_context *context, int64_t query_heads, int64_t heads)
{
    if (query_heads < 1)
        return rl_fail(context, RILL_INVALID_SHAPE, "q: axis 2 is %" PRId64 ", expected at least 1 (query_heads)",
                       query_heads);
    if (heads % query_heads == 0) return RILL_OK;
    return rl_fail(context, RILL_INVALID_SHAPE,
                   "q: axis 2 is %" PRId64 ", expected a divisor of %" PRId64 " (heads of v)", query_heads, heads);
}

/* A state must have a size that can be told, also where the caller keeps none. */
static rill_status check_states(rill_context *context, int64_t heads, int64_t keys, int64_t values)
{
    int64_t bytes;
    if (!__builtin_mul_overflow(heads, keys, &bytes) && !__builtin_mul_overflow(bytes, values, &bytes) &&
        !__builtin_mul_overflow(bytes, (int64_t)sizeof(double), &bytes))
        return RILL_OK;
    return rl_fail(context, RILL_INVALID_SHAPE,
                   "q: axis 3 is %" PRId64 ", expected states [heads, keys, values] below 2^63 bytes", keys);
}

/* Forward */

#define PLACE(field) #field, offsetof(rill_linear_attention_args, field), offsetof(rl_linear_attention_problem, field)
#define SIZE(field) #field, offsetof(rl_linear_attention_problem, field)

static const rl_argument arguments[] = {
    INPUTS,
    {PLACE(y), RL_OUTPUT, RL_RESULT_F32, 4, OF_VALUES, NULL},
    {PLACE(S_final), RL_OPTIONAL_OUTPUT, RL_STATE, 4, OF_STATES, "S_init"},
};

static const rl_size sizes[SIZES] = {SIZE_ROWS};

static const rl_signature signature = {
    .name = "linear_attention",
    .arguments = arguments,
    .argument_count = sizeof arguments / sizeof arguments[0],
    .sizes = sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_linear_attention_args, reserved),
};

static rill_status run(rill_context *context, const void *problem)
{
    return context->backend->linear_attention(context, problem);
}

rill_status rill_linear_attention(rill_context *context, const rill_linear_attention_args *args)
{
    rl_linear_attention_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &signature, args, &problem);
    if (status == RILL_OK) status = check_heads(context, problem.query_heads, problem.heads);
    if (status == RILL_OK) status = check_states(context, problem.heads, problem.keys, problem.values);
    if (status == RILL_OK) status = check_scale(context, args->scale, &problem.scale);
    if (status != RILL_OK) return status;
    problem.gate_is_log = args->gate_is_log;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &signature, args, &problem, context->backend->linear_attention ? run : NULL);
}

#undef PLACE
#undef SIZE

/* Backward */

#define PLACE(field)                                                                                                 \
#field, offsetof(rill_linear_attention_backward_args, field),                                                    \
        offsetof(rl_linear_attention_backward_problem, field)
#define SIZE(field) #field, offsetof(rl_linear_attention_backward_problem, field)

static const rl_argument backward_arguments[] = {
    INPUTS,
    {PLACE(dy), RL_OPTIONAL_INPUT, RL_GRADIENT, 4, OF_VALUES, NULL},
    {PLACE(dS_final), RL_OPTIONAL_INPUT, RL_STATE_GRADIENT, 4, OF_STATES, NULL},
    {PLACE(dq), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 4, OF_QUERIES, NULL},
    {PLACE(dk), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 4, OF_QUERIES, NULL},
    {PLACE(dv), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 4, OF_VALUES, NULL},
    {PLACE(dgate), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, OF_GATES, NULL},
    {PLACE(dbeta), RL_OPTIONAL_OUTPUT, RL_GRADIENT, 3, OF_GATES, NULL},
    {PLACE(dS_init), RL_OPTIONAL_OUTPUT, RL_STATE_GRADIENT, 4, OF_STATES, NULL},
};

static const rl_size backward_sizes[SIZES] = {SIZE_ROWS};

static const rl_signature backward_signature = {
    .name = "linear_attention_backward",
    .arguments = backward_arguments,
    .argument_count = sizeof backward_arguments / sizeof backward_arguments[0],
    .sizes = backward_sizes,
    .size_count = SIZES,
    .reserved = offsetof(rill_linear_attention_backward_args, reserved),
};

static rill_status run_backward(rill_context *context, const void *problem)
{
    return context->backend->linear_attention_backward(context, problem);
}

rill_status rill_linear_attention_backward(rill_context *context, const rill_linear_attention_backward_args *args)
{
    rl_linear_attention_backward_problem problem = {0};
    if (!context) return RILL_INVALID_NULL;
    rill_status status = rl_check(context, &backward_signature, args, &problem);
    if (status == RILL_OK) status = check_heads(context, problem.query_heads, problem.heads);
    if (status == RILL_OK) status = check_states(context, problem.heads, problem.keys, problem.values);
    if (status == RILL_OK) status = check_scale(context, args->scale, &problem.scale);
    if (status != RILL_OK) return status;
    problem.gate_is_log = args->gate_is_log;
    problem.reverse = args->reverse;
    return rl_dispatch(context, &backward_signature, args, &problem,
                       context->backend->linear_attention_backward ? run_backward : NULL);
}
