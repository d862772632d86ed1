/*
 * One vector of elements in memory to and from the accumulation type: 16-bit types widened exactly, and rounded once
 * to nearest even on the way back.  float64 work has float64 data only.
 */
#ifndef RL_CPU_CONVERT_H
#define RL_CPU_CONVERT_H

#include <rill/tensor.h>

#include "../../half.h"
#include "vec.h"

#if RL_REAL_BITS == 32
typedef uint16_t vhalf __attribute__((vector_size(RL_VECTOR_BYTES / 2)));
typedef uint16_t vhalf_loose __attribute__((vector_size(RL_VECTOR_BYTES / 2), aligned(2), may_alias));

RL_INLINE vreal from_bf16(vhalf half)
{
    return (vreal)(__builtin_convertvector(half, vint) << 16);
}

RL_INLINE vhalf to_bf16(vreal value)
{
    vint bits = (vint)value, is_nan = value != value;
    vint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
    return __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), vhalf);
}

#if defined(__AVX512F__)
RL_INLINE vreal from_f16(vhalf half)
{
    return _mm512_cvtph_ps((__m256i)half);
}
RL_INLINE vhalf to_f16(vreal value)
{
    return (vhalf)_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__)
RL_INLINE vreal from_f16(vhalf half)
{
    return _mm256_cvtph_ps((__m128i)half);
}
RL_INLINE vhalf to_f16(vreal value)
{
    return (vhalf)_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
}
#else
/* Exponent and fraction moved up read as the value times 2^-112, subnormals included. */
RL_INLINE vreal from_f16(vhalf half)
{
    vint wide = __builtin_convertvector(half, vint), magnitude = wide & 0x7fff;
    vint special = (magnitude > 0x7bff) & 0x7f800000;
    vreal value = (vreal)(magnitude << 13) * splat(0x1p112f);
    return (vreal)((vint)value | special | (wide & 0x8000) << 16);
}

/* As rl_f16_from_float, with the three ranges computed side by side. */
RL_INLINE vhalf to_f16(vreal value)
{
    vint bits = (vint)value, magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    vint normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    vint small = (vint)((vreal)magnitude + splat(0.5f)) - 0x3f000000;
    vint is_small = magnitude<0x38800000, is_infinite = magnitude >= 0x47800000, is_nan = magnitude> 0x7f800000;
    vint result = (is_small & small) | (~is_small & normal);
    result = (is_infinite & 0x7c00) | (~is_infinite & result);
    result = (is_nan & (0x7e00 | ((magnitude >> 13) & 0x3ff))) | (~is_nan & result);
    return __builtin_convertvector(result | sign, vhalf);
}
#endif
#endif

RL_INLINE int element_size(rill_dtype dtype)
{
    return dtype == RILL_F64 ? 8 : dtype == RILL_F32 ? 4 : 2;
}

/* LANES neighbouring elements. */
RL_INLINE vreal load_elements(const void *from, rill_dtype dtype)
{
#if RL_REAL_BITS == 32
    if (dtype == RILL_BF16) return from_bf16(*(const vhalf_loose *)from);
    if (dtype == RILL_F16) return from_f16(*(const vhalf_loose *)from);
#else
    (void)dtype;
#endif
    return load_any(from);
}

RL_INLINE void store_elements(void *to, vreal value, rill_dtype dtype)
{
#if RL_REAL_BITS == 32
    if (dtype == RILL_BF16) {
        *(vhalf_loose *)to = to_bf16(value);
        return;
    }
    if (dtype == RILL_F16) {
        *(vhalf_loose *)to = to_f16(value);
        return;
    }
#else
    (void)dtype;
#endif
    store_any(to, value);
}

RL_INLINE real load_element(const void *from, rill_dtype dtype)
{
#if RL_REAL_BITS == 32
    if (dtype == RILL_BF16) return rl_float_from_bf16(*(const uint16_t *)from);
    if (dtype == RILL_F16) return rl_float_from_f16(*(const uint16_t *)from);
#else
    (void)dtype;
#endif
    return *(const real *)from;
}

/* Elements at a stride, gathered as they lie; the lanes beyond `count` are 0. */
RL_INLINE vreal gather_elements(const char *from, int64_t stride, int64_t count, rill_dtype dtype)
{
    char row[RL_VECTOR_BYTES] __attribute__((aligned(RL_VECTOR_BYTES))) = {0};
    const int size = element_size(dtype);
    if (stride == 1 && size == sizeof(real)) return count < LANES ? load_first(from, count) : load_any(from);
    for (int64_t i = 0; i < count; i++) memcpy(row + i * size, from + i * stride * size, (size_t)size);
    return load_elements(row, dtype);
}

RL_INLINE void scatter_elements(char *to, int64_t stride, int64_t count, vreal value, rill_dtype dtype)
{
    char row[RL_VECTOR_BYTES] __attribute__((aligned(RL_VECTOR_BYTES)));
    const int size = element_size(dtype);
    if (stride == 1 && size == sizeof(real) && count < LANES) {
        store_first(to, value, count);
        return;
    }
    store_elements(row, value, dtype);
    for (int64_t i = 0; i < count; i++) memcpy(to + i * stride * size, row + i * size, (size_t)size);
}

#endif
