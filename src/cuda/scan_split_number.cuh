/*
 * The arithmetic of summaries.  A run of steps takes the state x that enters it to P x + S, with P the product of its
 * decays and S what it makes of a state of zero.  Both are kept wider than the states: double for float, pairs of
 * doubles for double.
 *
 * What a fold may do.  With n steps and u the unit roundoff of the summary's arithmetic, P x + S is off the exact
 * value by the loop's own rounding errors, u against the loop's, and by at most about 2 n u |P| |x|, since the
 * product of the decays before a step and of those after it is P.  So a fold is accepted only where |P x| <= MARGIN
 * |P x + S|, both finite, and the excess stays below n 2^-36 (float, n at most 32768) or n 2^-73 (double) of the
 * result: terms that cancel further, products that overflow, and all that is not finite are left to a walk in the
 * loop's own order. A decay of exactly 0 is a reset: P is then written as -0, S owes nothing to what came before, and
 * infinities or NaNs in front of it vanish.  -0 stands for nothing else.
 *
 * S itself may be what is left of far larger numbers, each of which has been rounded.  So its mass is kept beside it
 * (scan_split_mass.cuh), and a fold whose result is too little of that is not accepted either.
 *
 * A state that is handed on is rounded to its own type: where the exact one is a number of that type, it is that
 * number.  Without that a remainder far below an ulp, multiplied by later growth, would become what the loop does not
 * have.
 *
 * A product that underflows in double and comes back belongs to a float state that has underflowed as well, so that
 * nothing is lost that the loop keeps.  Between doubles that does not hold: there growth, the product of max(1, |a|),
 * is followed too.  A product below TINY becomes 0 where growth is at most MOST_GROWTH, NaN elsewhere (and is then
 * never accepted), and what is dropped with such a 0 must be negligible beside what remains.
 */
#ifndef RL_CUDA_SCAN_SPLIT_NUMBER_CUH
#define RL_CUDA_SCAN_SPLIT_NUMBER_CUH

#include <float.h>

#include "scan_split_mass.cuh"

/*
 * For states of type N: W holds summaries, Factor what a decay or an input is widened to, and back from exactly.
 * MARGIN bounds what may cancel in P x + S, MOST_MASS what may have in S.
 */
template <typename N> struct Wide;
template <> struct Wide<float> {
    typedef double W;
    typedef double Factor;
    typedef float Mass;
    static constexpr bool follows_growth = false;
    static constexpr double MARGIN = 0x1p16, MOST_MASS = 0x1p20, TOP = FLT_MAX;
    __device__ static double factor(float x)
    {
        return x;
    }
    __device__ static double open(float x)
    {
        return x;
    }
    __device__ static float close(double x)
    {
        return (float)x;
    }
    __device__ static float back(double x)
    {
        return (float)x;
    }
};
template <> struct Wide<double> {
    typedef Pair W;
    typedef double Factor;
    typedef double Mass;
    static constexpr bool follows_growth = true;
    static constexpr double MARGIN = 0x1p30, MOST_MASS = 0x1p40, TOP = DBL_MAX;
    __device__ static double factor(double x)
    {
        return x;
    }
    __device__ static Pair open(double x)
    {
        return {x, 0};
    }
    __device__ static double close(Pair x)
    {
        return x.hi;
    }
    __device__ static double back(double x)
    {
        return x;
    }
};
template <typename Real> struct Wide<Complex<Real>> {
    typedef Wide<Real> Part;
    typedef Complex<typename Part::W> W;
    typedef Complex<double> Factor;
    typedef Complex<typename Part::Mass> Mass;
    static constexpr bool follows_growth = Part::follows_growth;
    static constexpr double MARGIN = Part::MARGIN, MOST_MASS = Part::MOST_MASS, TOP = Part::TOP;
    __device__ static Factor factor(Complex<Real> x)
    {
        return {x.re, x.im};
    }
    __device__ static W open(Complex<Real> x)
    {
        return {Part::open(x.re), Part::open(x.im)};
    }
    __device__ static Complex<Real> close(W x)
    {
        return {Part::close(x.re), Part::close(x.im)};
    }
    __device__ static Complex<Real> back(Factor x)
    {
        return {Part::back(x.re), Part::back(x.im)};
    }
};

template <typename W> __device__ inline W number(double x)
{
    W value = {};
    head(value) = x;
    return value;
}

constexpr double TINY = 0x1p-900, DROPPED = 0x1p-780; /* TINY MOST_GROWTH, and room for a result's ulp */
constexpr float MOST_GROWTH = 0x1p60f;

template <bool followed> struct Growth {
};
template <> struct Growth<true> {
    float growth;
};

template <typename N> struct Summary : Growth<Wide<N>::follows_growth> {
    typedef typename Wide<N>::W W;
    W P, S;
    typename Wide<N>::Mass mass; /* of S */
};

template <typename W> __device__ inline bool is_reset(W P)
{
    return __double_as_longlong(head(P)) == (long long)0x8000000000000000ull;
}

/* -0 becomes 0: it would be taken for a reset. */
template <typename W> __device__ inline W unsigned_zero(W P)
{
    head(P) = __dadd_rn(head(P), 0.0);
    return P;
}

/* Nothing has been run. */
template <typename N> __device__ inline Summary<N> no_steps()
{
    Summary<N> summary = {};
    summary.P = number<typename Wide<N>::W>(1);
    if constexpr (Wide<N>::follows_growth) summary.growth = 1;
    return summary;
}

/* What a P of 0 that is no reset drops of x, beside what remains. */
template <typename N, typename W> __device__ inline bool is_dropped_rightly(W P, W x, W rest)
{
    if constexpr (!Wide<N>::follows_growth) return true;
    return size_of(P) != 0 || is_reset(P) || size_of(x) == 0 || size_of(x) * DROPPED <= size_of(rest);
}

/* p x + s */
__device__ inline double passed(double p, double x, double s)
{
    return fma(p, x, s);
}
__device__ inline Pair passed(Pair p, Pair x, Pair s)
{
    return plus(times(p, x), s);
}
template <typename X> __device__ inline Complex<X> passed(Complex<X> p, Complex<X> x, Complex<X> s)
{
    return {passed(minus(p.im), x.im, passed(p.re, x.re, s.re)), passed(p.im, x.re, passed(p.re, x.im, s.im))};
}

__device__ inline float chosen(bool first, float x, float y)
{
    return first ? x : y;
}
__device__ inline double chosen(bool first, double x, double y)
{
    return first ? x : y;
}
__device__ inline Pair chosen(bool first, Pair x, Pair y)
{
    return {first ? x.hi : y.hi, first ? x.lo : y.lo};
}
template <typename X> __device__ inline Complex<X> chosen(bool first, Complex<X> x, Complex<X> y)
{
    return {chosen(first, x.re, y.re), chosen(first, x.im, y.im)};
}

/* `later` after `earlier`. */
template <typename N> __device__ inline Summary<N> joined(const Summary<N> &earlier, const Summary<N> &later)
{
    typedef typename Wide<N>::W W;
    const bool drops = is_reset(later.P);
    Summary<N> both;
    both.P = chosen(drops | is_reset(earlier.P), number<W>(-0.0), unsigned_zero(times(earlier.P, later.P)));
    both.S = chosen(drops, later.S, passed(later.P, earlier.S, later.S));
    both.mass = chosen(drops, later.mass, passed_mass(later.P, earlier.mass, later.mass));
    if constexpr (Wide<N>::follows_growth) {
        both.growth = earlier.growth * later.growth;
        if (!is_reset(both.P) && size_of(both.P) < TINY)
            both.P = number<W>(both.growth <= MOST_GROWTH ? 0.0 : (double)NAN);
        if (!is_dropped_rightly<N>(later.P, earlier.S, later.S)) both.S = number<W>((double)NAN);
    }
    return both;
}

/*
 * The same where all numbers are finite, but for what marks a reset.  A sum that overflows only here becomes infinite
 * or NaN, and is never accepted.
 */
template <typename N> __device__ inline Summary<N> joined_plainly(const Summary<N> &earlier, const Summary<N> &later)
{
    if constexpr (Wide<N>::follows_growth) return joined(earlier, later);
    Summary<N> both;
    both.P = times(earlier.P, later.P);
    both.S = passed(later.P, earlier.S, later.S);
    both.mass = passed_mass(later.P, earlier.mass, later.mass);
    return both;
}

template <typename N> __device__ inline bool is_finite_sum(const Summary<N> &sum)
{
    return (size_of(sum.P) <= DBL_MAX) & (size_of(sum.S) <= DBL_MAX);
}

template <typename N> __device__ inline bool has_reset(const Summary<N> &sum)
{
    return is_reset(sum.P);
}

/* P with the mark of a reset, or without. */
template <typename N> __device__ inline void mark(Summary<N> &sum, bool resets)
{
    typedef typename Wide<N>::W W;
    sum.P = chosen(resets, number<W>(-0.0), unsigned_zero(sum.P));
}

/* As the states of the loop are. */
template <typename N, typename W> __device__ inline W to_own_type(W x)
{
    return Wide<N>::open(Wide<N>::close(x));
}

/* Whether P x and S, whose sum is `sum`, cancel no further than `margin` says: of complex numbers in either part. */
template <typename X> __device__ inline bool stands(double margin, X P, X x, X sum)
{
    return size_of(P) * size_of(x) <= margin * size_of(sum);
}
template <typename X> __device__ inline bool stands(double margin, Complex<X> P, Complex<X> x, Complex<X> sum)
{
    const double re = size_of(P.re) * size_of(x.re) + size_of(P.im) * size_of(x.im);
    const double im = size_of(P.re) * size_of(x.im) + size_of(P.im) * size_of(x.re);
    return (re <= margin * size_of(sum.re)) & (im <= margin * size_of(sum.im));
}

/* Whether what is left of a sum of this mass is enough to be trusted. */
template <typename X, typename M> __device__ inline bool is_enough(double most, X sum, M mass)
{
    return mass <= most * size_of(sum);
}
template <typename X, typename M> __device__ inline bool is_enough(double most, Complex<X> sum, Complex<M> mass)
{
    return is_enough(most, sum.re, mass.re) & is_enough(most, sum.im, mass.im);
}

/* P x + S, rounded, into next; whether that may stand for the loop's own result. */
template <typename N, typename W> __device__ inline bool fold_plainly(const Summary<N> &sum, W x, W &next)
{
    const W exact = passed(sum.P, x, sum.S);
    bool accepted = stands(Wide<N>::MARGIN, sum.P, x, exact) & is_enough(Wide<N>::MOST_MASS, exact, sum.mass) &
                    (size_of(exact) <= Wide<N>::TOP);
    if constexpr (Wide<N>::follows_growth) accepted = accepted && is_dropped_rightly<N>(sum.P, x, exact);
    next = to_own_type<N>(exact);
    return accepted;
}

/* The same for any x.  Where fold_plainly accepts, its bits are taken. */
template <typename N, typename W> __device__ inline bool fold(const Summary<N> &sum, W x, W &next)
{
    if (fold_plainly<N>(sum, x, next)) return true;
    if (is_reset(sum.P)) {
        next = to_own_type<N>(sum.S);
        return is_enough(Wide<N>::MOST_MASS, sum.S, sum.mass) & (size_of(sum.S) <= Wide<N>::TOP);
    }
    next = x; /* NaN stays NaN until a reset */
    return is_lost(x);
}

#endif
