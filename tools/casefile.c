#include "casefile.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A call's outputs may be larger than its file, through broadcasts, but not without limit. */
enum { OUTPUT_FACTOR = 64, OUTPUT_ALLOWANCE = 256 << 20 };

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
    return true;
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

static bool is_gradient_name(const op *row, const char *name, bool outputs_only)
{
    if (name[0] != 'd') return false;
    const op_tensor *of = op_tensor_find(row, name + 1);
    return of && (!outputs_only || op_is_output(of));
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
    if (strncmp(stored->name, "expect.", 7) == 0) {
        const char *name = stored->name + 7;
        const op_tensor *of = op_tensor_find(row, name);
        if ((of && op_is_output(of)) || is_gradient_name(row, name, false)) return true;
    } else if (is_gradient_name(row, stored->name, true)) {
        return true;
    }
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

static void broadcast(casefile *read)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        rill_tensor *view = op_args_tensor(tensor, read->args);
        if (view->dtype == RILL_ABSENT || view->rank != tensor->rank || tensor->kind == OP_OFFSETS) continue;
        for (int axis = 0; axis < tensor->rank; axis++) {
            if (view->shape[axis] != 1) continue;
            view->shape[axis] = op_size(&read->sizes, tensor->axes[axis]);
            if (view->shape[axis] != 1) view->stride[axis] = 0;
        }
    }
}

/* Bytes of all outputs in their widest form; -1 for more than 2^62. */
static int64_t output_bytes(const casefile *read)
{
    const op *row = read->operation;
    int64_t total = 0;
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        if (!op_is_output(tensor)) continue;
        int64_t bytes = 16;
        bool empty = false, over = false;
        for (int axis = 0; axis < tensor->rank; axis++) {
            int64_t size = op_size(&read->sizes, tensor->axes[axis]);
            if (size == 0) empty = true;
            if (size > 0) over |= __builtin_mul_overflow(bytes, size, &bytes);
        }
        if (empty) continue;
        if (over || __builtin_add_overflow(total, bytes, &total) || total > INT64_MAX / 2) return -1;
    }
    return total;
}

static bool check_given(const casefile *read, failure *why)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++)
        if (row->tensors[i].role == OP_INPUT && !op_args_given(row, row->tensors[i].name, read->args))
            return failure_set(why, "tensor '%s' of %s is missing", row->tensors[i].name, row->name);
    int64_t bytes = output_bytes(read);
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)read->file.bytes * OUTPUT_FACTOR + OUTPUT_ALLOWANCE)
        return failure_set(why, "the outputs would take far more memory than the file");
    return true;
}

/* Expected outputs have exactly the outputs' shapes. */
static bool check_expected(const casefile *read, failure *why)
{
    const op *row = read->operation;
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *tensor = &row->tensors[i];
        const rill_tensor *view = op_is_output(tensor) ? casefile_expected(read, tensor->name) : NULL;
        if (!view) continue;
        if (view->dtype == RILL_I64 || view->dtype == RILL_C64 || view->dtype == RILL_C128)
            return failure_set(why, "expect.%s: type %s is not real", tensor->name, rill_dtype_name(view->dtype));
        if (view->rank != tensor->rank)
            return failure_set(why, "expect.%s: rank %d, expected %d", tensor->name, (int)view->rank, tensor->rank);
        for (int axis = 0; axis < tensor->rank; axis++) {
            int64_t size = op_size(&read->sizes, tensor->axes[axis]);
            if (view->shape[axis] != size)
                return failure_set(why, "expect.%s: axis %d is %" PRId64 ", expected %" PRId64 " (%s)", tensor->name,
                                   axis, view->shape[axis], size, tensor->axes[axis]);
        }
    }
    return true;
}

static bool interpret(casefile *read, failure *why)
{
    if (!read_operation(read, why) || !read_options(read, why) || !read_complex(read, why)) return false;
    for (size_t i = 0; i < read->file.count; i++)
        if (!place(read, &read->file.tensors[i], why)) return false;
    take_sizes(read);
    broadcast(read);
    return check_given(read, why) && check_expected(read, why);
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
    safetensors_close(&read->file);
    *read = (casefile){0};
}

const rill_tensor *casefile_expected(const casefile *read, const char *output)
{
    for (size_t i = 0; i < read->file.count; i++) {
        const stored_tensor *stored = &read->file.tensors[i];
        if (strncmp(stored->name, "expect.", 7) == 0 && strcmp(stored->name + 7, output) == 0) return &stored->view;
    }
    return NULL;
}

bool casefile_is_expected_gradient(const casefile *read, const char *stored_name)
{
    if (strncmp(stored_name, "expect.", 7) != 0 || op_tensor_find(read->operation, stored_name + 7)) return false;
    return is_gradient_name(read->operation, stored_name + 7, false);
}
