/* The rows of the operator table, and the look-ups in it. */
#include "operators.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Shapes and the rule that recur.  A macro, because C has no constant arrays inside initialisers. */
/* clang-format off */
#define BLD {"batch", "length", "channels"}
#define BLGN {"batch", "length", "groups", "states"}
#define SDN {"sequences", "channels", "states"}
#define SEQUENCES_ARE_ROWS {"sequences", "offsets", "batch"}
/* clang-format on */

/* selective_scan */

#define AT(field) offsetof(rill_selective_scan_args, field)

static const op_tensor scan_tensors[] = {
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"delta", AT(delta), OP_INPUT, OP_ACTIVATION, 3, BLD, {-1.0, 0.5, false}},
    {"A", AT(A), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, {0.0, 1.0, true}},
    {"B", AT(B), OP_INPUT, OP_ACTIVATION, 4, BLGN, {0.0, 1.0, false}},
    {"C", AT(C), OP_INPUT, OP_ACTIVATION, 4, BLGN, {0.0, 1.0, false}},
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 1.0, false}},
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"delta_bias", AT(delta_bias), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, false}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, {0.0, 1.0, false}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, false}},
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, {0.0, 1.0, false}},
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

static const op selective_scan = {
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
    .problem_axes = {"batch", "length", "channels", "states"},
};

/* selective_layer */

#define AT(field) offsetof(rill_selective_layer_args, field)

static const op_tensor layer_tensors[] = {
    {"x", AT(x), OP_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"W_delta", AT(W_delta), OP_INPUT, OP_WEIGHT, 2, {"channels", "rank"}, {0.0, 1.0, false}},
    {"W_delta_down", AT(W_delta_down), OP_OPTIONAL_INPUT, OP_WEIGHT, 2, {"rank", "channels"}, {0.0, 1.0, false}},
    {"W_B", AT(W_B), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, {0.0, 1.0, false}},
    {"W_C", AT(W_C), OP_INPUT, OP_WEIGHT, 2, {"states", "channels"}, {0.0, 1.0, false}},
    {"A_log", AT(A_log), OP_INPUT, OP_PARAMETER, 2, {"channels", "states"}, {0.0, 1.0, false}},
    {"b_delta", AT(b_delta), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 0.1, false}},
    {"D", AT(D), OP_OPTIONAL_INPUT, OP_PARAMETER, 1, {"channels"}, {0.0, 1.0, false}},
    {"z", AT(z), OP_OPTIONAL_INPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"h_init", AT(h_init), OP_OPTIONAL_INPUT, OP_STATE, 3, SDN, {0.0, 1.0, false}},
    {"offsets", AT(offsets), OP_OPTIONAL_INPUT, OP_OFFSETS, 1, {"sequences+1"}, {0.0, 1.0, false}},
    {"y", AT(y), OP_OUTPUT, OP_ACTIVATION, 3, BLD, {0.0, 1.0, false}},
    {"h_final", AT(h_final), OP_OPTIONAL_OUTPUT, OP_STATE, 3, SDN, {0.0, 1.0, false}},
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

static const op selective_layer = {
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
    .problem_axes = {"batch", "length", "channels", "states"},
};

const op *const op_table[] = {&selective_scan, &selective_layer, NULL};

const op *op_find(const char *name)
{
    for (const op *const *entry = op_table; *entry; entry++)
        if (strcmp((*entry)->name, name) == 0) return *entry;
    return NULL;
}

const op_tensor *op_tensor_find(const op *row, const char *name)
{
    for (int i = 0; i < row->tensor_count; i++)
        if (strcmp(row->tensors[i].name, name) == 0) return &row->tensors[i];
    return NULL;
}

const op_option *op_option_find(const op *row, const char *name)
{
    for (int i = 0; i < row->option_count; i++)
        if (strcmp(row->options[i].name, name) == 0) return &row->options[i];
    return NULL;
}

bool op_is_output(const op_tensor *tensor)
{
    return tensor->role == OP_OUTPUT || tensor->role == OP_OPTIONAL_OUTPUT;
}

rill_tensor *op_args_tensor(const op_tensor *tensor, void *args)
{
    return (rill_tensor *)((char *)args + tensor->offset);
}

bool op_args_given(const op *row, const char *name, const void *args)
{
    const op_tensor *tensor = op_tensor_find(row, name);
    return tensor && ((const rill_tensor *)((const char *)args + tensor->offset))->dtype != RILL_ABSENT;
}

/* The axis' name without a trailing "+1", and what that adds. */
static size_t base_length(const char *axis, int64_t *plus)
{
    size_t length = strlen(axis);
    *plus = length > 2 && strcmp(axis + length - 2, "+1") == 0;
    return *plus ? length - 2 : length;
}

int64_t op_size(const op_sizes *sizes, const char *axis)
{
    int64_t plus;
    size_t length = base_length(axis, &plus);
    for (int i = 0; i < sizes->count; i++)
        if (strncmp(sizes->axis[i], axis, length) == 0 && sizes->axis[i][length] == '\0')
            return sizes->size[i] + plus;
    return -1;
}

void op_size_set(op_sizes *sizes, const char *axis, int64_t size)
{
    for (int i = 0; i < sizes->count; i++) {
        if (strcmp(sizes->axis[i], axis) == 0) {
            sizes->size[i] = size;
            return;
        }
    }
    if (sizes->count == OP_MAX_AXES) return;
    sizes->axis[sizes->count] = axis;
    sizes->size[sizes->count++] = size;
}

void op_sizes_complete(op_sizes *sizes, const op *row, const void *args)
{
    for (int i = 0; i < row->rule_count; i++) {
        const op_axis_rule *rule = &row->rules[i];
        if (op_args_given(row, rule->unless, args)) continue;
        int64_t size = op_size(sizes, rule->same_as);
        op_size_set(sizes, rule->axis, size < 0 ? 1 : size);
    }
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        for (int axis = 0; axis < tensor->rank; axis++) {
            int64_t plus;
            base_length(tensor->axes[axis], &plus);
            if (!plus && op_size(sizes, tensor->axes[axis]) < 0) op_size_set(sizes, tensor->axes[axis], 1);
        }
    }
}

rill_dtype op_default_type(op_kind kind, rill_dtype activations)
{
    bool half = activations == RILL_BF16 || activations == RILL_F16;
    switch (kind) {
    case OP_ACTIVATION:
    case OP_WEIGHT:
        return activations;
    case OP_OFFSETS:
        return RILL_I64;
    case OP_PARAMETER:
    case OP_STATE:
        break;
    }
    return half ? RILL_F32 : activations;
}
