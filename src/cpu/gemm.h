/* Matrix products, by OpenBLAS. */
#ifndef RL_CPU_GEMM_H
#define RL_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library's version and threading, as text. */
void rl_gemm_describe(char *text, size_t size);

/* Whether several threads of a parallel region may call rl_gemm at once, each call running on its caller alone. */
bool rl_gemm_shared(void);

/* Called by each thread of a parallel region before its calls of rl_gemm. */
void rl_gemm_enter(void);

/*
 * out[m][n] = a[m][k] b[n][k]ᵀ, all row-major, rows at the given distances, in double or float.  Any size may be 0;
 * sizes and distances fit an int.  A row of out depends on its own row of a only, also where there are NaNs.
 */
void rl_gemm(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b, int64_t b_row,
             void *out, int64_t out_row);

/* out[m][n] = a[m][k] b[k][n], or that is added to it.  As above. */
void rl_gemm_plain(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                   int64_t b_row, void *out, int64_t out_row, bool add);

/* out[m][n] += a[k][m]ᵀ b[k][n]: sums over rows. */
void rl_gemm_turned(bool f64, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, const void *b,
                    int64_t b_row, void *out, int64_t out_row);

#endif
