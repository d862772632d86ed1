/* The way from a checked problem to the backend, with host tensors staged where its memory is elsewhere. */
#include "context.h"
#include "signature.h"

static rill_tensor *tensor_in(const rl_argument *argument, void *problem)
{
    return (rill_tensor *)((char *)problem + argument->out);
}

/* All given tensors of a call lie together: the front has checked it. */
static bool needs_staging(const rill_context *context, const rill_tensor *tensor)
{
    return tensor->data && tensor->device != context->backend->memory;
}

/* The distinct elements of a view: axes with stride 0 shrink to one element. */
static rill_tensor distinct(const rill_tensor *tensor)
{
    rill_tensor view = *tensor;
    for (int axis = 0; axis < view.rank; axis++)
        if (view.stride[axis] == 0) view.shape[axis] = 1;
    return view;
}

static size_t byte_count(const rill_tensor *tensor)
{
    size_t count = rill_dtype_size(tensor->dtype);
    for (int axis = 0; axis < tensor->rank; axis++) count *= (size_t)tensor->shape[axis];
    return count;
}

/* A contiguous block on the device for the distinct elements of a host view, and the view of the full shape on it. */
static rill_status place(rill_context *context, const rill_tensor *host, rill_tensor *compact, rill_tensor *full)
{
    void *block;
    rill_tensor source = distinct(host);
    rill_status status = rl_workspace_take(context, byte_count(&source), &block);
    if (status != RILL_OK) return status;
    *compact = rill_tensor_view(context->backend->memory, block, source.dtype, source.rank, source.shape, NULL);
    *full = *compact;
    for (int axis = 0; axis < host->rank; axis++) {
        full->shape[axis] = host->shape[axis];
        if (host->stride[axis] == 0) full->stride[axis] = 0;
    }
    return RILL_OK;
}

static rill_status stage_in(rill_context *context, const rl_signature *signature, void *problem)
{
    rill_status status = RILL_OK;
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++) {
        const rl_argument *argument = &signature->arguments[k];
        rill_tensor *tensor = tensor_in(argument, problem), compact, full;
        if (!needs_staging(context, tensor)) continue;
        status = place(context, tensor, &compact, &full);
        if (status == RILL_OK && (argument->role == RL_INPUT || argument->role == RL_OPTIONAL_INPUT)) {
            rill_tensor source = distinct(tensor);
            status = context->backend->copy(context, &compact, &source);
        }
        if (status == RILL_OK) *tensor = full;
    }
    return status;
}

static rill_status stage_out(rill_context *context, const rl_signature *signature, const void *args,
                             const void *problem)
{
    rill_status status = RILL_OK;
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++) {
        const rl_argument *argument = &signature->arguments[k];
        const rill_tensor *host = (const rill_tensor *)((const char *)args + argument->in);
        const rill_tensor *device = (const rill_tensor *)((const char *)problem + argument->out);
        if (argument->role == RL_INPUT || argument->role == RL_OPTIONAL_INPUT) continue;
        if (!device->data || host->device == context->backend->memory) continue;
        status = context->backend->copy(context, host, device);
    }
    return status;
}

/* Outputs that are not given, or have no elements, have no data. */
static bool has_output(const rl_signature *signature, void *problem)
{
    for (int k = 0; k < signature->argument_count; k++) {
        const rl_argument *argument = &signature->arguments[k];
        bool output = argument->role == RL_OUTPUT || argument->role == RL_OPTIONAL_OUTPUT;
        if (output && tensor_in(argument, problem)->data) return true;
    }
    return false;
}

rill_status rl_dispatch(rill_context *context, const rl_signature *signature, const void *args, void *problem,
                        rl_run *run)
{
    if (!has_output(signature, problem)) return RILL_OK;
    if (!run)
        return rl_fail(context, RILL_UNSUPPORTED, "%s: the %s backend does not have it", signature->name,
                       context->backend->name);
    rl_workspace_reset(context);
    rill_status status = stage_in(context, signature, problem);
    if (status == RILL_OK) status = run(context, problem);
    if (status == RILL_OK) status = stage_out(context, signature, args, problem);
    return status;
}
