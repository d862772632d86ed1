#include "casefile.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "casefile_check.h"

static bool read_operation(casefile *read, failure *why)
{
    const char *name = safetensors_metadata(&read->file, "op");
    if (!name) return failure_set(why, "metadata 'op' is missing: not a case file");
    read->operation = op_find(name);
    if (!read->operation) return failure_set(why, "metadata 'op': operator '%.64s' is not known", name);

    const char *type = safetensors_metadata(&read->file, "dtype");
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16, RILL_C64, RILL_C128};
    if (!type) return failure_set(why, "metadata 'dtype' is missing");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(rill_dtype_name(types[i]), type) == 0) read->activations = types[i];
    if (read->activations == RILL_ABSENT)
        return failure_set(why, "metadata 'dtype': '%.16s' is none of f64, f32, bf16, f16, c64, c128", type);
    read->args = calloc(1, read->operation->args_size);
    return read->args ? true : failure_set(why, "out of memory");
}

static bool set_option(casefile *read, const char *name, const json_t *value, failure *why)
{
    const op_option *option = op_option_find(read->operation, name);
    if (!option) return failure_set(why, "options: '%.64s' is not an option of %s", name, read->operation->name);
    void *field = (char *)read->args + option->offset;
    if (option->type == OP_BOOL) {
        if (!json_is_boolean(value)) return failure_set(why, "options: '%s' is not true or false", name);
        *(bool *)field = json_is_true(value);
        return true;
    }
    if (!json_is_number(value)) return failure_set(why, "options: '%s' is not a number", name);
    *(double *)field = json_number_value(value);
    return true;
}

static bool read_options(casefile *read, failure *why)
{
    const char *text = safetensors_metadata(&read->file, "options"), *name;
    read->options = text ? text : "{}";
    if (!text) return true;
    json_error_t error;
    json_t *options = json_loads(text, JSON_REJECT_DUPLICATES, &error), *value;
    if (!options) return failure_set(why, "metadata 'options': bad JSON: %s", error.text);
    bool good = json_is_object(options) ? true : failure_set(why, "metadata 'options' is not a JSON object");
    if (good) {
        json_object_foreach(options, name, value)
        {
            if (good) good = set_option(read, name, value, why);
        }
    }
    json_decref(options);
    return good;
}

/* A complex number is aligned to 8 bytes, its parts in the file perhaps only to 4. */
static bool align_pairs(stored_tensor *tensor, failure *why)
{
    size_t bytes = 8;
    if ((uintptr_t)tensor->view.data % bytes == 0) return true;
    for (int axis = 0; axis < tensor->view.rank; axis++) bytes *= (size_t)tensor->view.shape[axis];
    tensor->copy = malloc(bytes ? bytes : 1);
    if (!tensor->copy) return failure_set(why, "out of memory");
    memcpy(tensor->copy, tensor->view.data, bytes);
    tensor->view.data = tensor->copy;
    return true;
}

/* Turns a real tensor with a last axis of 2 into a complex one. */
static bool make_complex(stored_tensor *tensor, failure *why)
{
    rill_tensor *view = &tensor->view;
    bool single = view->dtype == RILL_F32;
    if ((!single && view->dtype != RILL_F64) || view->rank < 1 || view->shape[view->rank - 1] != 2)
        return failure_set(why, "tensor '%.64s': complex needs F32 or F64 and a last axis of 2", tensor->name);
    view->dtype = single ? RILL_C64 : RILL_C128;
    view->rank--;
    for (int axis = 0; axis < view->rank; axis++) view->stride[axis] /= 2;
    return !single || align_pairs(tensor, why);
}

static bool read_complex(casefile *read, failure *why)
{
    const char *names = safetensors_metadata(&read->file, "complex");
    while (names && *names) {
        size_t length = strcspn(names, ",");
        stored_tensor *found = NULL;
        for (size_t i = 0; i < read->file.count && !found; i++) {
            stored_tensor *tensor = &read->file.tensors[i];
            if (strncmp(tensor->name, names, length) == 0 && tensor->name[length] == '\0') found = tensor;
        }
        if (!found)
            return failure_set(why, "metadata 'complex': there is no tensor '%.*s'", (int)(length < 64 ? length : 64),
                               names);
        if (!make_complex(found, why)) return false;
        names += length + (names[length] == ',');
    }
    return true;
}

/* Whether a stored name is the gradient of an output ("dOUTPUT"): one that comes from above. */
static bool is_upstream_name(const op *row, const char *name)
{
    const op_tensor *of = name[0] == 'd' ? op_tensor_find(row, name + 1) : NULL;
    return of && op_is_output(of);
}

/* Whether a stored name is the right gradient of an input ("expect.dNAME"); gradients have none of their own. */
static bool is_expected_gradient(const casefile *read, const char *stored_name)
{
    const op *row = read->operation;
    if (!row->backward || strncmp(stored_name, "expect.d", 8) != 0 || op_tensor_find(row, stored_name + 7))
        return false;
    const op_tensor *gradient = op_tensor_find(row->backward, stored_name + 7);
    return gradient && op_is_output(gradient);
}

/* Takes a stored tensor to where it belongs; a name that belongs nowhere is an error, for it may be a slip. */
static bool place(casefile *read, const stored_tensor *stored, failure *why)
{
    const op *row = read->operation;
    const op_tensor *tensor = op_tensor_find(row, stored->name);
    if (tensor && !op_is_output(tensor)) {
        *op_args_tensor(tensor, read->args) = stored->view;
        if (tensor->kind == OP_ACTIVATION && stored->view.dtype != read->activations)
            return failure_set(why, "tensor '%s': type %s, but metadata 'dtype' is %s", stored->name,
                               rill_dtype_name(stored->view.dtype), rill_dtype_name(read->activations));
        return true;
    }
    bool expected = strncmp(stored->name, "expect.", 7) == 0;
    const op_tensor *output = expected ? op_tensor_find(row, stored->name + 7) : NULL;
    if ((output && op_is_output(output)) || is_expected_gradient(read, stored->name)) return true;
    if (!expected && is_upstream_name(row, stored->name)) return true;
    return failure_set(why, "tensor '%.64s' belongs to nothing in %s", stored->name, row->name);
}

/* The first size other than 1 that a tensor gives an axis; who disagrees is for the library to say. */
static void take_sizes(casefile *read)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        const rill_tensor *view = op_args_tensor(tensor, read->args);
        if (view->dtype == RILL_ABSENT || view->rank != tensor->rank) continue;
        for (int axis = 0; axis < tensor->rank; axis++) {
            int64_t size = view->shape[axis];
            if (tensor->kind == OP_OFFSETS)
                op_size_set(&read->sizes, "sequences", size > 0 ? size - 1 : 0);
            else if (op_size(&read->sizes, tensor->axes[axis]) < 0 && size != 1)
                op_size_set(&read->sizes, tensor->axes[axis], size);
        }
    }
    op_sizes_complete(&read->sizes, row, read->args);
}

/* Stretches axes of size 1 over an args struct's whole sizes. */
static void broadcast(const op *row, void *args, const op_sizes *sizes)
{
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        rill_tensor *view = op_args_tensor(tensor, args);
        if (view->dtype == RILL_ABSENT || view->rank != tensor->rank || tensor->kind == OP_OFFSETS) continue;
        for (int axis = 0; axis < tensor->rank; axis++) {
            if (view->shape[axis] != 1) continue;
            view->shape[axis] = op_size(sizes, tensor->axes[axis]);
            if (view->shape[axis] != 1) view->stride[axis] = 0;
        }
    }
}

static bool wants_gradients(const casefile *read)
{
    for (size_t i = 0; i < read->file.count; i++) {
        const char *name = read->file.tensors[i].name;
        if (is_upstream_name(read->operation, name) || is_expected_gradient(read, name)) return true;
    }
    return false;
}

static void copy_options(const op *to, void *to_args, const op *from, const void *from_args)
{
    for (int i = 0; i < to->option_count; i++) {
        const op_option *option = &to->options[i], *same = op_option_find(from, option->name);
        size_t size = option->type == OP_BOOL ? sizeof(bool) : sizeof(double);
        if (same) memcpy((char *)to_args + option->offset, (const char *)from_args + same->offset, size);
    }
}

/* The gradients' operator gets the inputs and options that it shares with the forward one, and what comes from above.
 */
static bool open_gradients(casefile *read, failure *why)
{
    const op *forward = read->operation, *row = forward->backward;
    if (!row || !wants_gradients(read)) return true;
    read->gradient_args = calloc(1, row->args_size);
    if (!read->gradient_args) return failure_set(why, "out of memory");
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i], *same = op_tensor_find(forward, tensor->name);
        const stored_tensor *stored = safetensors_find(&read->file, tensor->name);
        if (same && !op_is_output(same))
            *op_args_tensor(tensor, read->gradient_args) = *op_args_tensor(same, read->args);
        else if (stored && !op_is_output(tensor))
            *op_args_tensor(tensor, read->gradient_args) = stored->view;
    }
    copy_options(row, read->gradient_args, forward, read->args);
    broadcast(row, read->gradient_args, &read->sizes);
    return true;
}

static bool interpret(casefile *read, failure *why)
{
    if (!read_operation(read, why) || !read_options(read, why) || !read_complex(read, why)) return false;
    for (size_t i = 0; i < read->file.count; i++)
        if (!place(read, &read->file.tensors[i], why)) return false;
    take_sizes(read);
    broadcast(read->operation, read->args, &read->sizes);
    return open_gradients(read, why) && casefile_check(read, why);
}

bool casefile_read(const char *path, casefile *read, failure *why)
{
    *read = (casefile){0};
    if (!safetensors_read(path, &read->file, why)) return false;
    if (interpret(read, why)) return true;
    casefile_close(read);
    return false;
}

void casefile_close(casefile *read)
{
    free(read->args);
    free(read->gradient_args);
    safetensors_close(&read->file);
    *read = (casefile){0};
}

const rill_tensor *casefile_expected(const casefile *read, const char *name)
{
    for (size_t i = 0; i < read->file.count; i++) {
        const stored_tensor *stored = &read->file.tensors[i];
        if (strncmp(stored->name, "expect.", 7) == 0 && strcmp(stored->name + 7, name) == 0) return &stored->view;
    }
    return NULL;
}

/* No operator has a complex tensor of RILL_MAX_RANK axes. */
rill_tensor casefile_stored_view(const rill_tensor *view)
{
    if (!op_type_is_complex(view->dtype) || view->rank == RILL_MAX_RANK) return *view;
    int64_t shape[RILL_MAX_RANK];
    for (int axis = 0; axis < view->rank; axis++) shape[axis] = view->shape[axis];
    shape[view->rank] = 2;
    rill_dtype part = view->dtype == RILL_C64 ? RILL_F32 : RILL_F64;
    return rill_tensor_view(view->device, view->data, part, view->rank + 1, shape, NULL);
}
