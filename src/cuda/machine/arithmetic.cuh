/* Single instructions of arithmetic that CUDA C++ has no name for, or would make something else of. */
#ifndef RL_CUDA_MACHINE_ARITHMETIC_CUH
#define RL_CUDA_MACHINE_ARITHMETIC_CUH

#include <stdint.h>

__device__ inline float half_to_float(uint16_t bits)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

/* Rounds to nearest even. */
__device__ inline uint16_t float_to_half(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
__device__ inline uint16_t float_to_bfloat(float value)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* Two at a time, `low` in the lower half, as units of products take them. */
__device__ inline uint32_t pack_bfloats(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ inline uint32_t pack_halves(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
/* Two numbers of bfloat16, each (rounded) plus the square of the other's. */
__device__ inline uint32_t add_squares(uint32_t sums, uint32_t numbers)
{
    asm("fma.rn.bf16x2 %0, %1, %1, %0;" : "+r"(sums) : "r"(numbers));
    return sums;
}
#endif

/* a h, rounded, where a is not 0; else `otherwise`.  The predicate depends on a alone. */
__device__ inline float product_unless_zero(float a, float h, float otherwise)
{
    asm("{\n\t.reg .pred p;\n\tsetp.neu.f32 p, %1, 0f00000000;\n\t@p mul.rn.f32 %0, %1, %2;\n\t}"
        : "+f"(otherwise)
        : "f"(a), "f"(h));
    return otherwise;
}
__device__ inline double product_unless_zero(double a, double h, double otherwise)
{
    asm("{\n\t.reg .pred p;\n\tsetp.neu.f64 p, %1, 0d0000000000000000;\n\t@p mul.rn.f64 %0, %1, %2;\n\t}"
        : "+d"(otherwise)
        : "d"(a), "d"(h));
    return otherwise;
}

/* a h + b, product and sum rounded each, where a is not 0; else b. */
__device__ inline float step_unless_zero(float a, float h, float b)
{
    asm("{\n\t.reg .pred p;\n\t.reg .f32 u;\n\tsetp.neu.f32 p, %1, 0f00000000;\n\tmul.rn.f32 u, %1, %2;\n\t"
        "@p add.rn.f32 %0, u, %0;\n\t}"
        : "+f"(b)
        : "f"(a), "f"(h));
    return b;
}
__device__ inline double step_unless_zero(double a, double h, double b)
{
    asm("{\n\t.reg .pred p;\n\t.reg .f64 u;\n\tsetp.neu.f64 p, %1, 0d0000000000000000;\n\tmul.rn.f64 u, %1, %2;\n\t"
        "@p add.rn.f64 %0, u, %0;\n\t}"
        : "+d"(b)
        : "d"(a), "d"(h));
    return b;
}

/* exponent < -125 ? 0 : power, without the branch that compilers make of it. */
__device__ inline float zero_below_normal(float power, float exponent)
{
    asm("{ .reg .pred low; setp.lt.f32 low, %1, 0fC2FA0000; selp.f32 %0, 0f00000000, %0, low; }"
        : "+f"(power)
        : "f"(exponent));
    return power;
}

/* 2^value on the special function unit: within 2 ulp but biased low, and denormals are flushed. */
__device__ inline float exp2_rough(float value)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

/* log2(value) on the special function unit: within 2^-22, in [1/2, 2] absolutely. */
__device__ inline float log2_rough(float value)
{
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ inline float reciprocal_rough(float value)
{
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

/* Hides what a value is made of from the compiler, which then cannot work it out ahead and hold it in a register. */
__device__ inline void hide(int64_t &first, int64_t &second)
{
    asm volatile("" : "+l"(first), "+l"(second));
}

#endif
