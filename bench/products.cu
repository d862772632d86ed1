/*
 * Matrix products by cuBLAS, opened at run time so that the command starts without it.  At the accuracy of f32 the
 * best is plain f32 or three passes of tf32.
 */
#include "device.cuh"

#include <dlfcn.h>

#include <library_types.h>

enum {
    COMPUTE_F32 = 68,
    COMPUTE_F64 = 70,
    COMPUTE_TF32 = 77,
    ALGORITHM = -1,
    TRANSPOSE = 1
}; /* cuBLAS' own numbers */

typedef int create_function(void **handle);
typedef int destroy_function(void *handle);
typedef int stream_function(void *handle, cudaStream_t stream);
typedef int product_function(void *handle, int transa, int transb, int m, int n, int k, const void *alpha,
                             const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta,
                             void *c, int c_type, int ldc, int compute, int algorithm);

typedef struct product {
    product_function *multiply;
    void *handle;
    float *a, *c;
    int n, type, out_type, compute;
    bool failed;
} product;

/* Random bits below 1 in magnitude for every type: zeros would run faster than real data. */
static __global__ void fill(unsigned *data, size_t count, unsigned keep, unsigned set)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) {
        unsigned bits = (unsigned)i * 2654435761u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        data[i] = ((bits ^ bits >> 13) & keep) | set;
    }
}

static void launch(bench_device *, void *data)
{
    product *p = (product *)data;
    const double one = 1.0, zero = 0.0;
    const float one_f32 = 1.0f, zero_f32 = 0.0f;
    bool wide = p->compute == COMPUTE_F64;
    int status = p->multiply(p->handle, TRANSPOSE, 0, p->n, p->n, p->n, wide ? (const void *)&one : &one_f32, p->a,
                             p->type, p->n, p->a, p->type, p->n, wide ? (const void *)&zero : &zero_f32, p->c,
                             p->out_type, p->n, p->compute, ALGORITHM);
    p->failed = p->failed || status != 0;
}

static double rate(bench_device *device, product *p, int type, int out_type, int compute, unsigned keep, unsigned set)
{
    p->type = type;
    p->out_type = out_type;
    p->compute = compute;
    p->failed = false;
    size_t words = (size_t)p->n * p->n * 2;
    fill<<<4 * device->multiprocessors, 256, 0, device->stream>>>((unsigned *)p->a, words, keep, set);
    double milliseconds = bench_cuda_least(device, 5, launch, p);
    if (p->failed || milliseconds <= 0.0) return 0.0;
    return 2.0 * p->n * (double)p->n * p->n / (1e-3 * milliseconds);
}

static void *open_cublas(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return nullptr;
}

static void measure(bench_device *device, product *p, bench_ceilings *ceilings)
{
    /* a random sign and mantissa beside an exponent that keeps values between 1/2 and 1 */
    double plain = rate(device, p, CUDA_R_32F, CUDA_R_32F, COMPUTE_F32, 0x807fffffu, 0x3f000000u);
    double tf32 = rate(device, p, CUDA_R_32F, CUDA_R_32F, COMPUTE_TF32, 0x807fffffu, 0x3f000000u) / 3.0;
    ceilings->flops_f32 = plain > tf32 ? plain : tf32;
    ceilings->flops_bf16 = rate(device, p, CUDA_R_16BF, CUDA_R_32F, COMPUTE_F32, 0x807f807fu, 0x3f003f00u);
    ceilings->flops_f16 = rate(device, p, CUDA_R_16F, CUDA_R_32F, COMPUTE_F32, 0x83ff83ffu, 0x38003800u);
    ceilings->flops_f64 = rate(device, p, CUDA_R_64F, CUDA_R_64F, COMPUTE_F64, 0x800fffffu, 0x3fe00000u);
}

void bench_cuda_products(bench_device *device, bool quick, bench_ceilings *ceilings)
{
    product p = {};
    p.n = quick ? 4096 : 8192;
    size_t bytes = (size_t)p.n * p.n * sizeof(double);
    void *library = open_cublas();
    if (!library) return;
    create_function *create = (create_function *)dlsym(library, "cublasCreate_v2");
    destroy_function *destroy = (destroy_function *)dlsym(library, "cublasDestroy_v2");
    stream_function *set_stream = (stream_function *)dlsym(library, "cublasSetStream_v2");
    p.multiply = (product_function *)dlsym(library, "cublasGemmEx");
    if (create && destroy && set_stream && p.multiply && create(&p.handle) == 0) {
        bool ready = set_stream(p.handle, device->stream) == 0 && cudaMalloc((void **)&p.a, bytes) == cudaSuccess &&
                     cudaMalloc((void **)&p.c, bytes) == cudaSuccess;
        if (ready) measure(device, &p, ceilings);
        destroy(p.handle);
    }
    cudaFree(p.a);
    cudaFree(p.c);
    dlclose(library);
}
