/*
 * Products of small tiles by a warp (mma), and its loads and stores of 8 x 8 elements of 16 bits (ldmatrix,
 * stmatrix):
 *
 *     sum[16, 8] += A[16, K] B[K, 8]      K = 16 of bf16 or f16, or 8 of tf32; sums in float
 *
 * Lane l holds sum[i] of row l / 4 + 8 (i / 2) and column 2 (l % 4) + i % 2; a[i] of row l / 4 + 8 (i % 2) and
 * columns 2 (l % 4) + 8 (i / 2) and the next one, lower half first; b[i] of column l / 4 and rows 2 (l % 4) + 8 i and
 * the next one.  Of tf32, a[i] is of column l % 4 + 4 (i / 2), b[i] of row l % 4 + 4 i.
 */
#ifndef RL_CUDA_MACHINE_MMA_CUH
#define RL_CUDA_MACHINE_MMA_CUH

#include <machine/numbers.cuh>
#include <stdint.h>

#define RL_MMA(shape, types)                                                                                         \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "         \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                       \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <Number number>
__device__ inline void product_of_warp(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    if constexpr (number == BF16)
        RL_MMA("m16n8k16", "bf16.bf16");
    else if constexpr (number == F16)
        RL_MMA("m16n8k16", "f16.f16");
    else
        RL_MMA("m16n8k8", "tf32.tf32");
}

#undef RL_MMA

/*
 * `count` (1, 2, 4) matrices; lane l gives the address of row l % 8 of matrix l / 8, 16 bytes aligned to 16, and
 * holds of matrix i in value[i] row l / 4 and columns 2 (l % 4) and the next one; turned: column l / 4 and those
 * rows.
 */
template <int count, bool turned> __device__ inline void matrices_load(uint32_t (&value)[count], const void *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if constexpr (count == 1 && !turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(value[0]) : "r"(at) : "memory");
    else if constexpr (count == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(value[0])
                     : "r"(at)
                     : "memory");
    else if constexpr (count == 2 && !turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(value[0]), "=r"(value[1])
                     : "r"(at)
                     : "memory");
    else if constexpr (count == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(value[0]), "=r"(value[1])
                     : "r"(at)
                     : "memory");
    else if constexpr (!turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                     : "r"(at)
                     : "memory");
}

template <int count, bool turned> __device__ inline void matrices_store(void *row, const uint32_t (&value)[count])
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if constexpr (count == 1 && !turned)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(at), "r"(value[0]) : "memory");
    else if constexpr (count == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(at), "r"(value[0])
                     : "memory");
    else if constexpr (count == 2 && !turned)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(value[0]),
                     "r"(value[1])
                     : "memory");
    else if constexpr (count == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(value[0]),
                     "r"(value[1])
                     : "memory");
    else if constexpr (!turned)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(value[0]),
                     "r"(value[1]), "r"(value[2]), "r"(value[3])
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
                     : "memory");
}

#endif
