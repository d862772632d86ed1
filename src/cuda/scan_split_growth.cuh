/*
 * Growth.  Whatever a summary is off, however little, the decays that follow multiply, and the loop's own states may
 * be exact, so that nothing there grows: from 1, a = 2 and b = -1 stay at 1.  A state that is handed on is rounded to
 * its own type, which hides errors far below an ulp.  So a summary may stand for a walk only while the last decays of
 * its run multiply to no more than a bound, counted from any step on; where they multiply to more its S becomes NaN,
 * which no fold accepts.
 *
 * Sizes are squares, which complex numbers have without a root.
 */
#ifndef RL_CUDA_SCAN_SPLIT_GROWTH_CUH
#define RL_CUDA_SCAN_SPLIT_GROWTH_CUH

#include "scan_split_number.cuh"

/* Decays up to here grow too little over a tile to be looked at: those of modulus 1 are off it by rounding. */
constexpr float STEADY = 1 + 0x1p-20f;

/* |x| where real, its square where complex: above STEADY where |x| is above it. */
__device__ inline float extent(float x)
{
    return fabsf(x);
}
__device__ inline float extent(double x)
{
    return fabsf((float)x);
}
template <typename Real> __device__ inline float extent(Complex<Real> x)
{
    const float re = (float)x.re, im = (float)x.im;
    return re * re + im * im;
}

__device__ inline float square(float x)
{
    return x * x;
}
__device__ inline float square(double x)
{
    return square((float)x);
}
__device__ inline float square(Pair x)
{
    return square(x.hi);
}
template <typename Real> __device__ inline float square(Complex<Real> x)
{
    return square(x.re) + square(x.im);
}

/*
 * A run's decays: the square of their product, 0 only where one is 0, and the largest square of the product of its
 * last ones.  A square that float cannot tell from 0 counts as its least normal number.
 */
struct Reach {
    float decay, growth;
};

template <typename N> __device__ inline Reach reach_of(N decay, bool drops)
{
    const float size = drops ? 0 : fmaxf(square(decay), FLT_MIN);
    return {size, fmaxf(1.0f, size)};
}

/* `later` after `earlier`.  A reset drops growth before it, even growth without bound: fmaxf does not see NaN. */
__device__ inline Reach joined(Reach earlier, Reach later)
{
    const bool drops = earlier.decay == 0 || later.decay == 0;
    return {drops ? 0 : fmaxf(earlier.decay * later.decay, FLT_MIN),
            fmaxf(later.growth, later.decay * earlier.growth)};
}

/* Leaves no fold to a summary whose run has grown by more than `most`, a square. */
template <typename N> __device__ inline void doubt(Summary<N> &sum, float growth, float most)
{
    typedef typename Wide<N>::W W;
    if (growth > most) sum.S = number<W>((double)NAN);
}

#endif
