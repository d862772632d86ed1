#include "casefile_check.h"

#include <inttypes.h>

/* A call's outputs may be larger than its file, through broadcasts, but not without limit. */
enum { OUTPUT_FACTOR = 64, OUTPUT_ALLOWANCE = 256 << 20 };

/* Adds the bytes of an operator's outputs in their widest form; false for more than 2^62. */
static bool add_output_bytes(const op *row, const op_sizes *sizes, int64_t *total)
{
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        if (!op_is_output(tensor)) continue;
        int64_t bytes = 16;
        bool empty = false, over = false;
        for (int axis = 0; axis < tensor->rank; axis++) {
            int64_t size = op_size(sizes, tensor->axes[axis]);
            if (size == 0) empty = true;
            if (size > 0) over |= __builtin_mul_overflow(bytes, size, &bytes);
        }
        if (empty) continue;
        if (over || __builtin_add_overflow(*total, bytes, total) || *total > INT64_MAX / 2) return false;
    }
    return true;
}

static bool check_given(const casefile *read, failure *why)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++)
        if (row->tensors[i].role == OP_INPUT && !op_args_given(row, row->tensors[i].name, read->args))
            return failure_set(why, "tensor '%s' of %s is missing", row->tensors[i].name, row->name);
    int64_t bytes = 0;
    bool good = add_output_bytes(row, &read->sizes, &bytes);
    if (read->gradient_args) good = good && add_output_bytes(row->backward, &read->sizes, &bytes);
    if (!good || (uint64_t)bytes > (uint64_t)read->file.bytes * OUTPUT_FACTOR + OUTPUT_ALLOWANCE)
        return failure_set(why, "the outputs would take far more memory than the file");
    return true;
}

/* Expected values are real or complex as the activations are, and of exactly this shape. */
static bool check_view(const casefile *read, const op_tensor *tensor, const rill_tensor *view, const int64_t *shape,
                       failure *why)
{
    const char *name = tensor->name;
    bool complex_numbers = op_type_is_complex(read->activations);
    if (view->dtype == RILL_I64 || op_type_is_complex(view->dtype) != complex_numbers)
        return failure_set(why, "expect.%s: type %s is not %s", name, rill_dtype_name(view->dtype),
                           complex_numbers ? "complex" : "real");
    if (view->rank != tensor->rank)
        return failure_set(why, "expect.%s: rank %d, expected %d", name, (int)view->rank, tensor->rank);
    for (int axis = 0; axis < tensor->rank; axis++)
        if (view->shape[axis] != shape[axis])
            return failure_set(why, "expect.%s: axis %d is %" PRId64 ", expected %" PRId64 " (%s)", name, axis,
                               view->shape[axis], shape[axis], tensor->axes[axis]);
    return true;
}

static bool check_outputs(const casefile *read, failure *why)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        const rill_tensor *view = op_is_output(tensor) ? casefile_expected(read, tensor->name) : NULL;
        if (!view) continue;
        if (!op_output_possible(row, tensor, read->args))
            return failure_set(why, "expect.%s: the file has no '%s'", tensor->name, tensor->name + 1);
        int64_t shape[RILL_MAX_RANK];
        for (int axis = 0; axis < tensor->rank; axis++) shape[axis] = op_size(&read->sizes, tensor->axes[axis]);
        if (!check_view(read, tensor, view, shape, why)) return false;
    }
    return true;
}

/* The gradient of an input has the input's shape as it is stored. */
static bool check_gradients(const casefile *read, failure *why)
{
    const op *row = read->gradient_args ? read->operation->backward : NULL;
    for (int i = 0; row && i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        const rill_tensor *view = op_is_output(tensor) ? casefile_expected(read, tensor->name) : NULL;
        if (!view) continue;
        const stored_tensor *input = safetensors_find(&read->file, tensor->name + 1);
        if (!input) return failure_set(why, "expect.%s: the file has no '%s'", tensor->name, tensor->name + 1);
        if (input->view.rank == tensor->rank && !check_view(read, tensor, view, input->view.shape, why)) return false;
    }
    return true;
}

bool casefile_check(const casefile *read, failure *why)
{
    return check_given(read, why) && check_outputs(read, why) && check_gradients(read, why);
}
