/* Numbers of a summary: doubles, pairs of doubles, and complex numbers of either. */
#ifndef RL_CUDA_SCAN_SPLIT_PAIR_CUH
#define RL_CUDA_SCAN_SPLIT_PAIR_CUH

#include "scan_recurrence.cuh"

/* hi + lo, with |lo| at most half an ulp of hi. */
struct Pair {
    double hi, lo;
};

__device__ inline Pair quick_sum(double x, double y) /* |x| >= |y| */
{
    const double sum = __dadd_rn(x, y);
    return {sum, __dadd_rn(y, -__dadd_rn(sum, -x))};
}
__device__ inline Pair exact_sum(double x, double y)
{
    const double sum = __dadd_rn(x, y), part = __dadd_rn(sum, -x);
    return {sum, __dadd_rn(__dadd_rn(x, -__dadd_rn(sum, -part)), __dadd_rn(y, -part))};
}

__device__ inline double plus(double x, double y)
{
    return x + y;
}
__device__ inline Pair plus(Pair x, double y)
{
    const Pair sum = exact_sum(x.hi, y);
    return quick_sum(sum.hi, sum.lo + x.lo);
}
__device__ inline Pair plus(Pair x, Pair y)
{
    Pair sum = exact_sum(x.hi, y.hi);
    const Pair rest = exact_sum(x.lo, y.lo);
    sum = quick_sum(sum.hi, sum.lo + rest.hi);
    return quick_sum(sum.hi, sum.lo + rest.lo);
}
__device__ inline double times(double x, double y)
{
    return x * y;
}
__device__ inline Pair times(Pair x, double y)
{
    const double product = __dmul_rn(x.hi, y);
    return quick_sum(product, fma(x.lo, y, fma(x.hi, y, -product)));
}
__device__ inline Pair times(Pair x, Pair y)
{
    const double product = __dmul_rn(x.hi, y.hi);
    return quick_sum(product, fma(x.hi, y.lo, fma(x.lo, y.hi, fma(x.hi, y.hi, -product))));
}
__device__ inline double minus(double x)
{
    return -x;
}
__device__ inline Pair minus(Pair x)
{
    return {-x.hi, -x.lo};
}

template <typename X, typename Y> __device__ inline Complex<X> plus(Complex<X> x, Complex<Y> y)
{
    return {plus(x.re, y.re), plus(x.im, y.im)};
}
template <typename X, typename Y> __device__ inline Complex<X> times(Complex<X> x, Complex<Y> y)
{
    return {plus(times(x.re, y.re), minus(times(x.im, y.im))), plus(times(x.re, y.im), times(x.im, y.re))};
}

/* |x|, of a complex number within a factor of 1.5; NaN where any part is. */
__device__ inline double size_of(double x)
{
    return fabs(x);
}
__device__ inline double size_of(Pair x)
{
    return fabs(x.hi);
}
template <typename X> __device__ inline double size_of(Complex<X> x)
{
    return size_of(x.re) + size_of(x.im);
}

/* Whether no part is a number. */
__device__ inline bool is_lost(double x)
{
    return isnan(x);
}
__device__ inline bool is_lost(Pair x)
{
    return isnan(x.hi);
}
template <typename X> __device__ inline bool is_lost(Complex<X> x)
{
    return is_lost(x.re) && is_lost(x.im);
}

/* The part that tells a reset. */
__device__ inline float &head(float &x)
{
    return x;
}
__device__ inline double &head(double &x)
{
    return x;
}
__device__ inline double &head(Pair &x)
{
    return x.hi;
}
template <typename X> __device__ inline auto &head(Complex<X> &x)
{
    return head(x.re);
}

#endif
