/* On a GPU: cuBLAS and small kernels, all on the context's stream. */
#include <cublas_v2.h>
#include <rill/cuda.h>

#include <stdlib.h>

#include "compute.h"
#include "fail.h"

struct recording {
    cudaGraphExec_t graph;
    size_t nodes;
};

namespace
{

constexpr int THREADS = 256, WARP = 32;

struct gpu : compute {
    cudaStream_t stream;
    cublasHandle_t products;
};

gpu *gpu_of(compute *self)
{
    return static_cast<gpu *>(self);
}

void check_cuda(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) fail("CUDA: %s: %s", what, cudaGetErrorString(error));
}

void check_products(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS) fail("cuBLAS: %s", cublasGetStatusString(status));
}

unsigned blocks_of(int64_t work)
{
    const int64_t blocks = (work + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX) fail("a block of that many tokens is too large");
    return (unsigned)blocks;
}

__device__ int64_t place()
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* The threads of a block together; each gets the whole. */
template <typename Join> __device__ float over_block(float own, Join join)
{
    __shared__ float parts[THREADS / WARP];
    for (int distance = WARP / 2; distance > 0; distance /= 2) own = join(own, __shfl_xor_sync(~0u, own, distance));
    __syncthreads(); /* parts of the call before have been read */
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = own;
    __syncthreads();
    float all = parts[0];
    for (int k = 1; k < THREADS / WARP; k++) all = join(all, parts[k]);
    return all;
}
__device__ float sum_of_block(float own)
{
    return over_block(own, [](float x, float y) { return x + y; });
}

__global__ void embed_kernel(float *out, const float *table, const int64_t *tokens, int64_t count, int64_t width)
{
    const int64_t k = place();
    if (k < count) out[k] = table[tokens[k / width] * width + k % width];
}

__global__ void normalize_kernel(float *out, const float *x, int64_t x_row, const float *weight, int64_t width,
                                 float epsilon)
{
    const float *from = x + blockIdx.x * x_row;
    float sum = 0;
    for (int64_t k = threadIdx.x; k < width; k += THREADS) sum += from[k] * from[k];
    const float factor = 1 / sqrtf(sum_of_block(sum) / (float)width + epsilon);
    for (int64_t k = threadIdx.x; k < width; k += THREADS)
        out[blockIdx.x * width + k] = weight[k] * (from[k] * factor);
}

__global__ void bias_kernel(float *out, const float *bias, int64_t count, int64_t width, bool add)
{
    const int64_t k = place();
    if (k < count) out[k] = bias[k % width] + (add ? out[k] : 0);
}

struct Convolution {
    float *out, *window;
    const float *x, *weight, *bias;
    int64_t x_row, batch, length, channels, taps;
};

/* The input at step t of the block, and before it that of the window. */
__device__ float input_at(const Convolution &c, int64_t b, int64_t t, int64_t channel)
{
    return t >= 0 ? c.x[(b * c.length + t) * c.x_row + channel]
                  : c.window[(b * (c.taps - 1) + c.taps - 1 + t) * c.channels + channel];
}

__device__ void convolve_step(const Convolution &c, int64_t b, int64_t t, int64_t channel)
{
    float sum = c.bias ? c.bias[channel] : 0;
    for (int64_t k = 0; k < c.taps; k++)
        sum += c.weight[k * c.channels + channel] * input_at(c, b, t - c.taps + 1 + k, channel);
    c.out[(b * c.length + t) * c.channels + channel] = sum / (1 + expf(-sum));
}

/* The first steps look at the window: one thread takes them all, and then replaces it. */
__global__ void convolve_kernel(const Convolution c)
{
    const int64_t late = max(c.length - c.taps + 1, (int64_t)0), k = place(), channel = k % c.channels;
    const int64_t line = k / c.channels, b = line / (late + 1), t = line % (late + 1);
    if (b >= c.batch) return;
    if (t > 0) return convolve_step(c, b, c.taps - 2 + t, channel);
    for (int64_t step = 0; step < min(c.length, c.taps - 1); step++) convolve_step(c, b, step, channel);
    for (int64_t back = 0; back < c.taps - 1; back++)
        c.window[(b * (c.taps - 1) + back) * c.channels + channel] =
            input_at(c, b, c.length - c.taps + 1 + back, channel);
}

__global__ void surprise_kernel(float *bits, const float *logits, const int64_t *targets, int64_t vocab)
{
    const float *line = logits + blockIdx.x * vocab;
    float most = -INFINITY, sum = 0;
    for (int64_t k = threadIdx.x; k < vocab; k += THREADS) most = fmaxf(most, line[k]);
    most = over_block(most, [](float x, float y) { return fmaxf(x, y); });
    for (int64_t k = threadIdx.x; k < vocab; k += THREADS) sum += expf(line[k] - most);
    sum = sum_of_block(sum);
    if (threadIdx.x == 0)
        bits[blockIdx.x] = (float)((log((double)sum) + most - line[targets[blockIdx.x]]) / log(2.0));
}

void launched()
{
    check_cuda(cudaGetLastError(), "launch of a kernel");
}

void destroy(compute *self)
{
    gpu *on = gpu_of(self);
    check_products(cublasDestroy(on->products));
    free(on);
}

/* cuBLAS counts columns first: outᵀ = w xᵀ. */
void multiply(compute *self, float *out, const float *x, const float *w, int64_t rows, int64_t columns, int64_t inner,
              bool add)
{
    const float one = 1, keep = add;
    check_products(cublasSgemm(gpu_of(self)->products, CUBLAS_OP_T, CUBLAS_OP_N, (int)columns, (int)rows, (int)inner,
                               &one, w, (int)inner, x, (int)inner, &keep, out, (int)columns));
}

void embed(compute *self, float *out, const float *table, const int64_t *tokens, int64_t rows, int64_t width)
{
    const int64_t count = rows * width;
    embed_kernel<<<blocks_of(count), THREADS, 0, gpu_of(self)->stream>>>(out, table, tokens, count, width);
    launched();
}

void normalize(compute *self, float *out, const float *x, int64_t x_row, const float *weight, int64_t rows,
               int64_t width, double epsilon)
{
    normalize_kernel<<<(unsigned)rows, THREADS, 0, gpu_of(self)->stream>>>(out, x, x_row, weight, width,
                                                                           (float)epsilon);
    launched();
}

void add_bias(compute *self, float *out, const float *bias, int64_t rows, int64_t width, bool add)
{
    const int64_t count = rows * width;
    bias_kernel<<<blocks_of(count), THREADS, 0, gpu_of(self)->stream>>>(out, bias, count, width, add);
    launched();
}

void convolve(compute *self, float *out, const float *x, int64_t x_row, const float *weight, const float *bias,
              float *window, int64_t batch, int64_t length, int64_t channels, int64_t taps)
{
    const int64_t late = length > taps - 1 ? length - taps + 1 : 0;
    const Convolution c = {out, window, x, weight, bias, x_row, batch, length, channels, taps};
    convolve_kernel<<<blocks_of(batch * (late + 1) * channels), THREADS, 0, gpu_of(self)->stream>>>(c);
    launched();
}

void surprise(compute *self, float *bits, const float *logits, const int64_t *targets, int64_t rows, int64_t vocab)
{
    surprise_kernel<<<(unsigned)rows, THREADS, 0, gpu_of(self)->stream>>>(bits, logits, targets, vocab);
    launched();
}

void replay(compute *self, recording *recorded)
{
    check_cuda(cudaGraphLaunch(recorded->graph, gpu_of(self)->stream), "launch of a graph");
}

recording *record(compute *self, void (*work)(void *), void *argument)
{
    recording *recorded = (recording *)take(1, sizeof *recorded);
    const cudaStream_t stream = gpu_of(self)->stream;
    cudaGraph_t graph;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    work(argument);
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
    check_cuda(cudaGraphGetNodes(graph, NULL, &recorded->nodes), "nodes of a graph");
    check_cuda(cudaGraphInstantiate(&recorded->graph, graph, 0), "instantiation of a graph");
    check_cuda(cudaGraphDestroy(graph), "destruction of a graph");
    replay(self, recorded);
    return recorded;
}

int64_t parts(const recording *recorded)
{
    return (int64_t)recorded->nodes;
}

void forget(compute *self, recording *recorded)
{
    check_cuda(cudaStreamSynchronize(gpu_of(self)->stream), "wait");
    check_cuda(cudaGraphExecDestroy(recorded->graph), "destruction of a graph");
    free(recorded);
}

} // namespace

compute *compute_create_cuda(rill_context *context)
{
    static const methods does = {destroy,  multiply, embed,  normalize, add_bias, convolve,
                                 surprise, record,   replay, parts,     forget};
    gpu *self = (gpu *)take(1, sizeof *self);
    self->does = &does;
    self->rill = context;
    self->device = RILL_CUDA;
    rill_cuda_stream stream;
    check(self, rill_cuda_get_stream(context, &stream));
    self->stream = stream;
    check_products(cublasCreate(&self->products));
    check_products(cublasSetStream(self->products, stream));
    return self;
}
