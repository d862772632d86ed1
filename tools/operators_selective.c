/* The rows of the selective operators and their gradients. */
#include "operators_rows.h"

/* clang-format off */
#define BLGN {"batch", "length", "groups", "states"}
#define SDN {"sequences", "channels", "states"}
#define PLAIN {0.0, 1.0, OP_NORMAL}

/* What both directions take, by the AT of each. */
#define SCAN_INPUTS \
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, PLAIN}, \
    {"delta", AT(delta), OP_INPUT, OP_ACTIVATION, 3, BLD, {-1.0, 0.5, OP_NORMAL}}, \
    {"A", AT(A), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, {0.0, 1.0, OP_MINUS_EXP}}, \
    {"B", AT(B), OP_INPUT, OP_ACTIVATION, 4, BLGN, PLAIN}, \
    {"C", AT(C), OP_INPUT, OP_ACTIVATION, 4, BLGN, PLAIN}, \
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, PLAIN}, \
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, PLAIN}, \
    {"delta_bias", AT(delta_bias), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, OP_NORMAL}}, \
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, PLAIN}, \
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, PLAIN}

/* What both directions take, by the AT of each. */
#define LAYER_INPUTS \
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, PLAIN}, \
    {"W_delta", AT(W_delta), OP_INPUT, OP_WEIGHT, 2, {"channels", "rank"}, PLAIN}, \
    {"W_delta_down", AT(W_delta_down), OP_OPTIONAL_INPUT, OP_WEIGHT, 2, {"rank", "channels"}, PLAIN}, \
    {"W_B", AT(W_B), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, PLAIN}, \
    {"W_C", AT(W_C), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, PLAIN}, \
    {"A_log", AT(A_log), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, PLAIN}, \
    {"b_delta", AT(b_delta), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, OP_NORMAL}}, \
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, PLAIN}, \
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, PLAIN}, \
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, PLAIN}, \
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, PLAIN}
/* clang-format on */

/* selective_scan */

#define AT(field) offsetof(rill_selective_scan_args, field)

static const op_tensor scan_tensors[] = {
    SCAN_INPUTS,
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, PLAIN},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, PLAIN},
};

static const op_option scan_options[] = {
    {"delta_softplus", AT(delta_softplus), OP_BOOL},
    {"reverse", AT(reverse), OP_BOOL},
    {"delta_min", AT(delta_min), OP_DOUBLE},
    {"delta_max", AT(delta_max), OP_DOUBLE},
};

static const op_axis_rule scan_rules[] = {SEQUENCES_ARE_ROWS};

static const op_cost scan_costs[] = {{OP_STATE_STEPS, 1.0, {"batch", "length", "channels", "states"}, NULL}};

#undef AT

static rill_status run_scan(rill_context *context, const void *args)
{
    return rill_selective_scan(context, args);
}

const op op_selective_scan = {
    .name = "selective_scan",
    .backward = &op_selective_scan_backward,
    .args_size = sizeof(rill_selective_scan_args),
    .tensors = scan_tensors,
    .tensor_count = COUNT(scan_tensors),
    .options = scan_options,
    .option_count = COUNT(scan_options),
    .run = run_scan,
    .rules = scan_rules,
    .rule_count = COUNT(scan_rules),
    .costs = scan_costs,
    .cost_count = COUNT(scan_costs),
    .overlay = {"y", "x"},
    .state = {"h_final", "h_init"},
    .problem_axes = {"batch", "length", "channels", "states"},
};

#define AT(field) offsetof(rill_selective_scan_backward_args, field)

static const op_tensor scan_backward_tensors[] = {
    SCAN_INPUTS,
    {"dy", AT(dy), OP_OPTIONAL_INPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"dh_final", AT(dh_final), OP_OPTIONAL_INPUT, OP_STATE_GRADIENT, 3, SDN, PLAIN},
    {"dx", AT(dx), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"ddelta", AT(ddelta), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"dA", AT(dA), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 2, {"channels", "states"}, PLAIN},
    {"dB", AT(dB), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 4, BLGN, PLAIN},
    {"dC", AT(dC), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 4, BLGN, PLAIN},
    {"dD", AT(dD), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 1, {"channels"}, PLAIN},
    {"dz", AT(dz), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"ddelta_bias", AT(ddelta_bias), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 1, {"channels"}, PLAIN},
    {"dh_init", AT(dh_init), OP_OPTIONAL_OUTPUT, OP_STATE_GRADIENT, 3, SDN, PLAIN},
};

static const op_option scan_backward_options[] = {
    {"delta_softplus", AT(delta_softplus), OP_BOOL},
    {"reverse", AT(reverse), OP_BOOL},
    {"delta_min", AT(delta_min), OP_DOUBLE},
    {"delta_max", AT(delta_max), OP_DOUBLE},
};

/* The states run again, and their gradients. */
static const op_cost scan_backward_costs[] = {{OP_STATE_STEPS, 2.0, {"batch", "length", "channels", "states"}, NULL}};

#undef AT

static rill_status run_scan_backward(rill_context *context, const void *args)
{
    return rill_selective_scan_backward(context, args);
}

const op op_selective_scan_backward = {
    .name = "selective_scan_backward",
    .args_size = sizeof(rill_selective_scan_backward_args),
    .tensors = scan_backward_tensors,
    .tensor_count = COUNT(scan_backward_tensors),
    .options = scan_backward_options,
    .option_count = COUNT(scan_backward_options),
    .run = run_scan_backward,
    .rules = scan_rules,
    .rule_count = COUNT(scan_rules),
    .costs = scan_backward_costs,
    .cost_count = COUNT(scan_backward_costs),
    .problem_axes = {"batch", "length", "channels", "states"},
};

/* selective_layer */

#define AT(field) offsetof(rill_selective_layer_args, field)

static const op_tensor layer_tensors[] = {
    LAYER_INPUTS,
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, PLAIN},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, PLAIN},
};

static const op_option layer_options[] = {
    {"reverse", AT(reverse), OP_BOOL},
    {"delta_min", AT(delta_min), OP_DOUBLE},
    {"delta_max", AT(delta_max), OP_DOUBLE},
};

static const op_axis_rule layer_rules[] = {SEQUENCES_ARE_ROWS, {"rank", "W_delta_down", "channels"}};

static const op_cost layer_costs[] = {
    {OP_STATE_STEPS, 1.0, {"batch", "length", "channels", "states"}, NULL},
    {OP_PRODUCT_FLOPS, 2.0, {"batch", "length", "channels", "rank"}, NULL},           /* W_delta */
    {OP_PRODUCT_FLOPS, 2.0, {"batch", "length", "channels", "rank"}, "W_delta_down"}, /* and the way down */
    {OP_PRODUCT_FLOPS, 4.0, {"batch", "length", "channels", "states"}, NULL},         /* W_B and W_C */
};

#undef AT

static rill_status run_layer(rill_context *context, const void *args)
{
    return rill_selective_layer(context, args);
}

const op op_selective_layer = {
    .name = "selective_layer",
    .backward = &op_selective_layer_backward,
    .args_size = sizeof(rill_selective_layer_args),
    .tensors = layer_tensors,
    .tensor_count = COUNT(layer_tensors),
    .options = layer_options,
    .option_count = COUNT(layer_options),
    .run = run_layer,
    .rules = layer_rules,
    .rule_count = COUNT(layer_rules),
    .costs = layer_costs,
    .cost_count = COUNT(layer_costs),
    .state = {"h_final", "h_init"},
    .problem_axes = {"batch", "length", "channels", "states"},
};

#define AT(field) offsetof(rill_selective_layer_backward_args, field)

static const op_tensor layer_backward_tensors[] = {
    LAYER_INPUTS,
    {"dy", AT(dy), OP_OPTIONAL_INPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"dh_final", AT(dh_final), OP_OPTIONAL_INPUT, OP_STATE_GRADIENT, 3, SDN, PLAIN},
    {"dx", AT(dx), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"dW_delta", AT(dW_delta), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 2, {"channels", "rank"}, PLAIN},
    {"dW_delta_down", AT(dW_delta_down), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 2, {"rank", "channels"}, PLAIN},
    {"dW_B", AT(dW_B), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 2, {"states", "channels"}, PLAIN},
    {"dW_C", AT(dW_C), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 2, {"states", "channels"}, PLAIN},
    {"dA_log", AT(dA_log), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 2, {"channels", "states"}, PLAIN},
    {"db_delta", AT(db_delta), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 1, {"channels"}, PLAIN},
    {"dD", AT(dD), OP_OPTIONAL_OUTPUT, OP_PARAMETER_GRADIENT, 1, {"channels"}, PLAIN},
    {"dz", AT(dz), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, PLAIN},
    {"dh_init", AT(dh_init), OP_OPTIONAL_OUTPUT, OP_STATE_GRADIENT, 3, SDN, PLAIN},
};

static const op_option layer_backward_options[] = {
    {"reverse", AT(reverse), OP_BOOL},
    {"delta_min", AT(delta_min), OP_DOUBLE},
    {"delta_max", AT(delta_max), OP_DOUBLE},
};

/* The projections once more, and of each the gradients of both its factors. */
static const op_cost layer_backward_costs[] = {
    {OP_STATE_STEPS, 2.0, {"batch", "length", "channels", "states"}, NULL},
    {OP_PRODUCT_FLOPS, 6.0, {"batch", "length", "channels", "rank"}, NULL},
    {OP_PRODUCT_FLOPS, 6.0, {"batch", "length", "channels", "rank"}, "W_delta_down"},
    {OP_PRODUCT_FLOPS, 12.0, {"batch", "length", "channels", "states"}, NULL},
};

#undef AT

static rill_status run_layer_backward(rill_context *context, const void *args)
{
    return rill_selective_layer_backward(context, args);
}

const op op_selective_layer_backward = {
    .name = "selective_layer_backward",
    .args_size = sizeof(rill_selective_layer_backward_args),
    .tensors = layer_backward_tensors,
    .tensor_count = COUNT(layer_backward_tensors),
    .options = layer_backward_options,
    .option_count = COUNT(layer_backward_options),
    .run = run_layer_backward,
    .rules = layer_rules,
    .rule_count = COUNT(layer_rules),
    .costs = layer_backward_costs,
    .cost_count = COUNT(layer_backward_costs),
    .problem_axes = {"batch", "length", "channels", "states"},
};
