/* Tensors of linear attention's problems as its kernels take them. */
#ifndef RL_CUDA_LINEAR_ATTENTION_VIEWS_H
#define RL_CUDA_LINEAR_ATTENTION_VIEWS_H

#include "device.h"
#include "linear_attention_args.h"

/* `down`: steps are run from the last to the first. */
static inline rl_attention_view rl_attention_view_of(const rill_tensor *tensor, bool down)
{
    rl_attention_view view = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return view;
    view.batch = rl_cuda_stride(tensor, 0);
    view.step = down ? -rl_cuda_stride(tensor, 1) : rl_cuda_stride(tensor, 1);
    view.head = rl_cuda_stride(tensor, 2);
    if (tensor->rank > 3) view.lane = rl_cuda_stride(tensor, 3);
    return view;
}

static inline rl_attention_state rl_attention_state_of(const rill_tensor *tensor, bool is_double)
{
    rl_attention_state state = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return state;
    int64_t size = (int64_t)rill_dtype_size(tensor->dtype);
    state.sequence = rl_cuda_stride(tensor, 0);
    state.head = rl_cuda_stride(tensor, 1);
    state.key = rl_cuda_stride(tensor, 2);
    state.value = rl_cuda_stride(tensor, 3);
    state.wide = tensor->dtype == (is_double ? RILL_F64 : RILL_F32) && state.value == 1 &&
                 (uintptr_t)tensor->data % 16 == 0 && state.sequence * size % 16 == 0 &&
                 state.head * size % 16 == 0 && state.key * size % 16 == 0;
    return state;
}

#endif
