/*
 * One or two neighbours of a tensor as they lie in memory, as Quad of elements.cuh has four: so that a load can be
 * issued long before its first use.
 */
#ifndef RL_CUDA_FEW_CUH
#define RL_CUDA_FEW_CUH

#include <type_traits>

#include "elements.cuh"

template <typename T, int count, int size = sizeof(T)> struct Few {
    alignas(count * sizeof(T)) T lane[count];

    __device__ T get(int k) const
    {
        return lane[k];
    }
    __device__ void set(int k, T value)
    {
        lane[k] = value;
    }
    template <typename Acc> __device__ void round(const Acc (&value)[count])
    {
#pragma unroll
        for (int k = 0; k < count; k++) lane[k] = narrow<T>(value[k]);
    }
};

template <typename T> struct Few<T, 2, 2> {
    uint32_t word;

    __device__ T get(int k) const
    {
        return T{(uint16_t)(word >> (k * 16))};
    }
    __device__ void set(int k, T value) /* once for each k */
    {
        word |= (uint32_t)value.bits << (k * 16);
    }
    __device__ void round(const float (&value)[2])
    {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
        if constexpr (std::is_same<T, bf16>::value) {
            word = pack_bfloats(value[0], value[1]);
            return;
        }
#endif
        word = narrow<T>(value[0]).bits | (uint32_t)narrow<T>(value[1]).bits << 16;
    }
};

/* `there` of them exist; they lie as one where `wide`. */
template <typename T, int count>
__device__ inline Few<T, count> load_few(const T *data, int64_t stride, int there, bool wide)
{
    if (wide && there >= count) return *(const Few<T, count> *)data;
    Few<T, count> few = {};
#pragma unroll
    for (int k = 0; k < count; k++)
        if (k < there) few.set(k, data[k * stride]);
    return few;
}

template <typename T, int count>
__device__ inline void store_few(T *data, int64_t stride, int there, bool wide, const Few<T, count> &few)
{
    if (wide && there >= count) {
        *(Few<T, count> *)data = few;
        return;
    }
#pragma unroll
    for (int k = 0; k < count; k++)
        if (k < there) data[k * stride] = few.get(k);
}

#endif
