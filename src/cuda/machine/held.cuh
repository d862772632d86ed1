/* Registers that products of tiles hold while they are under way, and numbers as these take them. */
#ifndef RL_CUDA_MACHINE_HELD_CUH
#define RL_CUDA_MACHINE_HELD_CUH

#include <stdint.h>

/* Whether code is made for a device that has products of tiles: 9.0, as 90a. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HAS_PRODUCTS = true;
#else
constexpr bool HAS_PRODUCTS = false;
#endif

/* Before the first product and behind the wait: no use of the registers is moved between, nor others put there. */
template <int COUNT> __device__ inline void hold(float (&sum)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sum[i])::"memory");
}
template <int COUNT> __device__ inline void hold(uint32_t (&a)[COUNT][4])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

/* The number, of which the compiler does not know where it comes from. */
__device__ inline int hidden(int number)
{
    asm volatile("" : "+r"(number));
    return number;
}

/* Two numbers rounded to bfloat16, to nearest even: the first in the lower half. */
__device__ inline uint32_t pack_bfloats(float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

#endif
