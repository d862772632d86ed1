/* Describes tensors of linear attention to the copy engine. */
#include "linear_attention_copies.h"

#include <cudaTypedefs.h>

enum { ROW = 128 /* bytes of a tile's row */ };

/* An axis of one element has no stride; the copy engine wants one that it could take. */
static cuuint64_t bytes_apart(int64_t stride, int64_t size, int64_t bytes)
{
    return size == 1 ? 16 : (cuuint64_t)(stride * bytes);
}

bool rl_attention_describe(const rill_context *context, const rl_attention_view *view,
                           const rl_attention_copies *copies, CUtensorMap *map)
{
    const int64_t bytes = (int64_t)rill_dtype_size((rill_dtype)view->dtype);
    cuuint64_t sizes[] = {(cuuint64_t)copies->lanes, (cuuint64_t)copies->length, (cuuint64_t)copies->heads,
                          (cuuint64_t)copies->batch};
    cuuint64_t strides[] = {bytes_apart(view->step, copies->length, bytes),
                            bytes_apart(view->head, copies->heads, bytes),
                            bytes_apart(view->batch, copies->batch, bytes)};
    cuuint32_t box[] = {(cuuint32_t)(ROW / bytes), (cuuint32_t)copies->steps, 1, 1}, each[] = {1, 1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)rl_cuda_state_of(context)->encode_tiles;
    return encode(map, bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, view->data,
                  sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
