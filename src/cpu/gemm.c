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

static void clear(size_t size, int64_t m, int64_t n, void *out, int64_t out_row)
{
    for (int64_t i = 0; i < m; i++) memset((char *)out + (size_t)(i * out_row) * size, 0, (size_t)n * size);
}

void rl_gemm(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b, int64_t b_row,
             void *out, int64_t out_row)
{
    if (m == 0 || n == 0) return;
    if (k == 0) {
        clear(f64 ? sizeof(double) : sizeof(float), m, n, out, out_row);
        return;
    }
    const blasint M = (blasint)m, N = (blasint)n, K = (blasint)k;
    const blasint lda = (blasint)a_row, ldb = (blasint)b_row, ldc = (blasint)out_row;
    if (f64)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, N, K, 1, a, lda, b, ldb, 0, out, ldc);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, N, K, 1, a, lda, b, ldb, 0, out, ldc);
}

void rl_gemm_plain(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                   int64_t b_row, void *out, int64_t out_row, bool add)
{
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!add) clear(f64 ? sizeof(double) : sizeof(float), m, n, out, out_row);
        return;
    }
    const blasint M = (blasint)m, N = (blasint)n, K = (blasint)k;
    const blasint lda = (blasint)a_row, ldb = (blasint)b_row, ldc = (blasint)out_row;
    if (f64)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1, a, lda, b, ldb, add, out, ldc);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, N, K, 1, a, lda, b, ldb, add, out, ldc);
}

void rl_gemm_turned(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                    int64_t b_row, void *out, int64_t out_row)
{
    if (m == 0 || n == 0 || k == 0) return;
    const blasint M = (blasint)m, N = (blasint)n, K = (blasint)k;
    const blasint lda = (blasint)a_row, ldb = (blasint)b_row, ldc = (blasint)out_row;
    if (f64)
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, M, N, K, 1, a, lda, b, ldb, 1, out, ldc);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, M, N, K, 1, a, lda, b, ldb, 1, out, ldc);
}
