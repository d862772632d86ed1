/* The selective scan's tensors as its kernels address them. */
#include "s6_views.h"

bool rl_s6_is_wide(const rill_tensor *tensor, const int64_t *stride)
{
    int last = tensor->rank - 1;
    int64_t bytes = (int64_t)rill_dtype_size(tensor->dtype), unit = 4 * bytes > 16 ? 16 : 4 * bytes;
    bool wide = (uintptr_t)tensor->data % (uintptr_t)unit == 0 && stride[last] == 1;
    for (int axis = 0; axis < last; axis++) wide = wide && stride[axis] * bytes % unit == 0;
    return wide;
}

void rl_s6_own_strides(const rill_tensor *tensor, int64_t *stride)
{
    int last = tensor->rank - 1;
    for (int axis = 0; axis <= last; axis++)
        stride[axis] = tensor->shape[axis] == 1 ? axis == last : tensor->stride[axis];
}

rl_s6_view rl_s6_view_of(const rill_tensor *tensor)
{
    rl_s6_view view = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return view;
    int lane = tensor->rank - 1;
    int64_t stride[RILL_MAX_RANK] = {0};
    rl_s6_own_strides(tensor, stride);
    view.batch = stride[0];
    view.step = stride[1];
    view.group = lane == 3 ? stride[2] : 0;
    view.lane = stride[lane];
    view.wide = rl_s6_is_wide(tensor, stride);
    return view;
}

rl_s6_view rl_s6_channels_of(const rill_tensor *tensor, int64_t groups, int64_t group_channels)
{
    rl_s6_view view = rl_s6_view_of(tensor);
    if (groups > 1 && group_channels % 4 != 0) view.wide = false;
    return view;
}

rl_s6_vector rl_s6_vector_of(const rill_tensor *tensor)
{
    return (rl_s6_vector){.data = tensor->data, .stride = tensor->data ? tensor->stride[0] : 0};
}

rl_s6_state rl_s6_state_of(const rill_tensor *tensor)
{
    rl_s6_state state = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return state;
    int64_t stride[RILL_MAX_RANK] = {0};
    rl_s6_own_strides(tensor, stride);
    state.sequence = stride[0];
    state.channel = stride[1];
    state.state = stride[2];
    state.wide = rl_s6_is_wide(tensor, stride);
    return state;
}

rl_s6_view rl_s6_turned(rl_s6_view view, bool reverse)
{
    if (reverse) view.step = -view.step;
    return view;
}
