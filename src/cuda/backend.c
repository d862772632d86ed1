/* The cuda backend's table: devices, streams, memory, errors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublas.h"
#include "device.h"
#include "gather.h"
#include "scan_split.h"

rl_cuda_scope rl_cuda_enter(const rill_context *context)
{
    rl_cuda_scope scope = {.pending = cudaPeekAtLastError()};
    int device = rl_cuda_state_of(context)->device;
    if (cudaGetDevice(&scope.device) == cudaSuccess && scope.device != device) {
        cudaSetDevice(device);
        scope.switched = true;
    }
    return scope;
}

void rl_cuda_leave(const rill_context *context, const rl_cuda_scope *scope)
{
    (void)context;
    /* An error of ours has been reported as a status: it is not left behind for the caller to find. */
    if (scope->pending == cudaSuccess && cudaPeekAtLastError() != cudaSuccess) cudaGetLastError();
    if (scope->switched) cudaSetDevice(scope->device);
}

rill_status rl_cuda_check(rill_context *context, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return RILL_OK;
    rill_status status = error == cudaErrorMemoryAllocation ? RILL_OUT_OF_MEMORY : RILL_DEVICE_ERROR;
    return rl_fail(context, status, "%s: %s", what, cudaGetErrorString(error));
}

bool rl_cuda_capturing(const rill_context *context)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(rl_cuda_state_of(context)->stream, &capture);
    return error != cudaSuccess || capture != cudaStreamCaptureStatusNone;
}

cudaError_t rl_cuda_allow(const rl_cuda_state *state, const void *kernel, size_t shared)
{
    if (shared > state->most_shared) return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
}

static rill_status check_shared(rill_context *context, size_t shared, const char *what)
{
    const size_t most = rl_cuda_state_of(context)->most_shared;
    if (shared <= most) return RILL_OK;
    return rl_fail(context, RILL_UNSUPPORTED, "%s: found a GPU with %zu bytes of shared memory a block, expected %zu",
                   what, most, shared);
}

rill_status rl_cuda_launch(rill_context *context, const void *kernel, int64_t blocks, int64_t rows, int threads,
                           size_t shared, void **arguments, const char *what)
{
    dim3 grid = {(unsigned)blocks, (unsigned)rows, 1}, block = {(unsigned)threads, 1, 1};
    cudaStream_t stream = rl_cuda_state_of(context)->stream;
    rill_status status = check_shared(context, shared, what);
    if (status != RILL_OK) return status;
    return rl_cuda_check(context, cudaLaunchKernel(kernel, grid, block, arguments, shared, stream), what);
}

rill_status rl_cuda_launch_early(rill_context *context, const void *kernel, int64_t blocks, int64_t rows, int threads,
                                 size_t shared, void **arguments, const char *what)
{
    const rl_cuda_state *state = rl_cuda_state_of(context);
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                 .val.programmaticStreamSerializationAllowed = 1};
    cudaLaunchConfig_t launch = {
        .gridDim = {(unsigned)blocks, (unsigned)rows, 1},
        .blockDim = {(unsigned)threads, 1, 1},
        .dynamicSmemBytes = shared,
        .stream = state->stream,
        .attrs = &early,
        .numAttrs = state->starts_early,
    };
    rill_status status = check_shared(context, shared, what);
    if (status != RILL_OK) return status;
    return rl_cuda_check(context, cudaLaunchKernelExC(&launch, kernel, arguments), what);
}

rill_status rl_cuda_launch_clusters(rill_context *context, const void *kernel, int64_t clusters, unsigned blocks,
                                    int threads, size_t shared, void **arguments, const char *what)
{
    const rl_cuda_state *state = rl_cuda_state_of(context);
    cudaLaunchAttribute attributes[] = {
        {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {blocks, 1, 1}},
        {.id = cudaLaunchAttributeProgrammaticStreamSerialization, .val.programmaticStreamSerializationAllowed = 1}};
    cudaLaunchConfig_t launch = {
        .gridDim = {(unsigned)(clusters * blocks), 1, 1},
        .blockDim = {(unsigned)threads, 1, 1},
        .dynamicSmemBytes = shared,
        .stream = state->stream,
        .attrs = attributes,
        .numAttrs = 1 + (unsigned)state->starts_early,
    };
    rill_status status = check_shared(context, shared, what);
    if (status != RILL_OK) return status;
    return rl_cuda_check(context, cudaLaunchKernelExC(&launch, kernel, arguments), what);
}

static rill_status find_device(rill_context *context, int wanted)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return rl_fail(context, RILL_UNSUPPORTED, "cuda: no usable GPU (%s)", cudaGetErrorString(error));
    if (wanted >= count)
        return rl_fail(context, RILL_UNSUPPORTED, "device: found %d, expected below %d (GPUs of this machine)",
                       wanted, count);
    return RILL_OK;
}

/* The device's name and size, and whether this build holds code for it. */
static rill_status inspect_device(rill_context *context, rl_cuda_state *state)
{
    struct cudaDeviceProp properties;
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaGetDeviceProperties(&properties, state->device);
    if (error == cudaSuccess) {
        snprintf(state->name, sizeof state->name, "%s", properties.name);
        snprintf(state->blas, sizeof state->blas, "rill's own");
        state->sms = properties.multiProcessorCount;
        state->most_shared = properties.sharedMemPerBlockOptin;
        state->starts_early = properties.major >= 9;
        state->multiplies = properties.major == 9 && properties.minor == 0;
        error = cudaFuncGetAttributes(&attributes, rl_cuda_gather_kernel());
    }
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return rl_fail(context, RILL_UNSUPPORTED, "cuda: this build has no code for %s (compute capability %d.%d)",
                       state->name, properties.major, properties.minor);
    if (error != cudaSuccess)
        return rl_fail(context, RILL_UNSUPPORTED, "cuda: device %d is not usable (%s)", state->device,
                       cudaGetErrorString(error));
    return RILL_OK;
}

/* Products look at what the scan has found. */
static cudaError_t prepare_kernels(rl_cuda_state *state)
{
    static cudaError_t (*const all[])(rl_cuda_state *) = {rl_cuda_prepare_selective_scan,
                                                          rl_cuda_prepare_selective_scan_backward,
                                                          rl_cuda_prepare_scan,
                                                          rl_cuda_prepare_scan_split,
                                                          rl_cuda_prepare_attention,
                                                          rl_cuda_prepare_product,
                                                          rl_cuda_prepare_attention_floats,
                                                          rl_cuda_prepare_attention_tiles};
    cudaError_t error = cudaSuccess;
    for (size_t k = 0; k < sizeof all / sizeof all[0] && error == cudaSuccess; k++) error = all[k](state);
    return error;
}

static rill_status start(rill_context *context, rl_cuda_state *state)
{
    rill_status status = find_device(context, state->device);
    if (status != RILL_OK) return status;
    cudaSetDevice(state->device);
    status = inspect_device(context, state);
    if (status == RILL_OK) status = rl_cuda_check(context, prepare_kernels(state), "cuda: shared memory");
    if (status != RILL_OK) return status;
    cudaError_t error = cudaStreamCreateWithFlags(&state->own, cudaStreamNonBlocking);
    state->stream = state->own;
    return rl_cuda_check(context, error, "cuda: a stream");
}

typedef struct starting {
    rill_context *context;
    rill_status status;
} starting;

static void *start_thread(void *argument)
{
    starting *s = argument;
    s->status = start(s->context, s->context->state);
    return NULL;
}

/* On a thread of its own, since some of these calls (cudaFuncSetAttribute) clear the caller's pending error. */
static rill_status cuda_open(rill_context *context)
{
    pthread_t thread;
    starting s = {.context = context};
    rl_cuda_state *state = calloc(1, sizeof *state);
    if (!state) return rl_fail(context, RILL_OUT_OF_MEMORY, "cuda: no host memory for a state");
    state->device = context->options.device;
    context->state = state;
    if (pthread_create(&thread, NULL, start_thread, &s) == 0)
        pthread_join(thread, NULL);
    else
        s.status = rl_fail(context, RILL_OUT_OF_MEMORY, "cuda: no thread to open the device with");
    if (s.status != RILL_OK) {
        free(state);
        context->state = NULL;
    }
    return s.status;
}

static void cuda_close(rill_context *context)
{
    rl_cuda_state *state = rl_cuda_state_of(context);
    rl_cuda_scope scope = rl_cuda_enter(context);
    rl_cublas_close(state->cublas);
    cudaStreamDestroy(state->own);
    rl_cuda_leave(context, &scope);
    free(state);
    context->state = NULL;
}

static void cuda_describe(const rill_context *context, rill_info *info)
{
    const rl_cuda_state *state = rl_cuda_state_of(context);
    info->device = state->name;
    info->device_sms = state->sms;
    info->blas = state->blas; /* cuBLAS is named once a projection has opened it */
}

static rill_status cuda_alloc(rill_context *context, size_t bytes, void **memory)
{
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status;
    if (rl_cuda_capturing(context)) {
        status = rl_fail(context, RILL_OUT_OF_MEMORY,
                         "memory: %zu bytes are needed while the stream is captured into a graph, where none can be "
                         "allocated; make the same call once before the capture",
                         bytes);
    } else {
        cudaError_t error = cudaMalloc(memory, bytes);
        status = RILL_OK;
        if (error != cudaSuccess) {
            *memory = NULL;
            status = rl_fail(context, error == cudaErrorMemoryAllocation ? RILL_OUT_OF_MEMORY : RILL_DEVICE_ERROR,
                             "memory: %zu bytes on the device: %s", bytes, cudaGetErrorString(error));
        }
    }
    rl_cuda_leave(context, &scope);
    return status;
}

static void cuda_free(rill_context *context, void *memory)
{
    rl_cuda_scope scope = rl_cuda_enter(context);
    cudaFree(memory); /* waits for the work that uses it */
    rl_cuda_leave(context, &scope);
}

static rill_status cuda_synchronize(rill_context *context)
{
    rl_cuda_scope scope = rl_cuda_enter(context);
    rill_status status =
        rl_cuda_check(context, cudaStreamSynchronize(rl_cuda_state_of(context)->stream), "earlier work on the GPU");
    rl_cuda_leave(context, &scope);
    return status;
}

static rill_status cuda_set_stream(rill_context *context, rill_cuda_stream stream)
{
    rl_cuda_state_of(context)->stream = stream;
    return RILL_OK;
}

static rill_status cuda_get_stream(rill_context *context, rill_cuda_stream *stream)
{
    *stream = rl_cuda_state_of(context)->stream;
    return RILL_OK;
}

const rl_backend rl_backend_cuda = {
    .name = "cuda",
    .id = RILL_BACKEND_CUDA,
    .memory = RILL_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = rl_cuda_copy,
    .synchronize = cuda_synchronize,
    .set_stream = cuda_set_stream,
    .get_stream = cuda_get_stream,
    .scan = rl_cuda_scan,
    .scan_backward = rl_cuda_scan_backward,
    .selective_scan = rl_cuda_selective_scan,
    .selective_scan_backward = rl_cuda_selective_scan_backward,
    .selective_layer = rl_cuda_selective_layer,
    .selective_layer_backward = rl_cuda_selective_layer_backward,
    .linear_attention = rl_cuda_linear_attention,
    .linear_attention_backward = rl_cuda_linear_attention_backward,
};
