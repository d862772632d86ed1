/* src/cuda/machine/held.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_HELD_CUH
#define RL_CUDA_MACHINE_HELD_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

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

inline uint32_t pack_bfloats(float first, float second)
{
    const float given[] = {first, second};
    uint32_t word = 0;
    for (int k = 0; k < 2; k++) {
        uint32_t bits;
        memcpy(&bits, &given[k], sizeof bits);
        bits = isnan(given[k]) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        word |= bits << 16 * k;
    }
    return word;
}

#endif
