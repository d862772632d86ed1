/* What the GPU's side of rill bench shares between its files. */
#ifndef BENCH_DEVICE_CUH
#define BENCH_DEVICE_CUH

#include <cuda_runtime.h>

#include "device.h"

struct bench_device {
    rill_context *context;
    cudaStream_t stream;
    cudaEvent_t event[2 * BENCH_MAX_SAMPLES];
    int events;
    float4 *flush; /* read whole before a repetition: what lies in the cache is then clean and not the problem's */
    float *sink;
    int multiprocessors;
};

/* False with the runtime's words for the error. */
bool bench_cuda_ok(cudaError_t error, const char *what, failure *why);

/* Milliseconds of the fastest of `repeats` runs of launch(data) on the stream; negative on an error. */
double bench_cuda_least(bench_device *device, int repeats, void (*launch)(bench_device *, void *), void *data);

/* Matrix products by cuBLAS, where it is installed; rates stay 0 otherwise. */
void bench_cuda_products(bench_device *device, bool quick, bench_ceilings *ceilings);

#endif
