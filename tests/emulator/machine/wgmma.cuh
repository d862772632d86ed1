/* src/cuda/machine/wgmma.cuh for the emulator, where any N is taken. */
#ifndef RL_CUDA_MACHINE_WGMMA_CUH
#define RL_CUDA_MACHINE_WGMMA_CUH

#include <machine/numbers.cuh>

#include "products.h"

enum Swizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

inline uint64_t tile_descriptor(const void *tile, uint32_t leading, uint32_t stride, Swizzle swizzle)
{
    return emulator::describe_tile(tile, leading, stride, swizzle);
}

inline void products_fence()
{
}
inline void products_commit()
{
    emulator::close_products();
}
template <int open> inline void products_wait()
{
    emulator::wait_for_products(open);
}

template <int registers> inline void registers_raise()
{
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "what setmaxnreg takes");
}
template <int registers> inline void registers_lower()
{
    registers_raise<registers>();
}

template <Number number, int N, bool a_turned, bool b_turned>
inline void product_of_tiles(float (&sum)[N / 2], uint64_t a, uint64_t b, bool adds)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "what the instruction has");
    static_assert(number != TF32 || (!a_turned && !b_turned), "tiles of tf32 run along K");
    emulator::multiply_later(sum, {(emulator::Format)number, N, a_turned, b_turned, adds, false, {}, a, b});
}

template <Number number, int N, bool b_turned>
inline void product_of_registers(float (&sum)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "what the instruction has");
    static_assert(number != TF32 || !b_turned, "tiles of tf32 run along K");
    emulator::multiply_later(
        sum, {(emulator::Format)number, N, false, b_turned, adds, true, {a[0], a[1], a[2], a[3]}, 0, b});
}

#endif
