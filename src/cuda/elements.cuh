/* Elements of tensors on the device: one, or four neighbours at a time, as they lie and as the accumulation type. */
#ifndef RL_CUDA_ELEMENTS_CUH
#define RL_CUDA_ELEMENTS_CUH

#include <machine/arithmetic.cuh>
#include <rill/tensor.h>
#include <stdint.h>

struct bf16 {
    static constexpr int DIGITS = 8; /* binary ones of a number */
    uint16_t bits;
};
struct f16 {
    static constexpr int DIGITS = 11;
    uint16_t bits;
};

__device__ inline float widen(float value)
{
    return value;
}
__device__ inline double widen(double value)
{
    return value;
}
__device__ inline float widen(bf16 value)
{
    return __uint_as_float((uint32_t)value.bits << 16);
}
__device__ inline float widen(f16 value)
{
    return half_to_float(value.bits);
}

__device__ inline bf16 narrow_half(bf16, float value)
{
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{(uint16_t)((bits >> 16) | 0x40u)};
    return bf16{(uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
__device__ inline f16 narrow_half(f16, float value)
{
    return f16{float_to_half(value)};
}

/* Rounds to nearest even. */
template <typename T, typename Acc> __device__ inline T narrow(Acc value)
{
    if constexpr (sizeof(T) > 2) {
        return (T)value;
    } else {
        return narrow_half(T{}, (float)value);
    }
}

/* One element of a type known only at run time.  Not for inner loops. */
template <typename Acc> __device__ inline Acc load_any(const void *data, int dtype, int64_t index)
{
    switch (dtype) {
    case RILL_F64:
        return (Acc)((const double *)data)[index];
    case RILL_F32:
        return (Acc)((const float *)data)[index];
    case RILL_BF16:
        return (Acc)widen(((const bf16 *)data)[index]);
    default:
        return (Acc)widen(((const f16 *)data)[index]);
    }
}

template <typename Acc> __device__ inline void store_any(void *data, int dtype, int64_t index, Acc value)
{
    switch (dtype) {
    case RILL_F64:
        ((double *)data)[index] = (double)value;
        break;
    case RILL_F32:
        ((float *)data)[index] = (float)value;
        break;
    case RILL_BF16:
        ((bf16 *)data)[index] = narrow<bf16>(value);
        break;
    default:
        ((f16 *)data)[index] = narrow<f16>(value);
        break;
    }
}

/*
 * Four neighbours as they lie in memory, so that a load can be issued long before its first use: 16-bit ones stay
 * packed in words, since unpacking would wait for them.  `wide` views (s6_args.h) are read and written whole;
 * others, and the last few of a row, one by one.
 */
template <typename T, int size = sizeof(T)> struct Quad {
    alignas(16) T lane[4];

    __device__ T get(int k) const
    {
        return lane[k];
    }
    __device__ void set(int k, T value)
    {
        lane[k] = value;
    }
};
template <typename T> struct Quad<T, 2> {
    alignas(8) uint32_t word[2];

    __device__ T get(int k) const
    {
        return T{(uint16_t)(word[k / 2] >> (k % 2 * 16))};
    }
    __device__ void set(int k, T value) /* once for each k */
    {
        word[k / 2] |= (uint32_t)value.bits << (k % 2 * 16);
    }
};

template <typename T> __device__ inline Quad<T> load_quad(const T *data, int64_t stride, int64_t count, bool wide)
{
    if (wide && count >= 4) return *(const Quad<T> *)data;
    Quad<T> quad = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < count) quad.set(k, data[k * stride]);
    return quad;
}

template <typename T>
__device__ inline void store_quad(T *data, int64_t stride, int64_t count, bool wide, const Quad<T> &quad)
{
    if (wide && count >= 4) {
        *(Quad<T> *)data = quad;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < count) data[k * stride] = quad.get(k);
}

#endif
