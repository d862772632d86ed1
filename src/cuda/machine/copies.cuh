/* Copies from global to shared memory that go on while other work is done. */
#ifndef RL_CUDA_MACHINE_COPIES_CUH
#define RL_CUDA_MACHINE_COPIES_CUH

#include <stdint.h>

/* The type of an element's bits alone: elements of 16 bytes may be aligned to 8. */
template <typename T> __device__ inline void copy_async(void *to, const T *from, bool given)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (sizeof(T) == 16) {
        const int bytes = given ? 8 : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared + 8), "l"((const char *)from + 8),
                     "r"(bytes)
                     : "memory");
    } else {
        const int bytes = given ? (int)sizeof(T) : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"((int)sizeof(T)),
                     "r"(bytes)
                     : "memory");
    }
}

/* The first `bytes` of 16; the rest becomes 0. */
__device__ inline void copy_async_16(void *to, const void *from, int bytes)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}

/* The same of what is not needed again soon: it leaves the L2 cache before all else. */
__device__ inline void copy_async_16_passing(void *to, const void *from, int bytes)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(from),
                 "r"(bytes), "l"(policy)
                 : "memory");
}

/* Copies are grouped; wait_copies leaves at most `open` groups on their way. */
__device__ inline void close_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int open> __device__ inline void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

/* Numbers as they lie need no registers on their way: all of them are in flight at once, until await_copies. */
template <typename N> __device__ inline void copy_number(N *to, const N *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
                 "n"((int)sizeof(N))
                 : "memory");
#else
    *to = *from;
#endif
}

/* Before the barrier behind which others read the thread's copies. */
__device__ inline void await_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Brings what lies at an address that will be read into the L2 cache. */
__device__ inline void fetch_ahead(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

#endif
