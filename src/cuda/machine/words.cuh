/* Words of global memory by which running blocks talk: whole, not ordered among others, and never from a stale cache.
 */
#ifndef RL_CUDA_MACHINE_WORDS_CUH
#define RL_CUDA_MACHINE_WORDS_CUH

#include <stdint.h>

__device__ inline void store_relaxed(unsigned long long *to, unsigned long long word)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

/* Two neighbours, aligned to 16 bytes. */
__device__ inline void store_relaxed(unsigned long long *to, unsigned long long first, unsigned long long second)
{
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}

__device__ inline void load_relaxed(const uint32_t *from, uint32_t &word)
{
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
}
__device__ inline void load_relaxed(const unsigned long long *from, unsigned long long &word)
{
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
}
__device__ inline void load_relaxed(const unsigned long long *from, unsigned long long &first,
                                    unsigned long long &second)
{
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(from) : "memory");
}

#endif
