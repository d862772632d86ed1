/* A kernel as a launch names it, and the memory that a launch gives each block. */
#ifndef RL_CUDA_MACHINE_KERNEL_CUH
#define RL_CUDA_MACHINE_KERNEL_CUH

/* What cudaLaunchKernel and its like take for a kernel. */
template <auto kernel> const void *kernel_address()
{
    return (const void *)kernel;
}

/* The block's dynamic shared memory, aligned as swizzled tiles need it. */
extern __shared__ __align__(1024) unsigned char dynamic_shared[];

/* The same as a T, by an address that stays in a register, where the compiler would work it out anew at every use. */
template <typename T> __device__ inline T &shared_as()
{
    unsigned address = (unsigned)__cvta_generic_to_shared(dynamic_shared);
    asm volatile("" : "+r"(address));
    return *(T *)__cvta_shared_to_generic(address);
}

#endif
