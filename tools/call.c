#include "call.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* All bits set is a NaN in every type. */
static void *poisoned(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) != 0) return NULL;
    memset(memory, 0xff, bytes);
    return memory;
}

static bool add_output(call *made, int row, const op_sizes *sizes, rill_dtype activations, bool wide)
{
    const op_tensor *tensor = &made->operation->tensors[row];
    rill_dtype dtype = wide ? op_wide_type(activations) : op_default_type(tensor->kind, activations);
    int64_t shape[RILL_MAX_RANK];
    size_t bytes = rill_dtype_size(dtype);
    bool empty = false;
    for (int axis = 0; axis < tensor->rank; axis++) {
        shape[axis] = op_size(sizes, tensor->axes[axis]);
        empty = empty || shape[axis] <= 0;
    }
    for (int axis = 0; axis < tensor->rank && !empty; axis++)
        if (__builtin_mul_overflow(bytes, (size_t)shape[axis], &bytes)) return false;
    made->memory[row] = poisoned(empty ? 0 : bytes);
    if (!made->memory[row]) return false;
    rill_tensor view = rill_tensor_view(RILL_HOST, made->memory[row], dtype, tensor->rank, shape, NULL);
    *op_args_tensor(tensor, made->args) = view;
    return true;
}

bool call_open(call *made, const op *operation, const void *inputs, const op_sizes *sizes, rill_dtype activations,
               bool wide, failure *why)
{
    *made = (call){.operation = operation, .args = malloc(operation->args_size)};
    bool good = made->args != NULL;
    if (good) memcpy(made->args, inputs, operation->args_size);
    for (int row = 0; good && row < operation->tensor_count; row++) {
        const op_tensor *tensor = &operation->tensors[row];
        if (op_is_output(tensor) && op_output_possible(operation, tensor, inputs))
            good = add_output(made, row, sizes, activations, wide);
    }
    if (good) return true;
    call_close(made);
    return failure_set(why, "out of memory for the outputs");
}

void call_close(call *made)
{
    for (int row = 0; row < OP_MAX_TENSORS; row++) free(made->memory[row]);
    free(made->args);
    *made = (call){0};
}

bool call_run(const call *made, rill_context *context, failure *why)
{
    rill_status status = made->operation->run(context, made->args);
    if (status == RILL_OK) status = rill_synchronize(context);
    if (status == RILL_OK) return true;
    const char *message = rill_last_error(context);
    return failure_set(why, "%s (%s)", *message ? message : "failed", rill_status_name(status));
}
