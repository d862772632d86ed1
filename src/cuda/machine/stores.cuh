/* Stores of several numbers in one access, where the compiler would make one of each. */
#ifndef RL_CUDA_MACHINE_STORES_CUH
#define RL_CUDA_MACHINE_STORES_CUH

/* To global memory, at a multiple of 16 bytes. */
__device__ inline void store_together(float *to, float first, float second, float third, float fourth)
{
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(first), "f"(second), "f"(third),
                 "f"(fourth)
                 : "memory");
}

#endif
