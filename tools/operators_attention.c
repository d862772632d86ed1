/* The rows of linear_attention and its gradients. */
#include "operators_rows.h"

/* clang-format off */
#define OF_QUERIES {"batch", "length", "query_heads", "keys"}
#define OF_VALUES {"batch", "length", "heads", "values"}
#define OF_GATES {"batch", "length", "heads"}
#define OF_STATES {"sequences", "heads", "keys", "values"}
#define PLAIN {0.0, 1.0, OP_NORMAL}
#define SMALL {0.0, 0.1, OP_NORMAL}
#define GATES {0.9, 0.05, OP_FRACTION}
#define BETAS {0.5, 0.2, OP_FRACTION}

/* What both directions take, by the AT of each. */
#define INPUTS \
    {"q", AT(q), OP_INPUT, OP_ACTIVATION, 4, OF_QUERIES, SMALL}, \
    {"k", AT(k), OP_INPUT, OP_ACTIVATION, 4, OF_QUERIES, SMALL}, \
    {"v", AT(v), OP_INPUT, OP_ACTIVATION, 4, OF_VALUES, PLAIN}, \
    {"gate", AT(gate), OP_OPTIONAL_INPUT, OP_GATE, 3, OF_GATES, GATES}, \
    {"beta", AT(beta), OP_OPTIONAL_INPUT, OP_GATE, 3, OF_GATES, BETAS}, \
    {"S_init", AT(S_init), OP_OPTIONAL_INPUT, OP_STATE, 4, OF_STATES, PLAIN}, \
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, PLAIN}
/* clang-format on */

static const op_axis_rule rules[] = {SEQUENCES_ARE_ROWS};

#define AT(field) offsetof(rill_linear_attention_args, field)

static const op_tensor tensors[] = {
    INPUTS,
    {"y", AT(y), OP_OUTPUT, OP_RESULT_F32, 4, OF_VALUES, PLAIN},
    {"S_final", AT(S_final), OP_OPTIONAL_OUTPUT, OP_STATE, 4, OF_STATES, PLAIN},
};

static const op_option options[] = {
    {"gate_is_log", AT(gate_is_log), OP_BOOL},
    {"reverse", AT(reverse), OP_BOOL},
    {"scale", AT(scale), OP_DOUBLE},
};

/* A step takes a product with the state, and one for it. */
static const op_cost costs[] = {{OP_PRODUCT_FLOPS, 4.0, {"batch", "length", "heads", "keys", "values"}, NULL}};

#undef AT

static rill_status run(rill_context *context, const void *args)
{
    return rill_linear_attention(context, args);
}

const op op_linear_attention = {
    .name = "linear_attention",
    .backward = &op_linear_attention_backward,
    .args_size = sizeof(rill_linear_attention_args),
    .tensors = tensors,
    .tensor_count = COUNT(tensors),
    .options = options,
    .option_count = COUNT(options),
    .run = run,
    .rules = rules,
    .rule_count = COUNT(rules),
    .costs = costs,
    .cost_count = COUNT(costs),
    .state = {"S_final", "S_init"},
    .logarithm = {"gate", "gate_is_log"},
    .problem_axes = {"batch", "length", "heads", "keys", "values"},
};

#define AT(field) offsetof(rill_linear_attention_backward_args, field)

static const op_tensor backward_tensors[] = {
    INPUTS,
    {"dy", AT(dy), OP_OPTIONAL_INPUT, OP_GRADIENT, 4, OF_VALUES, PLAIN},
    {"dS_final", AT(dS_final), OP_OPTIONAL_INPUT, OP_STATE_GRADIENT, 4, OF_STATES, PLAIN},
    {"dq", AT(dq), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 4, OF_QUERIES, PLAIN},
    {"dk", AT(dk), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 4, OF_QUERIES, PLAIN},
    {"dv", AT(dv), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 4, OF_VALUES, PLAIN},
    {"dgate", AT(dgate), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, OF_GATES, PLAIN},
    {"dbeta", AT(dbeta), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, OF_GATES, PLAIN},
    {"dS_init", AT(dS_init), OP_OPTIONAL_OUTPUT, OP_STATE_GRADIENT, 4, OF_STATES, PLAIN},
};

static const op_option backward_options[] = {
    {"gate_is_log", AT(gate_is_log), OP_BOOL},
    {"reverse", AT(reverse), OP_BOOL},
    {"scale", AT(scale), OP_DOUBLE},
};

/* The state and its gradient are carried, and read by dq, dk and dv. */
static const op_cost backward_costs[] = {
    {OP_PRODUCT_FLOPS, 10.0, {"batch", "length", "heads", "keys", "values"}, NULL}};

#undef AT

static rill_status run_backward(rill_context *context, const void *args)
{
    return rill_linear_attention_backward(context, args);
}

const op op_linear_attention_backward = {
    .name = "linear_attention_backward",
    .args_size = sizeof(rill_linear_attention_backward_args),
    .tensors = backward_tensors,
    .tensor_count = COUNT(backward_tensors),
    .options = backward_options,
    .option_count = COUNT(backward_options),
    .run = run_backward,
    .rules = rules,
    .rule_count = COUNT(rules),
    .costs = backward_costs,
    .cost_count = COUNT(backward_costs),
    .logarithm = {"gate", "gate_is_log"},
    .problem_axes = {"batch", "length", "heads", "keys", "values"},
};
