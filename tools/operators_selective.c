/* The rows of the selective operators. */
#include "operators_rows.h"

/* clang-format off */
#define BLGN {"batch", "length", "groups", "states"}
#define SDN {"sequences", "channels", "states"}
/* clang-format on */

/* selective_scan */

#define AT(field) offsetof(rill_selective_scan_args, field)

static const op_tensor scan_tensors[] = {
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"delta", AT(delta), OP_INPUT, OP_ACTIVATION, 3, BLD, {-1.0, 0.5, OP_NORMAL}},
    {"A", AT(A), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, {0.0, 1.0, OP_MINUS_EXP}},
    {"B", AT(B), OP_INPUT, OP_ACTIVATION, 4, BLGN, {0.0, 1.0, OP_NORMAL}},
    {"C", AT(C), OP_INPUT, OP_ACTIVATION, 4, BLGN, {0.0, 1.0, OP_NORMAL}},
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 1.0, OP_NORMAL}},
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"delta_bias", AT(delta_bias), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, OP_NORMAL}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, {0.0, 1.0, OP_NORMAL}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, OP_NORMAL}},
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, {0.0, 1.0, OP_NORMAL}},
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

/* selective_layer */

#define AT(field) offsetof(rill_selective_layer_args, field)

static const op_tensor layer_tensors[] = {
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"W_delta", AT(W_delta), OP_INPUT, OP_WEIGHT, 2, {"channels", "rank"}, {0.0, 1.0, OP_NORMAL}},
    {"W_delta_down", AT(W_delta_down), OP_OPTIONAL_INPUT, OP_WEIGHT, 2, {"rank", "channels"}, {0.0, 1.0, OP_NORMAL}},
    {"W_B", AT(W_B), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, {0.0, 1.0, OP_NORMAL}},
    {"W_C", AT(W_C), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, {0.0, 1.0, OP_NORMAL}},
    {"A_log", AT(A_log), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, {0.0, 1.0, OP_NORMAL}},
    {"b_delta", AT(b_delta), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, OP_NORMAL}},
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 1.0, OP_NORMAL}},
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, {0.0, 1.0, OP_NORMAL}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, OP_NORMAL}},
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, {0.0, 1.0, OP_NORMAL}},
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
