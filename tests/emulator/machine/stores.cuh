/* src/cuda/machine/stores.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_STORES_CUH
#define RL_CUDA_MACHINE_STORES_CUH

#include <stdint.h>

inline void store_together(float *to, float first, float second, float third, float fourth)
{
    if ((uintptr_t)to % 16 != 0) emulator::fail("four numbers are stored at %p, which is not aligned", (void *)to);
    to[0] = first, to[1] = second, to[2] = third, to[3] = fourth;
}

#endif
