/* src/cuda/machine/arithmetic.cuh for the emulator.  What is rough on the device is exact here, but flushes as there.
 */
#ifndef RL_CUDA_MACHINE_ARITHMETIC_CUH
#define RL_CUDA_MACHINE_ARITHMETIC_CUH

#include <immintrin.h>
#include <stdint.h>

inline float half_to_float(uint16_t bits)
{
    return _cvtsh_ss(bits);
}
inline uint16_t float_to_half(float value)
{
    return value != value ? 0x7fff : _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}
inline uint16_t float_to_bfloat(float value)
{
    const uint32_t bits = __float_as_uint(value);
    return value != value ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline uint32_t pack_bfloats(float low, float high)
{
    return float_to_bfloat(low) | (uint32_t)float_to_bfloat(high) << 16;
}
inline uint32_t pack_halves(float low, float high)
{
    return float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}
inline uint32_t add_squares(uint32_t sums, uint32_t numbers)
{
    const float low = __uint_as_float(numbers << 16), high = __uint_as_float(numbers & 0xffff0000u);
    return pack_bfloats(__uint_as_float(sums << 16) + low * low, __uint_as_float(sums & 0xffff0000u) + high * high);
}

template <typename T> inline T product_unless_zero(T a, T h, T otherwise)
{
    return a != 0 ? a * h : otherwise;
}
template <typename T> inline T step_unless_zero(T a, T h, T b)
{
    return a != 0 ? a * h + b : b;
}

inline float zero_below_normal(float power, float exponent)
{
    return exponent < -125.0f ? 0.0f : power;
}

inline float flushed(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}
inline float exp2_rough(float value)
{
    return flushed(exp2f(flushed(value)));
}
inline float log2_rough(float value)
{
    return log2f(flushed(value));
}
inline float reciprocal_rough(float value)
{
    return flushed(1 / flushed(value));
}

inline void hide(int64_t &, int64_t &)
{
}

#endif
