/* Scalar conversions of the 16-bit types, exact to float and rounded to nearest even from it. */
#ifndef RL_HALF_H
#define RL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float rl_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t rl_bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float rl_float_from_bf16(uint16_t half)
{
    return rl_float_from_bits((uint32_t)half << 16);
}

static inline uint16_t rl_bf16_from_float(float value)
{
    uint32_t bits = rl_bits_from_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* NaN stays a quiet NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float rl_float_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f) return rl_float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return rl_float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* zero and the subnormals */
    return rl_float_from_bits(sign | rl_bits_from_float(magnitude));
}

static inline uint16_t rl_f16_from_float(float value)
{
    uint32_t bits = rl_bits_from_float(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and up */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 1/2 rounds at the subnormals' last bit, 2^-24 */
        uint32_t rounded = rl_bits_from_float(rl_float_from_bits(magnitude) + 0.5f);
        return (uint16_t)(sign | (rounded - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

#endif
