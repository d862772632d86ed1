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

#endif
