/* The part of the CUDA runtime that this tree uses, but for kernels and streams: the device, errors, memory. */
#include <cuda_runtime_api.h>
#include <string.h>

#include <stdio.h>

#include "runtime.h"
#include "tensor_map.h"

namespace emulator
{

thread_local cudaError_t last_error;

cudaError_t answer(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidDeviceFunction:
        return "invalid device function";
    case cudaErrorNotSupported:
        return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    default:
        return "an error that the emulator has no words for";
    }
}

const char *cudaGetErrorName(cudaError_t error)
{
    return cudaGetErrorString(error);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return answer(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device != 0) return answer(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    const bool whole = most_shared() == MOST_SHARED;
    snprintf(properties->name, sizeof properties->name, whole ? "emulated H200" : "emulated GPU");
    properties->major = whole ? 9 : 8;
    properties->multiProcessorCount = multiprocessors();
    properties->totalGlobalMem = (size_t)139 << 30;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = MOST_THREADS;
    properties->maxThreadsPerMultiProcessor = MULTIPROCESSOR_THREADS;
    properties->sharedMemPerBlock = USUAL_SHARED;
    properties->sharedMemPerBlockOptin = most_shared();
    properties->sharedMemPerMultiprocessor = MULTIPROCESSOR_SHARED;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->l2CacheSize = 60 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors();
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)most_shared();
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = most_shared() == MOST_SHARED ? 9 : 8;
        return cudaSuccess;
    default:
        return answer(cudaErrorNotSupported);
    }
}

static cudaError_t find_entry_point(const char *name, void **function, cudaDriverEntryPointQueryResult *result)
{
    const bool found = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *function = found ? (void *)find_encode() : NULL;
    if (result) *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result)
{
    return find_entry_point(name, function, result);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *result)
{
    return find_entry_point(name, function, result);
}
#endif

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return answer(captures() ? cudaErrorStreamCaptureUnsupported : allocate(memory, bytes));
}

cudaError_t cudaFree(void *memory)
{
    return answer(captures() ? cudaErrorStreamCaptureUnsupported : release(memory));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind, cudaStream_t stream)
{
    return answer(enqueue(stream, [=] { memmove(to, from, bytes); }));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return answer(enqueue(stream, [=] { memset(to, value, bytes); }));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    return answer(is_captured(stream) ? cudaErrorNotSupported : allocate(memory, bytes));
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    return answer(is_captured(stream) ? cudaErrorNotSupported : release(memory));
}
