/* src/cuda/machine/mma.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_MMA_CUH
#define RL_CUDA_MACHINE_MMA_CUH

#include <machine/numbers.cuh>

#include "products.h"

template <Number number> inline void product_of_warp(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulator::multiply_in_warp((emulator::Format)number, sum, a, b);
}

template <int count, bool turned> inline void matrices_load(uint32_t (&value)[count], const void *row)
{
    static_assert(count == 1 || count == 2 || count == 4, "what the instruction has");
    emulator::load_matrices(value, row, count, turned);
}

template <int count, bool turned> inline void matrices_store(void *row, const uint32_t (&value)[count])
{
    static_assert(count == 1 || count == 2 || count == 4, "what the instruction has");
    emulator::store_matrices(row, value, count, turned);
}

#endif
