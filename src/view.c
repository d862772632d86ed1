#include "view.h"

#include <inttypes.h>
#include <stdio.h>

#include "context.h"

const char *rl_shape_text(const rill_tensor *tensor, char *text, int size)
{
    int used = snprintf(text, (size_t)size, "[");
    for (int axis = 0; axis < tensor->rank && used < size; axis++)
        used += snprintf(text + used, (size_t)(size - used), "%s%" PRId64, axis ? ", " : "", tensor->shape[axis]);
    if (used < size) snprintf(text + used, (size_t)(size - used), "]");
    return text;
}

const char *rl_dtype_text(rill_dtype dtype, char text[RL_NAME_SIZE])
{
    if (dtype == RILL_ABSENT || rill_dtype_size(dtype) > 0) return rill_dtype_name(dtype);
    snprintf(text, RL_NAME_SIZE, "%d", (int)dtype);
    return text;
}

const char *rl_device_text(rill_device device, char text[RL_NAME_SIZE])
{
    switch (device) {
    case RILL_HOST:
        return "host";
    case RILL_CUDA:
        return "cuda";
    }
    snprintf(text, RL_NAME_SIZE, "%d", (int)device);
    return text;
}

bool rl_view_is_empty(const rill_tensor *tensor)
{
    for (int axis = 0; axis < tensor->rank; axis++)
        if (tensor->shape[axis] == 0) return true;
    return false;
}

/* Sizes of 0 or more, whose product, those of 0 left out, is below 2^63; the largest one is named when it is not. */
static rill_status check_sizes(rill_context *context, const char *name, const rill_tensor *tensor)
{
    int64_t count = 1;
    int largest = 0;
    bool overflows = false;
    for (int axis = 0; axis < tensor->rank; axis++) {
        int64_t size = tensor->shape[axis];
        if (size < 0)
            return rl_fail(context, RILL_INVALID_SHAPE, "%s: axis %d is %" PRId64 ", expected 0 or more", name, axis,
                           size);
        if (size > tensor->shape[largest]) largest = axis;
        overflows |= __builtin_mul_overflow(count, size ? size : 1, &count);
    }
    if (!overflows) return RILL_OK;
    return rl_fail(context, RILL_INVALID_SHAPE,
                   "%s: axis %d is %" PRId64 ", expected sizes whose product, zeros left out, is below 2^63", name,
                   largest, tensor->shape[largest]);
}

/* Every element's bytes must have addresses: the lowest and the highest offset stay within a signed 64-bit count. */
static rill_status check_strides(rill_context *context, const char *name, const rill_tensor *tensor)
{
    int64_t size = (int64_t)rill_dtype_size(tensor->dtype), low = 0, high = size;
    uintptr_t first, last;
    if (rl_view_is_empty(tensor)) return RILL_OK;
    for (int axis = 0; axis < tensor->rank; axis++) {
        int64_t reach;
        if (tensor->shape[axis] == 1) continue; /* its stride is never used */
        if (__builtin_mul_overflow(tensor->stride[axis], tensor->shape[axis] - 1, &reach) ||
            __builtin_mul_overflow(reach, size, &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return rl_fail(context, RILL_INVALID_STRIDE,
                           "%s: axis %d has size %" PRId64 " and stride %" PRId64
                           ", expected offsets below 2^63 bytes",
                           name, axis, tensor->shape[axis], tensor->stride[axis]);
    }
    if (!tensor->data) {
        char text[128];
        return rl_fail(context, RILL_INVALID_NULL, "%s: data is NULL, expected %s %s", name,
                       rl_shape_text(tensor, text, sizeof text), rill_dtype_name(tensor->dtype));
    }
    /* Complex numbers are moved in pieces of 8 bytes: a whole c64, a part of a c128. */
    uintptr_t data = (uintptr_t)tensor->data, align = size > 8 ? 8 : (uintptr_t)size;
    if (data % align != 0)
        return rl_fail(context, RILL_INVALID_STRIDE, "%s: data is aligned to %d bytes, expected %d", name,
                       (int)(data & -data), (int)align);
    if (__builtin_sub_overflow(data, (uintptr_t)0 - (uintptr_t)low, &first) ||
        __builtin_add_overflow(data, (uintptr_t)high, &last))
        return rl_fail(context, RILL_INVALID_STRIDE,
                       "%s: data with these strides spans %" PRId64 " to %" PRId64
                       " bytes, expected a range within the address space",
                       name, low, high);
    return RILL_OK;
}

rill_status rl_check_view(rill_context *context, const char *name, const rill_tensor *tensor)
{
    if (tensor->reserved != 0)
        return rl_fail(context, RILL_INVALID_OPTION, "%s: reserved is %d, expected 0", name, tensor->reserved);
    if (tensor->rank < 0 || tensor->rank > RILL_MAX_RANK)
        return rl_fail(context, RILL_INVALID_SHAPE, "%s: rank is %d, expected 0 to %d", name, tensor->rank,
                       RILL_MAX_RANK);
    rill_status status = check_sizes(context, name, tensor);
    return status == RILL_OK ? check_strides(context, name, tensor) : status;
}
