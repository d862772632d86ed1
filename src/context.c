/* Contexts: options, the choice of a backend, memory. */
#include "context.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "overlap.h"
#include "view.h"

enum { MAX_THREADS = 1024 };

/* Why the calling thread's last creation failed; there is no context then to hold it. */
static _Thread_local char creation_message[RL_MESSAGE_SIZE];

static const rl_backend *const backends[] = {
#ifdef RL_HAVE_CUDA
    &rl_backend_cuda,
#endif
    &rl_backend_cpu,
    &rl_backend_reference,
    &rl_backend_loop,
};

static const rl_backend *find_backend(rill_backend id)
{
    for (size_t k = 0; k < sizeof backends / sizeof backends[0]; k++)
        if (backends[k]->id == id) return backends[k];
    return NULL;
}

static rill_status check_options(rill_context *context, const rill_options *options)
{
    if ((int)options->backend < RILL_BACKEND_AUTO || (int)options->backend > RILL_BACKEND_LOOP)
        return rl_fail(context, RILL_INVALID_OPTION, "backend: found %d, expected %d to %d", (int)options->backend,
                       RILL_BACKEND_AUTO, RILL_BACKEND_LOOP);
    if (options->threads < 0 || options->threads > MAX_THREADS)
        return rl_fail(context, RILL_INVALID_OPTION, "threads: found %d, expected 0 to %d", options->threads,
                       MAX_THREADS);
    if (options->device < 0)
        return rl_fail(context, RILL_INVALID_OPTION, "device: found %d, expected 0 or more", options->device);
    if ((int)options->isa < RILL_ISA_AUTO || (int)options->isa > RILL_ISA_AVX512)
        return rl_fail(context, RILL_INVALID_OPTION, "isa: found %d, expected %d to %d", (int)options->isa,
                       RILL_ISA_AUTO, RILL_ISA_AVX512);
    for (int k = 0; k < (int)(sizeof options->reserved / sizeof options->reserved[0]); k++)
        if (options->reserved[k] != 0)
            return rl_fail(context, RILL_INVALID_OPTION, "reserved: element %d is %llu, expected 0", k,
                           (unsigned long long)options->reserved[k]);
    return RILL_OK;
}

static rill_status open_backend(rill_context *context, rill_backend id)
{
    context->backend = find_backend(id);
    if (!context->backend) return rl_fail(context, RILL_UNSUPPORTED, "backend: cuda is not in this build");
    context->options.backend = id;
    return context->backend->open(context);
}

rill_status rill_context_create(const rill_options *options, rill_context **context)
{
    if (!context) {
        snprintf(creation_message, sizeof creation_message, "context: NULL, expected where to put the context");
        return RILL_INVALID_NULL;
    }
    *context = NULL;
    rill_context *made = calloc(1, sizeof *made);
    if (!made) {
        snprintf(creation_message, sizeof creation_message, "no host memory for a context");
        return RILL_OUT_OF_MEMORY;
    }
    if (options) made->options = *options;
    rill_status status = check_options(made, &made->options);
    if (made->options.threads == 0) {
        int threads = omp_get_max_threads();
        made->options.threads = threads > MAX_THREADS ? MAX_THREADS : threads;
    }
    if (status == RILL_OK && made->options.backend != RILL_BACKEND_AUTO) {
        status = open_backend(made, made->options.backend);
    } else if (status == RILL_OK) {
        status = open_backend(made, RILL_BACKEND_CUDA);
        if (status == RILL_UNSUPPORTED) status = open_backend(made, RILL_BACKEND_CPU);
    }
    if (status != RILL_OK) {
        memcpy(creation_message, made->message, sizeof creation_message);
        free(made);
        return status;
    }
    made->message[0] = '\0';
    *context = made;
    return RILL_OK;
}

void rill_context_destroy(rill_context *context)
{
    if (!context) return;
    context->backend->synchronize(context);
    rl_workspace_release(context);
    context->backend->close(context);
    free(context);
}

rill_backend rill_context_backend(const rill_context *context)
{
    return context ? context->backend->id : RILL_BACKEND_AUTO;
}

rill_status rill_context_info(const rill_context *context, rill_info *info)
{
    if (!context) return RILL_INVALID_NULL;
    if (!info)
        return rl_fail((rill_context *)context, RILL_INVALID_NULL, "info: NULL, expected where to put the facts");
    *info = (rill_info){.backend = context->backend->id,
                        .backend_name = context->backend->name,
                        .isa = "",
                        .blas = "",
                        .device = "",
                        .workspace = (int64_t)context->workspace.total};
    context->backend->describe(context, info);
    return RILL_OK;
}

const char *rill_last_error(const rill_context *context)
{
    return context ? context->message : creation_message;
}

rill_status rill_alloc(rill_context *context, size_t bytes, void **memory)
{
    if (!context) return RILL_INVALID_NULL;
    if (!memory) return rl_fail(context, RILL_INVALID_NULL, "memory: NULL, expected where to put the address");
    *memory = NULL;
    return bytes == 0 ? RILL_OK : context->backend->alloc(context, bytes, memory);
}

rill_status rill_free(rill_context *context, void *memory)
{
    if (!context) return RILL_INVALID_NULL;
    if (memory) context->backend->free(context, memory);
    return RILL_OK;
}

rill_status rill_synchronize(rill_context *context)
{
    return context ? context->backend->synchronize(context) : RILL_INVALID_NULL;
}

static rill_status check_copied(rill_context *context, const char *name, const rill_tensor *tensor)
{
    char text[RL_NAME_SIZE];
    if (!tensor) return rl_fail(context, RILL_INVALID_NULL, "%s: NULL, expected a tensor", name);
    if (rill_dtype_size(tensor->dtype) == 0)
        return rl_fail(context, RILL_INVALID_DTYPE, "%s: dtype is %s, expected one of rill_dtype", name,
                       rl_dtype_text(tensor->dtype, text));
    if (tensor->device != RILL_HOST && tensor->device != context->backend->memory)
        return rl_fail(context, RILL_INVALID_DEVICE, "%s: device is %s, expected host (the context is %s)", name,
                       rl_device_text(tensor->device, text), context->backend->name);
    return rl_check_view(context, name, tensor);
}

static rill_status check_pair(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    if (source->dtype != destination->dtype)
        return rl_fail(context, RILL_INVALID_DTYPE, "source: dtype is %s, expected %s (dtype of destination)",
                       rill_dtype_name(source->dtype), rill_dtype_name(destination->dtype));
    if (source->rank != destination->rank)
        return rl_fail(context, RILL_INVALID_SHAPE, "source: rank is %d, expected %d (rank of destination)",
                       source->rank, destination->rank);
    for (int axis = 0; axis < source->rank; axis++)
        if (source->shape[axis] != destination->shape[axis])
            return rl_fail(context, RILL_INVALID_SHAPE,
                           "source: axis %d is %lld, expected %lld (axis of destination)", axis,
                           (long long)source->shape[axis], (long long)destination->shape[axis]);
    if (rl_overlaps_itself(destination))
        return rl_fail(context, RILL_INVALID_OVERLAP,
                       "destination: overlaps itself, found strides that meet, expected distinct elements");
    if (source->device == destination->device && rl_overlap(destination, source))
        return rl_fail(context, RILL_INVALID_OVERLAP, "destination: overlaps source, expected disjoint memory");
    return RILL_OK;
}

rill_status rill_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source)
{
    if (!context) return RILL_INVALID_NULL;
    rill_status status = check_copied(context, "destination", destination);
    if (status == RILL_OK) status = check_copied(context, "source", source);
    if (status == RILL_OK) status = check_pair(context, destination, source);
    if (status != RILL_OK || rl_view_is_empty(source)) return status;
    return context->backend->copy(context, destination, source);
}

rill_status rill_cuda_set_stream(rill_context *context, rill_cuda_stream stream)
{
    if (!context) return RILL_INVALID_NULL;
    if (context->backend->set_stream) return context->backend->set_stream(context, stream);
    return rl_fail(context, RILL_UNSUPPORTED, "context: backend is %s, expected cuda", context->backend->name);
}

rill_status rill_cuda_get_stream(rill_context *context, rill_cuda_stream *stream)
{
    if (!context) return RILL_INVALID_NULL;
    if (!stream) return rl_fail(context, RILL_INVALID_NULL, "stream: NULL, expected where to put the stream");
    if (context->backend->get_stream) return context->backend->get_stream(context, stream);
    return rl_fail(context, RILL_UNSUPPORTED, "context: backend is %s, expected cuda", context->backend->name);
}
