/* The GPU's own ceilings: copy bandwidth, exponentials, state steps. */
#include "device.cuh"

enum { COPY_BYTES = 1 << 30, THREADS = 256, ROUNDS = 4096, CHAINS = 8 };

typedef struct loop {
    void *from, *to;
    int blocks;
} loop;

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Each chain feeds its exponential back, so that none can be left out. */
static __global__ void exponentials(float *sink)
{
    float x[CHAINS], sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) x[i] = -0.001f * (float)(threadIdx.x + i);
    for (int round = 0; round < ROUNDS; round++)
#pragma unroll
        for (int i = 0; i < CHAINS; i++) x[i] = exp2_fast(x[i]);
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum == 1.2345f) *sink = sum;
}

/* h = exp2(δ A) h + u B, y += C h: an exponential and four multiply-adds, as in a selective scan. */
static __global__ void state_steps(float *sink)
{
    float A[CHAINS], h[CHAINS], delta = 0.01f, y[2] = {0.0f, 0.0f};
    for (int i = 0; i < CHAINS; i++) {
        A[i] = -0.01f * (float)(threadIdx.x + i + 1);
        h[i] = 0.0f;
    }
    for (int round = 0; round < ROUNDS; round++) {
        float u = delta * 0.5f;
#pragma unroll
        for (int i = 0; i < CHAINS; i++) {
            h[i] = fmaf(exp2_fast(delta * A[i]), h[i], u * A[i]);
            y[i & 1] = fmaf(A[i], h[i], y[i & 1]);
        }
        delta += 1e-6f;
    }
    if (y[0] + y[1] == 1.2345f) *sink = y[0];
}

static void launch_copy(bench_device *device, void *data)
{
    const loop *how = (const loop *)data;
    cudaMemcpyAsync(how->to, how->from, COPY_BYTES, cudaMemcpyDeviceToDevice, device->stream);
}

static void launch_exponentials(bench_device *device, void *data)
{
    exponentials<<<((const loop *)data)->blocks, THREADS, 0, device->stream>>>(device->sink);
}

static void launch_state_steps(bench_device *device, void *data)
{
    state_steps<<<((const loop *)data)->blocks, THREADS, 0, device->stream>>>(device->sink);
}

static double per_second(double amount, double milliseconds)
{
    return milliseconds > 0.0 ? 1e3 * amount / milliseconds : 0.0;
}

bool bench_device_ceilings(bench_device *device, bool quick, bench_ceilings *ceilings, failure *why)
{
    int repeats = quick ? 3 : 10;
    loop how = {};
    how.blocks = 8 * device->multiprocessors;
    bool good = bench_cuda_ok(cudaMalloc(&how.from, COPY_BYTES), "memory", why) &&
                bench_cuda_ok(cudaMalloc(&how.to, COPY_BYTES), "memory", why) &&
                bench_cuda_ok(cudaMemset(how.from, 0, COPY_BYTES), "memory", why);
    if (good) {
        double loops = (double)how.blocks * THREADS * ROUNDS * CHAINS;
        *ceilings = bench_ceilings{};
        ceilings->bytes = per_second(2.0 * COPY_BYTES, bench_cuda_least(device, repeats, launch_copy, &how));
        ceilings->exponentials = per_second(loops, bench_cuda_least(device, repeats, launch_exponentials, &how));
        ceilings->state_steps = per_second(loops, bench_cuda_least(device, repeats, launch_state_steps, &how));
        bench_cuda_products(device, quick, ceilings);
        if (ceilings->bytes <= 0.0 || ceilings->state_steps <= 0.0) good = failure_set(why, "a ceiling failed");
    }
    cudaFree(how.from);
    cudaFree(how.to);
    return good;
}
