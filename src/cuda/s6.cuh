/* The S6 step's scalar functions, and where a piece of the work lies. */
#ifndef RL_CUDA_S6_CUH
#define RL_CUDA_S6_CUH

#include <float.h>
#include <machine/arithmetic.cuh>
#include <stdint.h>

#include "s6_args.h"

template <typename Acc> struct Limits;
template <> struct Limits<float> {
    static constexpr float top = FLT_MAX;
    static constexpr float tame = 1e30f; /* the largest step size of the fast order: 32 of them do not overflow */
};
template <> struct Limits<double> {
    static constexpr double top = DBL_MAX;
    static constexpr double tame = 1e300;
};

/* exp(r), |r| <= ln(2)/2, by the series to r^7 / 5040. */
__device__ inline float exponential_series(float r)
{
    float series = 1.98412698e-4f;
    series = fmaf(series, r, 1.38888889e-3f);
    series = fmaf(series, r, 8.33333333e-3f);
    series = fmaf(series, r, 4.16666667e-2f);
    series = fmaf(series, r, 1.66666667e-1f);
    series = fmaf(series, r, 0.5f);
    return 1.0f + fmaf(series, r * r, r);
}

/*
 * Within 1.1 ulp and without bias, where expf is within 2 and, resting on ex2.approx, biased low: errors of decays
 * near 1 add up over a sequence.  exp(value) = 2^k exp(r).
 */
__device__ inline float exponential(float value)
{
    value = value < -105.0f ? -105.0f : value > 89.0f ? 89.0f : value; /* NaN passes; beyond lie 0 and infinity */
    const float shift = 12582912.0f, k = fmaf(value, 1.44269504f, shift) - shift;
    const float r = fmaf(k, -1.42860677e-6f, fmaf(k, -0.693145752f, value));
    const float power = exponential_series(r);
    const int whole = (int)k, half = whole / 2; /* in two factors, for results that are subnormal */
    return power * __int_as_float((half + 127) << 23) * __int_as_float((whole - half + 127) << 23);
}

/* The same bits for |value| <= SMALL. */
constexpr float SMALL = 80.0f;
__device__ inline float exponential_of_small(float value)
{
    const float shifted = fmaf(value, 1.44269504f, 12582912.0f), k = shifted - 12582912.0f;
    const float r = fmaf(k, -1.42860677e-6f, fmaf(k, -0.693145752f, value));
    const float power = exponential_series(r);
    /* the whole part of value / ln(2) stands in the low bits of shifted: added to the exponent */
    return __int_as_float(__float_as_int(power) + (__float_as_int(shifted) << 23));
}
__device__ inline double exponential(double value)
{
    return exp(value);
}

/*
 * 2^value for value <= 0, within 1.1 units of 2^-24 and without bias; what lies below the normal numbers is 0.  NaN
 * is not allowed.  (2^f - 1) / f is fitted on [-1/2, 1/2] to 5e-9.
 */
__device__ inline float power_of_two(float value)
{
    const float shifted = value + 12582912.0f, f = value - (shifted - 12582912.0f);
    float series = 1.54531629e-4f;
    series = fmaf(series, f, 1.33908634e-3f);
    series = fmaf(series, f, 9.61808256e-3f);
    series = fmaf(series, f, 5.55035711e-2f);
    series = fmaf(series, f, 2.40226508e-1f);
    series = fmaf(series, f, 6.93147188e-1f);
    const float power = fmaf(series, f, 1.0f);
    /* the whole part of value stands in the low bits of shifted: added to the exponent */
    return zero_below_normal(__int_as_float(__float_as_int(power) + (__float_as_int(shifted) << 23)), value);
}

/*
 * exp(delta A) by exp2_rough, for rate = A log2(e).  exp2_rough is low by .1 to .5 of 2^-24 on average where decays
 * are near 1; raising the exponent by 2^-26 takes most of that away, and leaves exp2_rough(0) the 1 that it is.
 */
__device__ inline float rough_decay(float delta, float rate)
{
    return exp2_rough(fmaf(delta, rate, 0x1p-26f));
}

/*
 * Binary digits that 32 steps must take off a state at least for rough decays alone to do: their errors then last so
 * few steps that results of 16 bits do not show them.
 */
constexpr float LASTING_16 = 1.0f / 32;

/*
 * log1p(exp(value)) = max(value, 0) + log1p(t) with t = exp(-|value|) <= 1, and log1p(t) = 2 atanh(s) with
 * s = t / (2 + t) <= 1/3.  The series of atanh(s)/s in s^2 is fitted on [0, 1/9] to 2e-8.  Right for NaN, infinities
 * and, to the relative precision of a few ulp, far below zero.
 */
__device__ inline float softplus(float value)
{
    float t = expf(-fabsf(value)), sum = 2.0f + t, inverse = reciprocal_rough(sum), s = t * inverse;
    s = fmaf(fmaf(-sum, s, t), inverse, s);
    float w = s * s;
    float series = 0.13425749f;
    series = fmaf(series, w, 0.141183099f);
    series = fmaf(series, w, 0.200037803f);
    series = fmaf(series, w, 0.333333202f);
    series = fmaf(series, w, 1.0f);
    return fmaf(2.0f * s, series, value > 0.0f ? value : 0.0f);
}

/*
 * The same for |value| <= SMALL, in half the instructions.  exp2_rough is of the rounded product; what the rounding
 * left out is made good to first order.
 */
__device__ inline float softplus_of_small(float value)
{
    const float size = fabsf(value), power = -1.44269504f * size;
    const float rest = fmaf(power, 1.9046543e-9f, fmaf(power, -0.693147182f, -size));
    float t = exp2_rough(power);
    t = fmaf(t, rest, t);
    const float s = t * reciprocal_rough(2.0f + t), w = s * s;
    float series = 0.26851498f;
    series = fmaf(series, w, 0.282366198f);
    series = fmaf(series, w, 0.400075606f);
    series = fmaf(series, w, 0.666666404f);
    series = fmaf(series, w, 2.0f);
    return fmaf(s, series, fmaxf(value, 0.0f));
}

/*
 * The same of value = power ln(2), in a third of the instructions, for results of 16 bits: log2_rough leaves about
 * 2^-22 of 1 in it.  REACH is how far power may lie from 0 for that to be a small part of a step size, and of T's
 * bits.
 */
constexpr float LOG2_E = 1.44269504f;
template <typename T> constexpr float REACH = T::DIGITS > 8 ? 8.0f : 11.5f;

__device__ inline float softplus_rough(float power)
{
    return 0.693147182f * log2_rough(1.0f + exp2_rough(power));
}
__device__ inline double softplus(double value)
{
    return value > 20.0 ? value : log1p(exp(value));
}

template <typename Acc> __device__ inline bool is_finite(Acc value)
{
    return fabs(value) <= Limits<Acc>::top;
}

/* Whether a step keeps every decay of A <= 0 in [0, 1] and every input finite. */
template <typename Acc> __device__ inline bool is_tame(Acc delta, Acc input)
{
    return delta >= 0 && delta <= Limits<Acc>::tame && is_finite(input);
}

/* One step of one state, rounded as the plain loop rounds it, so that errors stay close to the loop's. */
__device__ inline float advance(float decay, float state, float input)
{
    return __fadd_rn(__fmul_rn(decay, state), input);
}
__device__ inline double advance(double decay, double state, double input)
{
    return __dadd_rn(__dmul_rn(decay, state), input);
}

/* Step sizes from their raw values, in place: softplus, clamp.  NaN passes through. */
template <typename Acc> struct StepSize {
    Acc low, high;
    bool soft, clamps, steady;

    __device__ explicit StepSize(const rl_s6_args &args)
        : low((Acc)args.delta_min), high((Acc)args.delta_max), soft(args.softplus), clamps(args.clamps),
          steady(args.steady)
    {
    }
    template <int count> __device__ void operator()(Acc (&value)[count]) const
    {
        if (soft) {
#pragma unroll
            for (int k = 0; k < count; k++) value[k] = softplus(value[k]);
        }
#pragma unroll
        for (int k = 0; k < count; k++) {
            value[k] = value[k] < low ? low : value[k];
            value[k] = value[k] > high ? high : value[k];
        }
    }

    /* The same, and bits as from `usual` for whatever values that would take. */
    template <int count> __device__ void any(float (&value)[count]) const
    {
        float small[count], size = 0;
#pragma unroll
        for (int k = 0; k < count; k++) {
            size = fmaxf(size, fabsf(value[k]));
            small[k] = value[k];
        }
        usual(small);
        if (size <= SMALL) {
#pragma unroll
            for (int k = 0; k < count; k++) value[k] = small[k];
            return;
        }
        float large[count];
#pragma unroll
        for (int k = 0; k < count; k++) large[k] = value[k];
        (*this)(large);
#pragma unroll
        for (int k = 0; k < count; k++) value[k] = fabsf(value[k]) > SMALL ? large[k] : small[k];
    }
    template <int count> __device__ void any(double (&value)[count]) const
    {
        (*this)(value);
    }

    /* `usual` where softplus is all there is to do. */
    template <int count> __device__ static bool usual_soft(float (&value)[count])
    {
        float size = 0;
#pragma unroll
        for (int k = 0; k < count; k++) {
            size = fmaxf(size, fabsf(value[k]));
            value[k] = softplus_of_small(value[k]);
        }
        return size <= SMALL;
    }

    /* `any` where softplus is all there is to do. */
    __device__ static void any_soft(float &value)
    {
        value = fabsf(value) <= SMALL ? softplus_of_small(value) : softplus(value);
    }

    /*
     * The same in fewer instructions for step sizes that are tame and of the usual size; else false, and the values
     * are of no use.  NaN of a soft one passes through.
     */
    template <int count> __device__ bool usual(float (&value)[count]) const
    {
        float size = 0, least = 0;
        if (soft) {
#pragma unroll
            for (int k = 0; k < count; k++) {
                size = fmaxf(size, fabsf(value[k]));
                value[k] = softplus_of_small(value[k]);
            }
        }
        if (clamps) {
#pragma unroll
            for (int k = 0; k < count; k++) {
                value[k] = value[k] < low ? low : value[k];
                value[k] = value[k] > high ? high : value[k];
            }
        }
        if (soft) return size <= SMALL && steady;
#pragma unroll
        for (int k = 0; k < count; k++) {
            least = fminf(least, value[k]);
            size += value[k];
        }
        return least >= 0 && size <= Limits<float>::tame;
    }
};

/* value sigma(value) */
__device__ inline float gate(float value)
{
    return __fdividef(value, 1.0f + expf(-value));
}
__device__ inline double gate(double value)
{
    return value / (1.0 + exp(-value));
}

/* A in the finite range, so that a step size of 0 leaves the state alone; NaN passes through. */
template <typename Acc> __device__ inline Acc finite_range(Acc value)
{
    const Acc top = Limits<Acc>::top;
    return value < -top ? -top : value > top ? top : value;
}

/* Steps first .. first+count-1, in the order they are run, of one sequence. */
struct Piece {
    int64_t sequence, chunk, batch;
    int64_t row;       /* memory row of the first step */
    int64_t count;     /* steps */
    bool starts, ends; /* holds the sequence's first, last step; one that has none is in its first chunk */
    bool empty;        /* the sequence has no steps */
};

__device__ inline Piece locate_piece(const rl_s6_args &args, int64_t sequence, int64_t chunk)
{
    int64_t begin = 0, end = args.length;
    if (args.offsets) { /* not checked by anyone: clamp */
        begin = args.offsets[sequence * args.offsets_stride];
        end = args.offsets[(sequence + 1) * args.offsets_stride];
        begin = begin < 0 ? 0 : begin > args.length ? args.length : begin;
        end = end < begin ? begin : end > args.length ? args.length : end;
    }
    const int64_t steps = end - begin, tile = RL_S6_STEPS;
    int64_t share = steps;
    if (args.chunks > 1) share = ((steps + args.chunks - 1) / args.chunks + tile - 1) / tile * tile;
    int64_t first = chunk * share < steps ? chunk * share : steps;
    int64_t last = first + share < steps ? first + share : steps;
    Piece piece;
    piece.sequence = sequence;
    piece.chunk = chunk;
    piece.batch = args.offsets ? 0 : sequence;
    piece.row = args.reverse ? end - 1 - first : begin + first;
    piece.count = last - first;
    piece.starts = chunk == 0;
    piece.ends = last == steps && (first < steps || chunk == 0);
    piece.empty = steps == 0;
    return piece;
}

/* Where a piece's first step lies in a view. */
__device__ inline int64_t first_row(const rl_s6_args &args, const rl_s6_view &view, const Piece &piece)
{
    return piece.batch * view.batch + piece.row * (args.reverse ? -view.step : view.step);
}

/* Where [sequence, chunk, channel] lies in the arrays of a split. */
__device__ inline int64_t carry_index(const rl_s6_args &args, const Piece &piece, int64_t channel)
{
    return (piece.sequence * args.chunks + piece.chunk) * args.channels + channel;
}

#endif
