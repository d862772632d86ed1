/* Arithmetic of real numbers as the plain loop has it. */
#ifndef RL_CUDA_NUMBERS_CUH
#define RL_CUDA_NUMBERS_CUH

/* Rounded one by one: every kernel then gives the same bits, whatever the compiler fuses elsewhere. */
__device__ inline float rounded_sum(float x, float y)
{
    return __fadd_rn(x, y);
}
__device__ inline double rounded_sum(double x, double y)
{
    return __dadd_rn(x, y);
}
__device__ inline float rounded_product(float x, float y)
{
    return __fmul_rn(x, y);
}
__device__ inline double rounded_product(double x, double y)
{
    return __dmul_rn(x, y);
}

__device__ inline bool is_finite(float x)
{
    return fabsf(x) < __int_as_float(0x7f800000);
}
__device__ inline bool is_finite(double x)
{
    return fabs(x) < __longlong_as_double(0x7ff0000000000000);
}

#endif
