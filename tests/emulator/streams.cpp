/* Streams, which do at once what they are asked for; graphs, which keep it for later; events. */
#include <cuda_runtime_api.h>
#include <time.h>

#include "runtime.h"

struct CUgraph_st {
    std::vector<std::function<void()>> work;
};
struct CUgraphExec_st : CUgraph_st {
};
struct CUstream_st {
    CUgraph_st *captured;
};
struct CUevent_st {
    double seconds;
};

namespace emulator
{

namespace
{
thread_local int capturing; /* streams */
} // namespace

bool is_captured(cudaStream_t stream)
{
    return stream > cudaStreamPerThread && stream->captured;
}

bool captures()
{
    return capturing > 0;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work)
{
    if (is_captured(stream))
        stream->captured->work.push_back(work);
    else
        work();
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new CUstream_st();
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return answer(is_captured(stream) ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize()
{
    return answer(captures() ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    if (stream <= cudaStreamPerThread || stream->captured) return answer(cudaErrorIllegalState);
    stream->captured = new CUgraph_st();
    capturing++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    if (!is_captured(stream)) return answer(cudaErrorIllegalState);
    *graph = stream->captured;
    stream->captured = NULL;
    capturing--;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status = is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *replay, cudaGraph_t graph, unsigned long long)
{
    *replay = new CUgraphExec_st();
    (*replay)->work = graph->work;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream)
{
    for (const std::function<void()> &work : replay->work) enqueue(stream, work);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay)
{
    delete replay;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return cudaEventCreate(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    *milliseconds = (float)(1e3 * (end->seconds - begin->seconds));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}
