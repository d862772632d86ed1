#include "strided.h"

#include <stdlib.h>
#include <string.h>

#include "half.h"

int64_t view_count(const rill_tensor *view)
{
    int64_t count = 1;
    for (int i = 0; i < view->rank; i++) count *= view->shape[i];
    return count;
}

bool view_next(const rill_tensor *view, int64_t *index)
{
    for (int i = view->rank - 1; i >= 0; i--) {
        if (++index[i] < view->shape[i]) return true;
        index[i] = 0;
    }
    return false;
}

int64_t view_offset(const rill_tensor *view, const int64_t *index)
{
    int64_t offset = 0;
    for (int i = 0; i < view->rank; i++) offset += index[i] * view->stride[i];
    return offset;
}

static char *place(const rill_tensor *view, const int64_t *index)
{
    return (char *)view->data + view_offset(view, index) * (int64_t)rill_dtype_size(view->dtype);
}

/*
 * double to a 16-bit type through float, rounded once: the float is rounded to odd, which keeps every tie and every
 * direction for the second rounding.
 */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    if ((double)nearest == value || value != value) return nearest;
    uint32_t bits = rl_bits_from_float(nearest);
    if (bits & 1u) return nearest;
    bool magnitude_up = (nearest < 0 ? -(double)nearest : (double)nearest) > (value < 0 ? -value : value);
    return rl_float_from_bits(magnitude_up ? bits - 1 : bits + 1);
}

void view_store(const rill_tensor *view, const int64_t *index, double value)
{
    char *to = place(view, index);
    float single = (float)value;
    uint16_t half;
    int64_t integer = view->dtype == RILL_I64 ? (int64_t)value : 0;
    switch (view->dtype) {
    case RILL_F64:
        memcpy(to, &value, sizeof value);
        break;
    case RILL_F32:
        memcpy(to, &single, sizeof single);
        break;
    case RILL_I64:
        memcpy(to, &integer, sizeof integer);
        break;
    case RILL_BF16:
        half = rl_bf16_from_float(round_to_odd(value));
        memcpy(to, &half, sizeof half);
        break;
    case RILL_F16:
        half = rl_f16_from_float(round_to_odd(value));
        memcpy(to, &half, sizeof half);
        break;
    case RILL_C64:
        memcpy(to, (float[]){single, 0}, 2 * sizeof single);
        break;
    case RILL_C128:
        memcpy(to, (double[]){value, 0}, 2 * sizeof value);
        break;
    default:
        abort();
    }
}

double view_load(const rill_tensor *view, const int64_t *index)
{
    const char *from = place(view, index);
    double value;
    float single;
    uint16_t half;
    int64_t integer;
    switch (view->dtype) {
    case RILL_F64:
    case RILL_C128:
        memcpy(&value, from, sizeof value);
        return value;
    case RILL_F32:
    case RILL_C64:
        memcpy(&single, from, sizeof single);
        return single;
    case RILL_I64:
        memcpy(&integer, from, sizeof integer);
        return (double)integer;
    case RILL_BF16:
        memcpy(&half, from, sizeof half);
        return rl_float_from_bf16(half);
    case RILL_F16:
        memcpy(&half, from, sizeof half);
        return rl_float_from_f16(half);
    default:
        abort();
    }
}

rill_tensor view_parts(rill_tensor view)
{
    if (view.dtype != RILL_C64 && view.dtype != RILL_C128) return view;
    view.dtype = view.dtype == RILL_C64 ? RILL_F32 : RILL_F64;
    for (int i = 0; i < view.rank; i++) view.stride[i] *= 2;
    view.shape[view.rank] = 2;
    view.stride[view.rank++] = 1;
    return view;
}

bool view_same_element(const rill_tensor *a, const rill_tensor *b, const int64_t *index)
{
    return memcmp(place(a, index), place(b, index), rill_dtype_size(a->dtype)) == 0;
}

void view_fill(const rill_tensor *view, double value)
{
    int64_t index[RILL_MAX_RANK] = {0};
    if (view_count(view) == 0) return;
    do view_store(view, index, value);
    while (view_next(view, index));
}

void view_copy(const rill_tensor *to, const rill_tensor *from)
{
    int64_t index[RILL_MAX_RANK] = {0};
    size_t size = rill_dtype_size(from->dtype);
    if (view_count(from) == 0) return;
    do memcpy(place(to, index), place(from, index), size);
    while (view_next(from, index));
}

bool view_same(const rill_tensor *a, const rill_tensor *b, int64_t *where)
{
    int64_t index[RILL_MAX_RANK] = {0};
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    if (view_count(a) != view_count(b)) return false;
    if (view_count(a) == 0) return true;
    do {
        if (view_same_element(a, b, index)) continue;
        if (where) memcpy(where, index, sizeof index);
        return false;
    } while (view_next(a, index));
    return true;
}

rill_tensor view_narrow(rill_tensor view, int axis, int64_t start, int64_t count)
{
    if (view.data) view.data = (char *)view.data + start * view.stride[axis] * (int64_t)rill_dtype_size(view.dtype);
    view.shape[axis] = count;
    return view;
}

rill_tensor view_alloc(rill_dtype dtype, int rank, const int64_t *shape)
{
    rill_tensor view = rill_tensor_view(RILL_HOST, NULL, dtype, rank, shape, NULL);
    int64_t bytes = view_count(&view) * (int64_t)rill_dtype_size(dtype);
    view.data = calloc((size_t)(bytes > 0 ? bytes : 1), 1);
    if (!view.data) abort();
    return view;
}

rill_tensor view_alloc_like(const rill_tensor *view, rill_dtype dtype)
{
    return view_alloc(dtype, view->rank, view->shape);
}
