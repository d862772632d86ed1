/* The rows of scan and its gradients. */
#include "operators_rows.h"

/* clang-format off */
#define SD {"sequences", "channels"}
#define DECAYS {0.8, 0.15, OP_FRACTION}
/* clang-format on */

static const op_axis_rule rules[] = {SEQUENCES_ARE_ROWS};

#define AT(field) offsetof(rill_scan_args, field)

static const op_tensor tensors[] = {
    {"a", AT(a), OP_INPUT, OP_ACTIVATION, 3, BLD, DECAYS},
    {"b", AT(b), OP_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 2, SD, {0.0, 1.0, OP_NORMAL}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, OP_NORMAL}},
    {"h", AT(h), OP_OUTPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 2, SD, {0.0, 1.0, OP_NORMAL}},
};

static const op_option options[] = {{"reverse", AT(reverse), OP_BOOL}};

#undef AT

static rill_status run(rill_context *context, const void *args)
{
    return rill_scan(context, args);
}

const op op_scan = {
    .name = "scan",
    .takes_complex = true,
    .backward = &op_scan_backward,
    .args_size = sizeof(rill_scan_args),
    .tensors = tensors,
    .tensor_count = COUNT(tensors),
    .options = options,
    .option_count = COUNT(options),
    .run = run,
    .rules = rules,
    .rule_count = COUNT(rules),
    .overlay = {"h", "b"},
    .state = {"h_final", "h_init"},
    .problem_axes = {"batch", "length", "channels"},
};

#define AT(field) offsetof(rill_scan_backward_args, field)

static const op_tensor backward_tensors[] = {
    {"a", AT(a), OP_INPUT, OP_ACTIVATION, 3, BLD, DECAYS},
    {"h", AT(h), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 2, SD, {0.0, 1.0, OP_NORMAL}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, OP_NORMAL}},
    {"dh", AT(dh), OP_OPTIONAL_INPUT, OP_GRADIENT, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"dh_final", AT(dh_final), OP_OPTIONAL_INPUT, OP_STATE_GRADIENT, 2, SD, {0.0, 1.0, OP_NORMAL}},
    {"da", AT(da), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"db", AT(db), OP_OPTIONAL_OUTPUT, OP_GRADIENT, 3, BLD, {0.0, 1.0, OP_NORMAL}},
    {"dh_init", AT(dh_init), OP_OPTIONAL_OUTPUT, OP_STATE_GRADIENT, 2, SD, {0.0, 1.0, OP_NORMAL}},
};

static const op_option backward_options[] = {{"reverse", AT(reverse), OP_BOOL}};

#undef AT

static rill_status run_backward(rill_context *context, const void *args)
{
    return rill_scan_backward(context, args);
}

const op op_scan_backward = {
    .name = "scan_backward",
    .takes_complex = true,
    .args_size = sizeof(rill_scan_backward_args),
    .tensors = backward_tensors,
    .tensor_count = COUNT(backward_tensors),
    .options = backward_options,
    .option_count = COUNT(backward_options),
    .run = run_backward,
    .rules = rules,
    .rule_count = COUNT(rules),
    .problem_axes = {"batch", "length", "channels"},
};
