/*
 * What every kernel's source is compiled behind, as nvcc does it with cuda_runtime.h: CUDA C++ for the host.
 * Qualifiers vanish, shared memory is a thread's own since a block runs on one thread of the host, and the names that
 * nvcc knows of itself are declared.
 */
#ifndef EMULATOR_KERNEL_H
#define EMULATOR_KERNEL_H

#include <cuda_runtime.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "block.h"

#undef __shared__
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __shared__ static __thread
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (emulator::self->place)
#define blockIdx (emulator::self->block->place)
#define blockDim (emulator::self->block->threads)
#define gridDim (emulator::self->block->blocks)
constexpr int warpSize = 32;

using std::fma;

/* Bits. */
template <typename To, typename From> inline To emulator_bits(From from)
{
    static_assert(sizeof(To) == sizeof from, "the same number of bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float __int_as_float(int bits)
{
    return emulator_bits<float>(bits);
}
inline int __float_as_int(float value)
{
    return emulator_bits<int>(value);
}
inline float __uint_as_float(unsigned bits)
{
    return emulator_bits<float>(bits);
}
inline unsigned __float_as_uint(float value)
{
    return emulator_bits<unsigned>(value);
}
inline double __longlong_as_double(long long bits)
{
    return emulator_bits<double>(bits);
}
inline long long __double_as_longlong(double value)
{
    return emulator_bits<long long>(value);
}
inline int __double2loint(double value)
{
    return (int)__double_as_longlong(value);
}
inline int __double2hiint(double value)
{
    return (int)(__double_as_longlong(value) >> 32);
}
inline double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)(((unsigned long long)(unsigned)high << 32) | (unsigned)low));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const unsigned long long bytes = ((unsigned long long)y << 32) | x;
    unsigned result = 0;
    for (int k = 0; k < 4; k++) {
        const unsigned pick = selector >> (4 * k), byte = (unsigned)(bytes >> (8 * (pick & 7))) & 0xff;
        result |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * k);
    }
    return result;
}
inline int __ffs(int value)
{
    return __builtin_ffs(value);
}
inline int __ffsll(long long value)
{
    return __builtin_ffsll(value);
}
inline int __clz(int value)
{
    return value ? __builtin_clz((unsigned)value) : 32;
}
inline int __popc(unsigned value)
{
    return __builtin_popcount(value);
}
inline unsigned __brev(unsigned value)
{
    unsigned result = 0;
    for (int k = 0; k < 32; k++) result |= (value >> k & 1u) << (31 - k);
    return result;
}

/* Arithmetic; the file is compiled without contraction, so that operators round as these do. */
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fsub_rn(float x, float y)
{
    return x - y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
inline float __frcp_rn(float x)
{
    return 1 / x;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline double __dadd_rn(double x, double y)
{
    return x + y;
}
inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
inline double __dmul_rn(double x, double y)
{
    return x * y;
}
inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
template <typename X, typename Y> inline std::common_type_t<X, Y> min(X x, Y y)
{
    return y < x ? y : x;
}
template <typename X, typename Y> inline std::common_type_t<X, Y> max(X x, Y y)
{
    return x < y ? y : x;
}

/* Memory. */
inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
    __threadfence();
}
template <typename T> inline T __ldg(const T *from)
{
    return *from;
}
template <typename T> inline T __ldcs(const T *from)
{
    return *from;
}
template <typename T> inline T __ldcg(const T *from)
{
    return *from;
}
template <typename T> inline void __stcs(T *to, T value)
{
    *to = value;
}
inline void __nanosleep(unsigned)
{
    emulator::poll("__nanosleep");
}
template <typename T> inline T atomicAdd(T *to, std::common_type_t<T> value)
{
    emulator::progress();
    if constexpr (std::is_integral_v<T>) {
        return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
    } else {
        T before = *to, after;
        do after = before + value;
        while (!__atomic_compare_exchange(to, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        return before;
    }
}
/* One more, or 0 behind `most`. */
inline unsigned atomicInc(unsigned *to, unsigned most)
{
    emulator::progress();
    unsigned before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(to, &before, before >= most ? 0 : before + 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
    return before;
}
template <typename T> inline T atomicOr(T *to, std::common_type_t<T> value)
{
    emulator::progress();
    return __atomic_fetch_or(to, value, __ATOMIC_RELAXED);
}
template <typename T> inline T atomicMax(T *to, std::common_type_t<T> value)
{
    emulator::progress();
    T before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (before < value &&
           !__atomic_compare_exchange_n(to, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return before;
}
template <typename T> inline T atomicMin(T *to, std::common_type_t<T> value)
{
    emulator::progress();
    T before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (before > value &&
           !__atomic_compare_exchange_n(to, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return before;
}
template <typename T> inline T atomicExch(T *to, std::common_type_t<T> value)
{
    emulator::progress();
    return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}
template <typename T> inline T atomicCAS(T *to, std::common_type_t<T> before, std::common_type_t<T> after)
{
    emulator::progress();
    __atomic_compare_exchange_n(to, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return before;
}

/* Threads of a block, lanes of a warp. */
inline void __syncthreads()
{
    emulator::meet_at_barrier("__syncthreads", 0, 0, false);
}
inline int __syncthreads_or(int value)
{
    return emulator::meet_at_barrier("__syncthreads_or", 0, 0, value != 0) > 0;
}
inline int __syncthreads_count(int value)
{
    return emulator::meet_at_barrier("__syncthreads_count", 0, 0, value != 0);
}
inline void __syncwarp(unsigned lanes = ~0u)
{
    emulator::sync_lanes(lanes);
}
inline unsigned __ballot_sync(unsigned lanes, int value)
{
    return emulator::ballot(lanes, value != 0);
}
inline int __any_sync(unsigned lanes, int value)
{
    return __ballot_sync(lanes, value) != 0;
}
inline int __all_sync(unsigned lanes, int value)
{
    return __ballot_sync(lanes, !value) == 0;
}
inline unsigned __activemask()
{
    return 1u << emulator::self->rank % 32;
}

/* `from` as the lane's own number in a group of `width`; out of the group, the lane's own value. */
template <typename T> inline T emulator_shuffle(unsigned lanes, T value, int from, int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what a shuffle moves");
    const int lane = emulator::self->rank % 32, first = lane / width * width;
    const bool within = from >= first && from < first + width;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulator::shuffle(lanes, bits, within ? from : lane);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T> inline T __shfl_sync(unsigned lanes, T value, int from, int width = 32)
{
    const int lane = emulator::self->rank % 32;
    return emulator_shuffle(lanes, value, lane / width * width + (from & (width - 1)), width);
}
template <typename T> inline T __shfl_up_sync(unsigned lanes, T value, unsigned distance, int width = 32)
{
    return emulator_shuffle(lanes, value, emulator::self->rank % 32 - (int)distance, width);
}
template <typename T> inline T __shfl_down_sync(unsigned lanes, T value, unsigned distance, int width = 32)
{
    return emulator_shuffle(lanes, value, emulator::self->rank % 32 + (int)distance, width);
}
template <typename T> inline T __shfl_xor_sync(unsigned lanes, T value, int with, int width = 32)
{
    return emulator_shuffle(lanes, value, (emulator::self->rank % 32) ^ with, width);
}
/* Of all lanes of a warp. */
inline unsigned __reduce_max_sync(unsigned lanes, unsigned value)
{
    for (int with = 1; with < 32; with *= 2) {
        const unsigned other = __shfl_xor_sync(lanes, value, with);
        value = other > value ? other : value;
    }
    return value;
}

/* Last: the headers above must not take this for nvcc's second pass. */
#define __CUDA_ARCH__ 900

#endif
