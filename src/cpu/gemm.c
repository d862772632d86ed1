#include "gemm.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

void rl_gemm_describe(char *text, size_t size)
{
    static const char *const threading[] = {"sequential", "pthreads", "OpenMP"};
    int parallel = openblas_get_parallel();
    snprintf(text, size, "%s (%s)", openblas_get_config(), parallel >= 0 && parallel < 3 ? threading[parallel] : "?");
}

/* A pthread build runs threads of its own beside OpenMP's, and a sequential one need not lock its buffers. */
bool rl_gemm_shared(void)
{
    return openblas_get_parallel() == OPENBLAS_OPENMP;
}

/*
 * OpenBLAS asks omp_in_parallel, which says no in a region of one thread, and would then start all threads there are.
 * This sets the thread count of the calling implicit task only: the caller's own ends up untouched.
 */
void rl_gemm_enter(void)
{
    if (rl_gemm_shared()) omp_set_num_threads(1);
}

typedef struct operand {
    const void *data;
    int64_t row;
    CBLAS_TRANSPOSE turned;
} operand;

static void multiply(bool f64, int64_t m, int64_t n, int64_t k, operand a, operand b, void *out, int64_t out_row,
                     bool add)
{
    const size_t size = f64 ? sizeof(double) : sizeof(float);
    const blasint M = (blasint)m, N = (blasint)n, K = (blasint)k;
    const blasint lda = (blasint)a.row, ldb = (blasint)b.row, ldc = (blasint)out_row;
    if (m == 0 || n == 0) return;
    if (k == 0) {
        for (int64_t i = 0; i < (add ? 0 : m); i++)
            memset((char *)out + (size_t)(i * out_row) * size, 0, (size_t)n * size);
        return;
    }
    if (f64)
        cblas_dgemm(CblasRowMajor, a.turned, b.turned, M, N, K, 1, a.data, lda, b.data, ldb, add, out, ldc);
    else
        cblas_sgemm(CblasRowMajor, a.turned, b.turned, M, N, K, 1, a.data, lda, b.data, ldb, add, out, ldc);
}

void rl_gemm(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b, int64_t b_row,
             void *out, int64_t out_row)
{
    multiply(f64, m, n, k, (operand){a, a_row, CblasNoTrans}, (operand){b, b_row, CblasTrans}, out, out_row, false);
}

void rl_gemm_plain(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                   int64_t b_row, void *out, int64_t out_row, bool add)
{
    multiply(f64, m, n, k, (operand){a, a_row, CblasNoTrans}, (operand){b, b_row, CblasNoTrans}, out, out_row, add);
}

void rl_gemm_turned(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                    int64_t b_row, void *out, int64_t out_row)
{
    multiply(f64, m, n, k, (operand){a, a_row, CblasTrans}, (operand){b, b_row, CblasNoTrans}, out, out_row, true);
}
