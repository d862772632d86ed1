/* Views: constructors, and the few facts about types. */
#include <rill/tensor.h>

size_t rill_dtype_size(rill_dtype dtype)
{
    switch (dtype) {
    case RILL_BF16:
    case RILL_F16:
        return 2;
    case RILL_F32:
        return 4;
    case RILL_F64:
    case RILL_C64:
    case RILL_I64:
        return 8;
    case RILL_C128:
        return 16;
    case RILL_ABSENT:
        break;
    }
    return 0;
}

const char *rill_dtype_name(rill_dtype dtype)
{
    switch (dtype) {
    case RILL_ABSENT:
        return "absent";
    case RILL_F64:
        return "f64";
    case RILL_F32:
        return "f32";
    case RILL_BF16:
        return "bf16";
    case RILL_F16:
        return "f16";
    case RILL_C64:
        return "c64";
    case RILL_C128:
        return "c128";
    case RILL_I64:
        return "i64";
    }
    return "?";
}

/* Strides wrap on overflow here; the call that gets the view finds the sizes too large and says so. */
rill_tensor rill_tensor_view(rill_device device, const void *data, rill_dtype dtype, int32_t rank,
                             const int64_t *shape, const int64_t *stride)
{
    rill_tensor tensor = {.data = (void *)data, .dtype = dtype, .device = device, .rank = rank};
    uint64_t contiguous = 1;
    if (rank < 0 || rank > RILL_MAX_RANK) return tensor;
    if (rank > 0 && !shape) tensor.rank = -1; /* for the call that gets the view to refuse */
    for (int axis = tensor.rank - 1; axis >= 0; axis--) {
        tensor.shape[axis] = shape[axis];
        tensor.stride[axis] = stride ? stride[axis] : (int64_t)contiguous;
        contiguous *= (uint64_t)shape[axis];
    }
    return tensor;
}

rill_tensor rill_tensor_1d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0)
{
    return rill_tensor_view(device, data, dtype, 1, (int64_t[]){n0}, NULL);
}

rill_tensor rill_tensor_2d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0, int64_t n1)
{
    return rill_tensor_view(device, data, dtype, 2, (int64_t[]){n0, n1}, NULL);
}

rill_tensor rill_tensor_3d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0, int64_t n1,
                              int64_t n2)
{
    return rill_tensor_view(device, data, dtype, 3, (int64_t[]){n0, n1, n2}, NULL);
}

rill_tensor rill_tensor_4d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0, int64_t n1,
                              int64_t n2, int64_t n3)
{
    return rill_tensor_view(device, data, dtype, 4, (int64_t[]){n0, n1, n2, n3}, NULL);
}

rill_tensor rill_tensor_1d(const void *data, rill_dtype dtype, int64_t n0)
{
    return rill_tensor_1d_on(RILL_HOST, data, dtype, n0);
}

rill_tensor rill_tensor_2d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1)
{
    return rill_tensor_2d_on(RILL_HOST, data, dtype, n0, n1);
}

rill_tensor rill_tensor_3d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1, int64_t n2)
{
    return rill_tensor_3d_on(RILL_HOST, data, dtype, n0, n1, n2);
}

rill_tensor rill_tensor_4d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    return rill_tensor_4d_on(RILL_HOST, data, dtype, n0, n1, n2, n3);
}
