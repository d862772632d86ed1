#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#include "strided.h"

enum { GUARD = 67 }; /* elements on each side: odd, so that views start off any vector's alignment */

layout layout_contiguous(void)
{
    layout plain = {.step = 1};
    for (int i = 0; i < RILL_MAX_RANK; i++) plain.order[i] = i;
    return plain;
}

/* NaNs with a payload of their own; for i64 a value that would be out of range as an offset. */
static void poison_bits(rill_dtype dtype, unsigned char *bits)
{
    uint64_t f64 = 0x7ff8dead5eed5eedu, i64 = 0x5eed5eed5eed5eedu;
    uint32_t f32 = 0x7fd5eed5u;
    uint16_t bf16 = 0x7fd5u, f16 = 0x7f5bu;
    switch (dtype) {
    case RILL_F64:
        memcpy(bits, &f64, sizeof f64);
        break;
    case RILL_F32:
        memcpy(bits, &f32, sizeof f32);
        break;
    case RILL_BF16:
        memcpy(bits, &bf16, sizeof bf16);
        break;
    case RILL_F16:
        memcpy(bits, &f16, sizeof f16);
        break;
    case RILL_C64:
        memcpy(bits, (uint32_t[]){f32, f32}, 2 * sizeof f32);
        break;
    case RILL_C128:
        memcpy(bits, (uint64_t[]){f64, f64}, 2 * sizeof f64);
        break;
    default:
        memcpy(bits, &i64, sizeof i64);
        break;
    }
}

/* Fills strides and returns the elements the view spans; *origin is where its first element lies in that span. */
static int64_t lay_out(const layout *how, rill_tensor *view, int64_t *origin)
{
    int64_t run = how->step;
    *origin = 0;
    for (int i = view->rank - 1; i >= 0; i--) {
        int axis = how->order[i];
        view->stride[axis] = how->broadcast[axis] ? 0 : run;
        if (!how->broadcast[axis]) run = run * (view->shape[axis] > 0 ? view->shape[axis] : 1) + how->pad[axis];
        if (how->reversed[axis] && view->shape[axis] > 0) {
            *origin += (view->shape[axis] - 1) * view->stride[axis];
            view->stride[axis] = -view->stride[axis];
        }
    }
    return run;
}

buffer buffer_make(rill_dtype dtype, int rank, const int64_t *shape, const layout *how)
{
    buffer b = {.view = rill_tensor_view(RILL_HOST, NULL, dtype, rank, shape, NULL)};
    int64_t origin, span = lay_out(how, &b.view, &origin), size = (int64_t)rill_dtype_size(dtype);
    unsigned char bits[16];
    b.origin = GUARD + how->lead + origin;
    while (how->align && b.origin * size % how->align != 0) b.origin++;
    b.elements = b.origin - origin + span + GUARD;
    b.shift = dtype == RILL_C128 && how->lead % 2 != 0 && how->align == 0 ? 8 : 0;
    char *whole = aligned_alloc(256, (size_t)(b.elements * size + b.shift + 255) / 256 * 256);
    b.before = malloc((size_t)(b.elements * size));
    if (!whole || !b.before) abort();
    b.memory = whole + b.shift;
    poison_bits(dtype, bits);
    for (int64_t i = 0; i < b.elements; i++) memcpy(b.memory + i * size, bits, (size_t)size);
    b.view.data = b.memory + b.origin * size;
    buffer_remember(&b);
    return b;
}

void buffer_free(buffer *b)
{
    if (b->memory) free(b->memory - b->shift);
    free(b->before);
    *b = (buffer){0};
}

void buffer_remember(buffer *b)
{
    memcpy(b->before, b->memory, (size_t)b->elements * rill_dtype_size(b->view.dtype));
}

static bool same_element(const buffer *b, int64_t i)
{
    size_t size = rill_dtype_size(b->view.dtype);
    return memcmp(b->memory + i * (int64_t)size, b->before + i * (int64_t)size, size) == 0;
}

int64_t buffer_changed(const buffer *b)
{
    if (memcmp(b->memory, b->before, (size_t)b->elements * rill_dtype_size(b->view.dtype)) == 0) return -1;
    for (int64_t i = 0; i < b->elements; i++)
        if (!same_element(b, i)) return i;
    return -1;
}

int64_t buffer_guard_changed(const buffer *b)
{
    int64_t index[RILL_MAX_RANK] = {0}, found = -1;
    char *inside = calloc((size_t)b->elements, 1);
    if (!inside) abort();
    if (view_count(&b->view) > 0) {
        do inside[b->origin + view_offset(&b->view, index)] = 1;
        while (view_next(&b->view, index));
    }
    for (int64_t i = 0; i < b->elements && found < 0; i++)
        if (!inside[i] && !same_element(b, i)) found = i;
    free(inside);
    return found;
}

bool buffer_unwritten(const buffer *b, int64_t *index)
{
    unsigned char bits[16];
    size_t size = rill_dtype_size(b->view.dtype);
    poison_bits(b->view.dtype, bits);
    memset(index, 0, RILL_MAX_RANK * sizeof *index);
    if (view_count(&b->view) == 0) return false;
    do {
        int64_t at = b->origin + view_offset(&b->view, index);
        if (memcmp(b->memory + at * (int64_t)size, bits, size) == 0) return true;
    } while (view_next(&b->view, index));
    return false;
}

static rill_tensor memory_on_device(const buffer *b)
{
    return rill_tensor_1d_on(RILL_CUDA, (char *)b->device + b->shift, b->view.dtype, b->elements);
}

rill_status buffer_to_device(rill_context *context, buffer *b, rill_tensor *view)
{
    size_t size = rill_dtype_size(b->view.dtype);
    rill_tensor host = rill_tensor_1d(b->memory, b->view.dtype, b->elements), device;
    rill_status status = rill_alloc(context, (size_t)b->elements * size + (size_t)b->shift, &b->device);
    if (status != RILL_OK) return status;
    device = memory_on_device(b);
    *view = b->view;
    view->device = RILL_CUDA;
    view->data = (char *)device.data + b->origin * (int64_t)size;
    return rill_copy(context, &device, &host);
}

rill_status buffer_from_device(rill_context *context, buffer *b)
{
    rill_tensor host = rill_tensor_1d(b->memory, b->view.dtype, b->elements);
    rill_tensor device = memory_on_device(b);
    rill_status status = rill_copy(context, &host, &device);
    rill_status freed = rill_free(context, b->device);
    b->device = NULL;
    return status != RILL_OK ? status : freed;
}
