/* src/cuda/machine/held.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_HELD_CUH
#define RL_CUDA_MACHINE_HELD_CUH

#include <stdint.h>

constexpr bool HAS_PRODUCTS = true;

template <int COUNT> inline void hold(float (&)[COUNT])
{
}
template <int COUNT> inline void hold(uint32_t (&)[COUNT][4])
{
}
inline int hidden(int number)
{
    return number;
}

#endif
