/* Describes the tensors of the selective scan's gradients to the copy engine, for the summaries of neat ones. */
#include <cudaTypedefs.h>

#include "counts.h"
#include "device.h"
#include "s6_back_copies.h"
#include "s6_back_kernels.h"

/* An axis of one element has no stride; the copy engine wants one that it could take. */
static cuuint64_t copyable_bytes(int64_t stride, int64_t size, int64_t bytes)
{
    return size == 1 ? 16 : (cuuint64_t)(stride * bytes);
}

/* A view of which rows of `inner` numbers are copied `wide` at a time; 0: 128 bytes of them, the banks parted. */
static bool describe(rill_context *context, const rl_s6_back_args *args, const rl_s6_view *view, int64_t inner,
                     int64_t wide, CUtensorMap *map)
{
    if (!view->data) return true;
    const int64_t bytes = (int64_t)rill_dtype_size((rill_dtype)view->dtype), length = args->scan.length;
    const int64_t batch = args->rows / rl_most(length, 1);
    if ((length > 1 && view->step <= 0) || (batch > 1 && view->batch <= 0) || length > INT32_MAX / 2) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)inner, (cuuint64_t)length, (cuuint64_t)batch};
    const cuuint64_t strides[] = {copyable_bytes(view->step, length, bytes),
                                  copyable_bytes(view->batch, batch, bytes)};
    const cuuint32_t box[] = {(cuuint32_t)(wide ? wide : 128 / bytes), 2 * RL_S6_BACK_STEPS, 1}, each[] = {1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)rl_cuda_state_of(context)->encode_tiles;
    return encode(map, bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, view->data,
                  sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  wide ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool rl_s6_back_describe(rill_context *context, const rl_s6_back_args *args, rl_s6_back_copies *copies)
{
    const rl_s6_args *scan = &args->scan;
    const int64_t unit = args->form == RL_S6_BACK_NEAT_F32 ? 4 : 8, channels = scan->channels, states = scan->states;
    const int64_t all = args->groups * states;
    const bool packed = args->groups == 1 || (scan->B.group == states && scan->C.group == states);
    if (args->form < RL_S6_BACK_NEAT_F32) return false;
    if (!scan->softplus || args->clamps) return false;
    return rl_cuda_state_of(context)->encode_tiles && packed && scan->group_channels % unit == 0 &&
           states % unit == 0 && channels <= INT32_MAX && all <= INT32_MAX &&
           describe(context, args, &scan->delta, channels, 0, &copies->delta) &&
           describe(context, args, &scan->x, channels, 0, &copies->x) &&
           describe(context, args, &args->dy, channels, 0, &copies->dy) &&
           describe(context, args, &scan->z, channels, 0, &copies->z) &&
           describe(context, args, &scan->B, all, RL_S6_PANEL, &copies->B) &&
           describe(context, args, &scan->C, all, RL_S6_PANEL, &copies->C);
}
