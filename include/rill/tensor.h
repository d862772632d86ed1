/* Tensors: small non-owning views of memory that belongs to the caller. */
#ifndef RILL_TENSOR_H
#define RILL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <rill/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rill_dtype {
    RILL_ABSENT = 0, /* the type of a zero-initialised tensor: the argument is not given */
    RILL_F64 = 1,
    RILL_F32 = 2,
    RILL_BF16 = 3, /* the upper half of a float32 */
    RILL_F16 = 4,  /* IEEE binary16 */
    RILL_C64 = 5,  /* two float32: real, imaginary */
    RILL_C128 = 6, /* two float64: real, imaginary */
    RILL_I64 = 7
} rill_dtype;

/* Where memory lies. */
typedef enum rill_device {
    RILL_HOST = 0,
    RILL_CUDA = 1 /* device memory of the context's GPU */
} rill_device;

enum { RILL_MAX_RANK = 6 };

/*
 * A view: element (i0, i1, ...) lies at data + (i0 stride[0] + i1 stride[1] + ...) elements.  Strides are signed
 * and counted in elements; 0 repeats one element along an axis, which an input may do and an output may not.  Sizes
 * are 64-bit and may be 0, in which case data may be NULL.  Data is aligned to its element's size, c128 to 8 bytes;
 * the 8 bytes of c64 are more than C asks of a float complex.  The view and the memory stay the caller's; rill writes
 * only through fields named as outputs.
 */
typedef struct rill_tensor {
    void *data;
    rill_dtype dtype;
    rill_device device;
    int32_t rank;
    int32_t reserved; /* zero */
    int64_t shape[RILL_MAX_RANK];
    int64_t stride[RILL_MAX_RANK];
} rill_tensor;

/* Bytes of one element; 0 for RILL_ABSENT and for values outside the enumeration. */
RILL_API size_t rill_dtype_size(rill_dtype dtype);

/* The short name of a type ("f32"), as files and messages write it; "?" for values outside the enumeration. */
RILL_API const char *rill_dtype_name(rill_dtype dtype);

/*
 * Views of contiguous row-major memory, slowest axis first.  Plain names are host memory; those ending in _on say
 * where the memory lies.  No constructor fails: a call that gets a bad view answers with a status.
 */
RILL_API rill_tensor rill_tensor_1d(const void *data, rill_dtype dtype, int64_t n0);
RILL_API rill_tensor rill_tensor_2d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1);
RILL_API rill_tensor rill_tensor_3d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1, int64_t n2);
RILL_API rill_tensor rill_tensor_4d(const void *data, rill_dtype dtype, int64_t n0, int64_t n1, int64_t n2,
                                    int64_t n3);
RILL_API rill_tensor rill_tensor_1d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0);
RILL_API rill_tensor rill_tensor_2d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0,
                                       int64_t n1);
RILL_API rill_tensor rill_tensor_3d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0, int64_t n1,
                                       int64_t n2);
RILL_API rill_tensor rill_tensor_4d_on(rill_device device, const void *data, rill_dtype dtype, int64_t n0, int64_t n1,
                                       int64_t n2, int64_t n3);

/*
 * Any view.  rank counts the entries of shape and stride; stride NULL means contiguous row-major.  A rank outside
 * [0, RILL_MAX_RANK] is kept as given, without sizes, for the call that gets the view to refuse; a shape of NULL
 * makes the rank -1, to the same end.
 */
RILL_API rill_tensor rill_tensor_view(rill_device device, const void *data, rill_dtype dtype, int32_t rank,
                                      const int64_t *shape, const int64_t *stride);

#ifdef __cplusplus
}
#endif

#endif
