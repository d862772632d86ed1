/*
 * The arithmetic of summaries.  A run of steps takes the state x that enters it to P x + S, with P the product of its
 * decays and S what it makes of a state of zero.  Both are kept wider than the states: double for float, pairs of
 * doubles for double.
 *
 * What a fold may do.  With n steps and u the unit roundoff of the summary's arithmetic, P x + S is off the exact
 * value by the loop's own rounding errors, u against the loop's, and by at most about 2 n u |P| |x|, since the
 * product of the decays before a step and of those after it is P.  So a fold is accepted only where |P x| <= MARGIN
 * |P x + S|, both finite, and the excess stays below n 2^-36 (float, n a few thousand) or n 2^-73 (double) of the
 * result: terms that cancel further, products that overflow, and all that is not finite are left to a walk in the
 * loop's own order. A decay of exactly 0 is a reset: P is then written as -0, S owes nothing to what came before, and
 * infinities or NaNs in front of it vanish.  -0 stands for nothing else.
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

/*
 * For states of type N: W holds summaries, Factor what a decay or an input is widened to, and back from exactly.
 * GROWTH bounds the growth in a tile, JOINED_GROWTH that over joined tiles: squares (scan_split_growth.cuh).
 */
template <typename N> struct Wide;
template <> struct Wide<float> {
    typedef double W;
    typedef double Factor;
    static constexpr bool follows_growth = false;
    static constexpr double MARGIN = 0x1p16, TOP = FLT_MAX;
    static constexpr float GROWTH = 0x1p24f, JOINED_GROWTH = 0x1p8f;
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
    static constexpr bool follows_growth = true;
    static constexpr double MARGIN = 0x1p30, TOP = DBL_MAX;
    static constexpr float GROWTH = 0x1p80f, JOINED_GROWTH = 1; /* tiles are not joined */
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
    static constexpr bool follows_growth = Part::follows_growth;
    static constexpr double MARGIN = Part::MARGIN, TOP = Part::TOP;
    static constexpr float GROWTH = Part::GROWTH, JOINED_GROWTH = Part::JOINED_GROWTH;
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

/* P x + S, rounded, into next; whether that may stand for the loop's own result. */
template <typename N, typename W> __device__ inline bool fold_plainly(W P, W S, W x, W &next)
{
    const W exact = passed(P, x, S);
    bool accepted = stands(Wide<N>::MARGIN, P, x, exact) & (size_of(exact) <= Wide<N>::TOP);
    if constexpr (Wide<N>::follows_growth) accepted = accepted && is_dropped_rightly<N>(P, x, exact);
    next = to_own_type<N>(exact);
    return accepted;
}

/* The same for any x.  Where fold_plainly accepts, its bits are taken. */
template <typename N, typename W> __device__ inline bool fold(W P, W S, W x, W &next)
{
    if (fold_plainly<N>(P, S, x, next)) return true;
    if (is_reset(P)) {
        next = to_own_type<N>(S);
        return size_of(S) <= Wide<N>::TOP;
    }
    next = x; /* NaN stays NaN until a reset */
    return is_lost(x);
}

#endif
