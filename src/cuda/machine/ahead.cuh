/* Memory that will be read some time later. */
#ifndef RL_CUDA_MACHINE_AHEAD_CUH
#define RL_CUDA_MACHINE_AHEAD_CUH

/* Brings the line of an address of global memory into the second-level cache. */
__device__ inline void bring_near(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

#endif
