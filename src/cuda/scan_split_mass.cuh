/*
 * The mass of a summary: what S would be if no term of it were negative, the sum of |q b| over the inputs b, each
 * with the product q of the decays that follow it.  No number on the way to S is larger, also none that has grown
 * since, so the roundings of S are at most n u mass.  Where the result of a fold is far less than the mass, S is what
 * is left of numbers that cancelled, and of their roundings; the loop's own may all have been exact: 1, after a spike
 * that comes and goes, or after a = 2 and b = -1 from 1.
 *
 * A mass need not be exact, only of the right size.  The parts of a complex one are those of S, for a loop that keeps
 * them apart rounds each by itself, until a decay turns the one into the other.
 */
#ifndef RL_CUDA_SCAN_SPLIT_MASS_CUH
#define RL_CUDA_SCAN_SPLIT_MASS_CUH

#include "scan_split_pair.cuh"

/* |P| mass + more; a mass of 0 stays 0 even if P is infinite. */
__device__ inline float passed_mass(double P, float mass, float more)
{
    return mass == 0 ? more : fmaf(fabsf((float)P), mass, more);
}
__device__ inline double passed_mass(Pair P, double mass, double more)
{
    return mass == 0 ? more : fma(fabs(P.hi), mass, more);
}

__device__ inline float modulus(Complex<double> x)
{
    const float re = (float)x.re, im = (float)x.im;
    return sqrtf(re * re + im * im);
}
__device__ inline double modulus(Complex<Pair> x)
{
    return sqrt(x.re.hi * x.re.hi + x.im.hi * x.im.hi);
}

template <typename W, typename M>
__device__ inline Complex<M> passed_mass(Complex<W> P, Complex<M> mass, Complex<M> more)
{
    const M size = modulus(P), most = mass.re > mass.im ? mass.re : mass.im;
    const bool turns = size_of(P.im) != 0;
    const M re = turns ? most : mass.re, im = turns ? most : mass.im;
    return {re == 0 ? more.re : size * re + more.re, im == 0 ? more.im : size * im + more.im};
}

/* After a step: a mass + |input|, and back in time a (mass + |input|). */
template <bool backward> __device__ inline float stepped_mass(float mass, float a, float input)
{
    return backward ? fabsf(a) * (mass + fabsf(input)) : fmaf(fabsf(a), mass, fabsf(input));
}
template <bool backward> __device__ inline double stepped_mass(double mass, double a, double input)
{
    return backward ? fabs(a) * (mass + fabs(input)) : fma(fabs(a), mass, fabs(input));
}
template <bool backward, typename M>
__device__ inline Complex<M> stepped_mass(Complex<M> mass, Complex<M> a, Complex<M> input)
{
    const Complex<M> size = {(M)fabs(input.re), (M)fabs(input.im)};
    if (backward) mass = {mass.re + size.re, mass.im + size.im};
    const M most = mass.re > mass.im ? mass.re : mass.im;
    const M modulus = (M)sqrt(a.re * a.re + a.im * a.im);
    const bool turns = a.im != 0;
    const Complex<M> passed = {modulus * (turns ? most : mass.re), modulus * (turns ? most : mass.im)};
    return backward ? passed : Complex<M>{passed.re + size.re, passed.im + size.im};
}

/* A mass as 2 BITS bits, rounded up to a power of two; it is told in what a summary's last bits have to spare. */
template <typename M> struct MassCode;
template <> struct MassCode<float> {
    static constexpr int BITS = 4;
    __device__ static uint32_t of(float mass)
    {
        return min(((uint32_t)__float_as_int(mass) + 0x7fffffu) >> 23, 0xffu);
    }
    __device__ static float mass(uint32_t code)
    {
        return __int_as_float((int)(code << 23));
    }
};
template <> struct MassCode<double> {
    static constexpr int BITS = 6;
    __device__ static uint32_t of(double mass)
    {
        return min((uint32_t)(((unsigned long long)__double_as_longlong(mass) + 0xfffffffffffffull) >> 52), 0x7ffu);
    }
    __device__ static double mass(uint32_t code)
    {
        return __longlong_as_double((long long)code << 52);
    }
};

/* x with `code` in its last bits, of which it is rounded free first; and x without it. */
template <int bits> __device__ inline double with_code(double x, uint32_t code)
{
    unsigned long long word = (unsigned long long)__double_as_longlong(x);
    if (fabs(x) <= DBL_MAX) word += 1ull << (bits - 1);
    return __longlong_as_double((long long)((word & ~((1ull << bits) - 1)) | code));
}
template <int bits> __device__ inline uint32_t code_of(double x)
{
    return (uint32_t)__double_as_longlong(x) & ((1u << bits) - 1);
}
template <int bits> __device__ inline double without_code(double x)
{
    return __longlong_as_double((long long)((unsigned long long)__double_as_longlong(x) & ~((1ull << bits) - 1)));
}

/* The double of a number that has bits to spare. */
__device__ inline double &tail(double &x)
{
    return x;
}
__device__ inline double &tail(Pair &x)
{
    return x.lo;
}

template <typename W, typename M> __device__ inline void write_mass(W &P, W &S, M mass)
{
    constexpr int BITS = MassCode<M>::BITS;
    const uint32_t code = MassCode<M>::of(mass);
    tail(P) = with_code<BITS>(tail(P), code >> BITS);
    tail(S) = with_code<BITS>(tail(S), code & ((1u << BITS) - 1));
}
template <typename W, typename M> __device__ inline void write_mass(Complex<W> &P, Complex<W> &S, Complex<M> mass)
{
    write_mass(P.re, S.re, mass.re);
    write_mass(P.im, S.im, mass.im);
}

template <typename W, typename M> __device__ inline void read_mass(W &P, W &S, M &mass)
{
    constexpr int BITS = MassCode<M>::BITS;
    mass = MassCode<M>::mass(code_of<BITS>(tail(P)) << BITS | code_of<BITS>(tail(S)));
    tail(P) = without_code<BITS>(tail(P));
    tail(S) = without_code<BITS>(tail(S));
}
template <typename W, typename M> __device__ inline void read_mass(Complex<W> &P, Complex<W> &S, Complex<M> &mass)
{
    read_mass(P.re, S.re, mass.re);
    read_mass(P.im, S.im, mass.im);
}

#endif
