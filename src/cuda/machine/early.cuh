/*
 * Kernels launched by rl_cuda_launch_early.  Their start, some microseconds of a small problem, overlaps with the end
 * of the kernel ahead; every one of them waits, so that whoever has come past its wait finds all earlier work done.
 */
#ifndef RL_CUDA_MACHINE_EARLY_CUH
#define RL_CUDA_MACHINE_EARLY_CUH

/* Until all that the stream holds ahead of this kernel is done, and its memory is as that left it. */
__device__ inline void await_earlier()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Once every block has called it or ended, the next kernel's blocks may start where there is room for them. */
__device__ inline void let_later_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
