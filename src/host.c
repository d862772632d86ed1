#include "host.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"

rill_status rl_host_alloc(rill_context *context, size_t bytes, void **memory)
{
    /* No object is larger than PTRDIFF_MAX; checkers of memory take such a request for a fault. */
    if (bytes <= PTRDIFF_MAX && posix_memalign(memory, 256, bytes) == 0) return RILL_OK;
    *memory = NULL;
    return rl_fail(context, RILL_OUT_OF_MEMORY, "no host memory for %zu bytes", bytes);
}

void rl_host_free(rill_context *context, void *memory)
{
    (void)context;
    free(memory);
}

/* Axis by axis; the last one copies as one block where both sides are contiguous along it. */
static void copy_axis(char *to, const char *from, int axis, const rill_tensor *destination, const rill_tensor *source)
{
    int64_t size = (int64_t)rill_dtype_size(source->dtype);
    if (axis == source->rank) {
        memcpy(to, from, (size_t)size);
        return;
    }
    int64_t to_stride = destination->stride[axis], from_stride = source->stride[axis];
    if (axis == source->rank - 1 && to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)(source->shape[axis] * size));
        return;
    }
    for (int64_t i = 0; i < source->shape[axis]; i++)
        copy_axis(to + i * to_stride * size, from + i * from_stride * size, axis + 1, destination, source);
}

rill_status rl_host_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    (void)context;
    copy_axis(destination->data, source->data, 0, destination, source);
    return RILL_OK;
}

rill_status rl_host_synchronize(rill_context *context)
{
    (void)context;
    return RILL_OK;
}
