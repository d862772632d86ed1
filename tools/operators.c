/* The table of operators, and the look-ups in it. */
#include "operators_rows.h"

#include <string.h>

const op *const op_table[] = {&op_scan,
                              &op_scan_backward,
                              &op_selective_scan,
                              &op_selective_scan_backward,
                              &op_selective_layer,
                              &op_selective_layer_backward,
                              &op_linear_attention,
                              &op_linear_attention_backward,
                              NULL};

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

int op_tensor_axis(const op_tensor *tensor, const char *axis)
{
    for (int k = 0; k < tensor->rank; k++)
        if (strcmp(tensor->axes[k], axis) == 0) return k;
    return -1;
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

bool op_is_backward(const op *row)
{
    for (const op *const *entry = op_table; *entry; entry++)
        if ((*entry)->backward == row) return true;
    return false;
}

bool op_output_possible(const op *row, const op_tensor *output, const void *args)
{
    const op_tensor *of = output->name[0] == 'd' ? op_tensor_find(row, output->name + 1) : NULL;
    return !of || op_is_output(of) || op_args_given(row, of->name, args);
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
    case OP_GRADIENT:
    case OP_WEIGHT:
    case OP_GATE:
    case OP_RESULT_F32:
        return activations;
    case OP_OFFSETS:
        return RILL_I64;
    case OP_PARAMETER:
    case OP_PARAMETER_GRADIENT:
    case OP_STATE:
    case OP_STATE_GRADIENT:
        break;
    }
    return half ? RILL_F32 : activations;
}

bool op_type_is_complex(rill_dtype dtype)
{
    return dtype == RILL_C64 || dtype == RILL_C128;
}

rill_dtype op_wide_type(rill_dtype activations)
{
    return op_type_is_complex(activations) ? RILL_C128 : RILL_F64;
}
