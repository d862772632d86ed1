/*
 * The vector of an instruction set: LANES numbers of the accumulation type, one channel a lane.  Every source in this
 * folder is compiled for each instruction set (RL_ISA) and both accumulation types (RL_REAL_BITS).  GCC's vector
 * extensions carry the arithmetic; only what they lack is written with intrinsics here.
 */
#ifndef RL_CPU_VEC_H
#define RL_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define RL_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define RL_VECTOR_BYTES 32
#else
#define RL_VECTOR_BYTES 16
#endif

#define RL_INLINE static inline __attribute__((always_inline))

#if RL_REAL_BITS == 32
typedef float real;
typedef int32_t integer;
typedef uint32_t natural;
#else
typedef double real;
typedef int64_t integer;
typedef uint64_t natural;
#endif

enum { LANES = RL_VECTOR_BYTES / (RL_REAL_BITS / 8) };

typedef real vreal __attribute__((vector_size(RL_VECTOR_BYTES)));
typedef integer vint __attribute__((vector_size(RL_VECTOR_BYTES)));
typedef natural vuint __attribute__((vector_size(RL_VECTOR_BYTES))); /* for bits that may wrap */
typedef real vreal_loose __attribute__((vector_size(RL_VECTOR_BYTES), aligned(RL_REAL_BITS / 8), may_alias));

#define RL_JOIN_(name, isa, bits) name##_##isa##_f##bits
#define RL_JOIN(name, isa, bits) RL_JOIN_(name, isa, bits)
#define RL_NAME(name) RL_JOIN(name, RL_ISA, RL_REAL_BITS)

#if defined(__AVX512F__)
#define RL_X86(name, suffix) RL_X86_(_mm512_, name, suffix)
#elif defined(__AVX2__)
#define RL_X86(name, suffix) RL_X86_(_mm256_, name, suffix)
#else
#define RL_X86(name, suffix) RL_X86_(_mm_, name, suffix)
#endif
#define RL_X86_(prefix, name, suffix) prefix##name##_##suffix
#if RL_REAL_BITS == 32
#define RL_OP(name) RL_X86(name, ps)
#else
#define RL_OP(name) RL_X86(name, pd)
#endif

RL_INLINE vreal splat(real value)
{
    return value - (vreal){0};
}

RL_INLINE vint splat_bits(integer value)
{
    return value - (vint){0};
}

RL_INLINE vreal load_any(const void *from)
{
    return *(const vreal_loose *)from;
}

RL_INLINE void store_any(void *to, vreal value)
{
    *(vreal_loose *)to = value;
}

#if defined(__AVX2__)
#if defined(__AVX512F__) && RL_REAL_BITS == 32
#define RL_FIRST(count) (__mmask16)((1u << (count)) - 1)
#elif defined(__AVX512F__)
#define RL_FIRST(count) (__mmask8)((1u << (count)) - 1)
#else
/* All ones in the first lanes: a window on ones followed by zeros. */
RL_INLINE __m256i first_lanes(int64_t count)
{
    static const integer window[2 * LANES] = {
        -1,
        -1,
        -1,
        -1,
#if RL_REAL_BITS == 32
        -1,
        -1,
        -1,
        -1,
#endif
        0
    };
    return _mm256_loadu_si256((const __m256i *)(window + LANES - count));
}
#define RL_FIRST(count) first_lanes(count)
#endif
#endif

/* The first `count` < LANES numbers, the other lanes 0; nothing beyond them is touched. */
RL_INLINE vreal load_first(const void *from, int64_t count)
{
#if defined(__AVX512F__)
    return RL_OP(maskz_loadu)(RL_FIRST(count), from);
#elif defined(__AVX2__)
    return RL_OP(maskload)(from, RL_FIRST(count));
#else
    vreal value = {0};
    memcpy(&value, from, (size_t)count * sizeof(real));
    return value;
#endif
}

RL_INLINE void store_first(void *to, vreal value, int64_t count)
{
#if defined(__AVX512F__)
    RL_OP(mask_storeu)(to, RL_FIRST(count), value);
#else /* AVX2's masked store is slow on some machines; halves of a vector always are fast */
    const size_t bytes = (size_t)count * sizeof(real), after16 = bytes & ~(size_t)15, after8 = bytes & ~(size_t)7;
    char *at = to;
    const char *from = (const char *)&value;
    if (bytes & 16) memcpy(at, from, 16);
    if (bytes & 8) memcpy(at + after16, from + after16, 8);
    if (bytes & 4) memcpy(at + after8, from + after8, 4);
#endif
}

/* a b + c, rounded once where the machine can. */
RL_INLINE vreal fma_(vreal a, vreal b, vreal c)
{
#if defined(__FMA__)
    return RL_OP(fmadd)(a, b, c);
#elif defined(__aarch64__) && RL_REAL_BITS == 32
    return vfmaq_f32(c, a, b);
#elif defined(__aarch64__)
    return vfmaq_f64(c, a, b);
#else
    return a * b + c;
#endif
}

#if RL_REAL_BITS == 32 && defined(__AVX512F__)
/* table[index mod LANES], lane by lane. */
RL_INLINE vint look_up(vint table, vint index)
{
    return (vint)_mm512_permutexvar_epi32((__m512i)index, (__m512i)table);
}
#endif

/* a > b ? yes : no, lane by lane; a comparison with NaN is false. */
RL_INLINE vreal if_greater(vreal a, vreal b, vreal yes, vreal no)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes);
#elif defined(__AVX512F__)
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_GT_OQ), no, yes);
#else
    vint mask = a > b;
    return (vreal)((mask & (vint)yes) | (~mask & (vint)no));
#endif
}

/* NaN passes through; the limits are not NaN. */
RL_INLINE vreal at_least(vreal value, vreal low)
{
#if defined(__x86_64__)
    return RL_OP(max)(low, value); /* answers its second operand when either is NaN */
#else
    return if_greater(low, value, low, value);
#endif
}

RL_INLINE vreal at_most(vreal value, vreal high)
{
#if defined(__x86_64__)
    return RL_OP(min)(high, value);
#else
    return if_greater(value, high, high, value);
#endif
}

/* Whether every lane of a is at most b; false where either is NaN. */
RL_INLINE int all_at_most(vreal a, vreal b)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ) == 0xffff;
#elif defined(__AVX512F__)
    return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ) == 0xff;
#elif defined(__AVX2__)
    return RL_OP(movemask)((vreal)(a <= b)) == (1 << LANES) - 1;
#else
    vint mask = a <= b;
    integer every = -1;
    for (int lane = 0; lane < LANES; lane++) every &= mask[lane];
    return every != 0;
#endif
}

/* The magnitude's bits, which order as integers do: finite < infinity < NaN. */
RL_INLINE vint magnitude_bits(vreal value)
{
    return (vint)value &
           (RL_REAL_BITS == 32 ? splat_bits((integer)0x7fffffff) : splat_bits((integer)0x7fffffffffffffff));
}

RL_INLINE vint greater_bits(vint a, vint b)
{
#if defined(__AVX512F__) && RL_REAL_BITS == 32
    return (vint)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX512F__)
    return (vint)_mm512_max_epi64((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && RL_REAL_BITS == 32
    return (vint)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    vint mask = a > b;
    return (a & mask) | (b & ~mask);
#endif
}

#endif
