/*
 * Copies between any two views.  Dense views on both sides are one cudaMemcpyAsync.  A strided view on the device is
 * gathered to, or scattered from, a dense block there; one on the host is packed in host memory.
 */
#include <stdlib.h>

#include "device.h"
#include "gather.h"
#include "host.h"

static bool dense(const rill_tensor *tensor)
{
    int64_t expected = 1;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        if (tensor->shape[axis] != 1 && tensor->stride[axis] != expected) return false;
        expected *= tensor->shape[axis];
    }
    return true;
}

static size_t byte_count(const rill_tensor *tensor)
{
    size_t bytes = rill_dtype_size(tensor->dtype);
    for (int axis = 0; axis < tensor->rank; axis++) bytes *= (size_t)tensor->shape[axis];
    return bytes;
}

static rill_tensor dense_view(const rill_tensor *shape, rill_device device, void *data)
{
    return rill_tensor_view(device, data, shape->dtype, shape->rank, shape->shape, NULL);
}

static rill_status wait(rill_context *context)
{
    return rl_cuda_check(context, cudaStreamSynchronize(rl_cuda_state_of(context)->stream), "copy: wait");
}

static rill_status move_bytes(rill_context *context, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = rl_cuda_state_of(context)->stream;
    return rl_cuda_check(context, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copy");
}

static rill_status move_on_device(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    if (dense(destination) && dense(source))
        return move_bytes(context, destination->data, source->data, byte_count(source));
    rl_gather_job job = {.destination = *destination, .source = *source};
    return rl_cuda_gather(context, &job, 1);
}

/* Dense host memory to or from a view on the device, through a dense block there where the view is strided. */
static rill_status cross(rill_context *context, const rill_tensor *device, void *host, bool to_device)
{
    size_t bytes = byte_count(device);
    if (dense(device))
        return to_device ? move_bytes(context, device->data, host, bytes)
                         : move_bytes(context, host, device->data, bytes);
    void *block;
    cudaStream_t stream = rl_cuda_state_of(context)->stream;
    rill_status status =
        rl_cuda_check(context, cudaMallocAsync(&block, bytes, stream), "copy: a block on the device");
    if (status != RILL_OK) return status;
    rill_tensor packed = dense_view(device, RILL_CUDA, block);
    if (to_device) {
        status = move_bytes(context, block, host, bytes);
        if (status == RILL_OK) status = move_on_device(context, device, &packed);
    } else {
        status = move_on_device(context, &packed, device);
        if (status == RILL_OK) status = move_bytes(context, host, block, bytes);
    }
    cudaFreeAsync(block, stream);
    return status;
}

/* One side on the host, one on the device; returns when the host's memory may be used. */
static rill_status move_across(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    bool to_device = source->device == RILL_HOST;
    const rill_tensor *host = to_device ? source : destination, *device = to_device ? destination : source;
    if (dense(host)) {
        rill_status status = cross(context, device, host->data, to_device);
        return status == RILL_OK ? wait(context) : status;
    }
    size_t bytes = byte_count(host);
    void *block = malloc(bytes);
    if (!block) return rl_fail(context, RILL_OUT_OF_MEMORY, "copy: %zu bytes of host memory", bytes);
    rill_tensor packed = dense_view(host, RILL_HOST, block);
    rill_status status = RILL_OK;
    if (to_device) status = rl_host_copy(context, &packed, source);
    if (status == RILL_OK) status = cross(context, device, block, to_device);
    if (status == RILL_OK) status = wait(context);
    if (status == RILL_OK && !to_device) status = rl_host_copy(context, destination, &packed);
    free(block);
    return status;
}

rill_status rl_cuda_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    if (byte_count(source) == 0) return RILL_OK;
    rl_cuda_scope scope = rl_cuda_enter(context);
    bool from_device = source->device == RILL_CUDA, to_device = destination->device == RILL_CUDA;
    rill_status status;
    if (from_device && to_device) {
        status = move_on_device(context, destination, source);
    } else if (rl_cuda_capturing(context)) {
        status = rl_fail(context, RILL_UNSUPPORTED,
                         "copy: host memory cannot be waited for while the stream is captured into a graph");
    } else if (from_device || to_device) {
        status = move_across(context, destination, source);
    } else {
        status = wait(context);
        if (status == RILL_OK) status = rl_host_copy(context, destination, source);
    }
    rl_cuda_leave(context, &scope);
    return status;
}
