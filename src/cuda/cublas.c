#include "cublas.h"

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_BYTES = 32 << 20 }; /* what cuBLAS's manual advises for Hopper; given, so products allocate nothing */

struct rl_cublas {
    void *library;
    cublasHandle_t handle;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*get_version)(cublasHandle_t, int *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*set_math_mode)(cublasHandle_t, cublasMath_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *,
                           cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
};

static bool find_all(rl_cublas *cublas)
{
    const struct {
        const char *name;
        void *place;
    } wanted[] = {
        {"cublasCreate_v2", &cublas->create},
        {"cublasDestroy_v2", &cublas->destroy},
        {"cublasGetVersion_v2", &cublas->get_version},
        {"cublasSetStream_v2", &cublas->set_stream},
        {"cublasSetWorkspace_v2", &cublas->set_workspace},
        {"cublasSetMathMode", &cublas->set_math_mode},
        {"cublasGemmEx", &cublas->gemm},
    };
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
        void *found = dlsym(cublas->library, wanted[k].name);
        if (!found) return false;
        *(void **)wanted[k].place = found;
    }
    return true;
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        void *library = dlopen(names[k], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

rill_status rl_cublas_open(rill_context *context)
{
    rl_cuda_state *state = rl_cuda_state_of(context);
    if (state->cublas_tried) return RILL_OK;
    if (rl_cuda_capturing(context))
        return rl_fail(context, RILL_OUT_OF_MEMORY,
                       "cuBLAS cannot be opened while the stream is captured into a graph; make the same call once "
                       "before the capture");
    rl_cublas *cublas = calloc(1, sizeof *cublas);
    if (!cublas) return rl_fail(context, RILL_OUT_OF_MEMORY, "cuBLAS: no host memory for a handle");
    state->cublas_tried = true;
    int version = 0;
    cublas->library = open_library();
    if (!cublas->library || !find_all(cublas) || cublas->create(&cublas->handle) != CUBLAS_STATUS_SUCCESS) {
        rl_cublas_close(cublas);
        return RILL_OK;
    }
    cublas->get_version(cublas->handle, &version);
    snprintf(state->blas, sizeof state->blas, "rill's own, for 16 bits cuBLAS %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    state->cublas = cublas;
    return RILL_OK;
}

void rl_cublas_close(rl_cublas *cublas)
{
    if (!cublas) return;
    if (cublas->handle) cublas->destroy(cublas->handle);
    if (cublas->library) dlclose(cublas->library);
    free(cublas);
}

size_t rl_cublas_scratch_bytes(void)
{
    return SCRATCH_BYTES;
}

static rill_status check(rill_context *context, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return RILL_OK;
    rill_status kind = status == CUBLAS_STATUS_ALLOC_FAILED ? RILL_OUT_OF_MEMORY : RILL_DEVICE_ERROR;
    return rl_fail(context, kind, "cuBLAS: %s failed with status %d", what, (int)status);
}

rill_status rl_cublas_begin(rill_context *context, void *scratch)
{
    rl_cuda_state *state = rl_cuda_state_of(context);
    rl_cublas *cublas = state->cublas;
    cublasMath_t mode = (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    rill_status status = check(context, cublas->set_math_mode(cublas->handle, mode), "the math mode");
    if (status == RILL_OK) status = check(context, cublas->set_stream(cublas->handle, state->stream), "the stream");
    if (status == RILL_OK) /* after the stream, which would go back to cuBLAS's own scratch */
        status = check(context, cublas->set_workspace(cublas->handle, scratch, SCRATCH_BYTES), "the scratch");
    return status;
}

rill_status rl_cublas_product(rill_context *context, rill_dtype dtype, int64_t rows, int64_t columns, int64_t inner,
                              const void *x, int64_t x_row, const void *w, int64_t w_row, void *out, int64_t out_row)
{
    rl_cublas *cublas = rl_cuda_state_of(context)->cublas;
    cudaDataType type = dtype == RILL_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    const float one = 1, zero = 0;
    /* cuBLAS is column-major: it sees outᵀ = w xᵀ. */
    return check(context,
                 cublas->gemm(cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)columns, (int)rows, (int)inner, &one, w,
                              type, (int)w_row, x, type, (int)x_row, &zero, out, CUDA_R_32F, (int)out_row,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "a product");
}
