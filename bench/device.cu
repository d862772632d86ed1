/* Streams, events and graphs of rill bench on the GPU. */
#include "device.cuh"

#include <cstdlib>

#include <rill/cuda.h>

enum { FLUSH_BYTES = 256 << 20, GRAPH_CALLS = 48, THREADS = 256 };

bool bench_cuda_ok(cudaError_t error, const char *what, failure *why)
{
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    return failure_set(why, "%s: %s", what, cudaGetErrorString(error));
}

static __global__ void read_all(const float4 *data, size_t count, float *sink)
{
    float sum = 0.0f;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) {
        float4 value = data[i];
        sum += value.x + value.y + value.z + value.w;
    }
    if (sum == 1.2345f) *sink = sum; /* never, but the compiler does not know */
}

static void flush(bench_device *device)
{
    read_all<<<4 * device->multiprocessors, THREADS, 0, device->stream>>>(device->flush, FLUSH_BYTES / sizeof(float4),
                                                                          device->sink);
}

static bool open_all(bench_device *device, failure *why)
{
    rill_info info;
    if (rill_context_info(device->context, &info) != RILL_OK) return failure_set(why, "no information on the GPU");
    device->multiprocessors = info.device_sms;
    if (!bench_cuda_ok(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), "a stream", why) ||
        !bench_cuda_ok(cudaMalloc((void **)&device->flush, FLUSH_BYTES), "memory", why) ||
        !bench_cuda_ok(cudaMalloc((void **)&device->sink, sizeof(float)), "memory", why) ||
        !bench_cuda_ok(cudaMemset(device->flush, 0, FLUSH_BYTES), "memory", why))
        return false;
    for (; device->events < 2 * BENCH_MAX_SAMPLES; device->events++)
        if (!bench_cuda_ok(cudaEventCreate(&device->event[device->events]), "an event", why)) return false;
    if (rill_cuda_set_stream(device->context, device->stream) == RILL_OK) return true;
    return failure_set(why, "%s", rill_last_error(device->context));
}

bool bench_device_open(rill_context *context, bench_device **device, failure *why)
{
    *device = (bench_device *)calloc(1, sizeof **device);
    if (!*device) return failure_set(why, "out of memory");
    (*device)->context = context;
    if (open_all(*device, why)) return true;
    bench_device_close(*device);
    *device = NULL;
    return false;
}

/* After the context that uses the stream. */
void bench_device_close(bench_device *device)
{
    if (!device) return;
    for (int i = 0; i < device->events; i++) cudaEventDestroy(device->event[i]);
    cudaFree(device->flush);
    cudaFree(device->sink);
    if (device->stream) cudaStreamDestroy(device->stream);
    free(device);
}

static bool elapsed(bench_device *device, int pairs, int calls, bench_sample *time, failure *why)
{
    double seconds[BENCH_MAX_SAMPLES];
    if (!bench_cuda_ok(cudaStreamSynchronize(device->stream), "the stream", why)) return false;
    for (int i = 0; i < pairs; i++) {
        float milliseconds;
        cudaError_t error = cudaEventElapsedTime(&milliseconds, device->event[2 * i], device->event[2 * i + 1]);
        if (!bench_cuda_ok(error, "an event", why)) return false;
        seconds[i] = 1e-3 * (double)milliseconds / (double)calls;
    }
    *time = bench_summarise(seconds, pairs);
    return true;
}

static bool time_calls(bench_device *device, int samples, const bench_work *work, bench_sample *time, failure *why)
{
    for (int i = 0; i < samples; i++) {
        if (work->prepare && !work->prepare(work->data, why)) return false;
        flush(device);
        cudaEventRecord(device->event[2 * i], device->stream);
        if (!work->run(work->data, why)) return false;
        cudaEventRecord(device->event[2 * i + 1], device->stream);
    }
    return elapsed(device, samples, 1, time, why);
}

static bool capture(bench_device *device, const bench_work *work, cudaGraphExec_t *replay, failure *why)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal);
    if (!bench_cuda_ok(error, "capture", why)) return false;
    bool good = true;
    for (int i = 0; good && i < GRAPH_CALLS; i++) good = work->run(work->data, why);
    error = cudaStreamEndCapture(device->stream, &graph);
    good = good && bench_cuda_ok(error, "capture", why) &&
           bench_cuda_ok(cudaGraphInstantiate(replay, graph, 0), "a graph", why);
    if (graph) cudaGraphDestroy(graph);
    return good;
}

static bool time_graph(bench_device *device, int samples, const bench_work *work, bench_sample *time, failure *why)
{
    cudaGraphExec_t replay;
    if (!capture(device, work, &replay, why)) return false;
    cudaGraphLaunch(replay, device->stream);
    for (int i = 0; i < samples; i++) {
        cudaEventRecord(device->event[2 * i], device->stream);
        cudaGraphLaunch(replay, device->stream);
        cudaEventRecord(device->event[2 * i + 1], device->stream);
    }
    bool good = elapsed(device, samples, GRAPH_CALLS, time, why);
    cudaGraphExecDestroy(replay);
    return good;
}

bool bench_device_time(bench_device *device, bench_mode mode, bool quick, const bench_work *work, bench_sample *time,
                       failure *why)
{
    int samples = quick ? 5 : 40;
    for (int i = 0; i < 3; i++)
        if (!work->run(work->data, why)) return false; /* warm, and the workspace has grown */
    if (mode == BENCH_ONE_CALL) return time_calls(device, samples, work, time, why);
    return time_graph(device, samples, work, time, why);
}

double bench_cuda_least(bench_device *device, int repeats, void (*launch)(bench_device *, void *), void *data)
{
    double least = -1.0;
    launch(device, data);
    for (int i = 0; i < repeats; i++) {
        float milliseconds;
        cudaEventRecord(device->event[0], device->stream);
        launch(device, data);
        cudaEventRecord(device->event[1], device->stream);
        if (cudaStreamSynchronize(device->stream) != cudaSuccess) return -1.0;
        if (cudaEventElapsedTime(&milliseconds, device->event[0], device->event[1]) != cudaSuccess) return -1.0;
        if (least < 0.0 || (double)milliseconds < least) least = (double)milliseconds;
    }
    return cudaGetLastError() == cudaSuccess ? least : -1.0;
}
