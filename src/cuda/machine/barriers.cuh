/* Barriers that some of a block's threads meet at.  Number 0 is that of __syncthreads. */
#ifndef RL_CUDA_MACHINE_BARRIERS_CUH
#define RL_CUDA_MACHINE_BARRIERS_CUH

template <int barrier, int threads> __device__ inline void barrier_meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(threads) : "memory");
}

/*
 * For a number of threads known at run time.  The same instruction, which here says that warps may meet it in
 * different places of the code.
 */
template <int barrier> __device__ inline void barrier_meet(int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"n"(barrier), "r"(threads) : "memory");
}

/* Whether `value` holds for any of the threads. */
template <int barrier, int threads> __device__ inline bool barrier_meet_any(bool value)
{
    int any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\tbar.red.or.pred q, %2, %3, p;\n\t"
                 "selp.s32 %0, 1, 0, q;\n\t}"
                 : "=r"(any)
                 : "r"((int)value), "n"(barrier), "n"(threads)
                 : "memory");
    return any;
}

/* The same with a barrier known at run time. */
__device__ inline void barrier_meet_numbered(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline bool barrier_meet_any_numbered(int barrier, int threads, bool value)
{
    int any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.s32 p, %1, 0;\n\tbar.red.or.pred q, %2, %3, p;\n\t"
                 "selp.s32 %0, 1, 0, q;\n\t}"
                 : "=r"(any)
                 : "r"((int)value), "r"(barrier), "r"(threads)
                 : "memory");
    return any;
}

#endif
