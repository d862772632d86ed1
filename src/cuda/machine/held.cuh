/* Registers that products of tiles hold while they are under way. */
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

#endif
