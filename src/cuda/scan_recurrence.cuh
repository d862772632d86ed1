/* The scan's numbers, its step in both directions, and elements and sequences found at run time. */
#ifndef RL_CUDA_SCAN_RECURRENCE_CUH
#define RL_CUDA_SCAN_RECURRENCE_CUH

#include "elements.cuh"
#include "numbers.cuh"
#include "scan_args.h"
#include "sequence.cuh"

/* As small an alignment as the contract promises: c128 may be aligned to its parts only. */
template <typename Real> struct alignas(8) Complex {
    Real re, im;
};

template <typename Real> __device__ inline Complex<Real> widen(Complex<Real> value)
{
    return value;
}

template <typename N> struct IsComplex {
    static constexpr bool value = false;
};
template <typename Real> struct IsComplex<Complex<Real>> {
    static constexpr bool value = true;
};

/* What elements of type T are computed in. */
template <typename T> struct Accumulated {
    typedef T type;
};
template <> struct Accumulated<bf16> {
    typedef float type;
};
template <> struct Accumulated<f16> {
    typedef float type;
};

/* Rounds to nearest even, as narrow does, but for the bits of NaN. */
template <typename T, typename N> __device__ inline T rounded(N value)
{
    return narrow<T>(value);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ inline bf16 rounded<bf16, float>(float value)
{
    return bf16{float_to_bfloat(value)};
}
#endif

__device__ inline float add(float x, float y)
{
    return rounded_sum(x, y);
}
__device__ inline double add(double x, double y)
{
    return rounded_sum(x, y);
}
template <typename Real> __device__ inline Complex<Real> add(Complex<Real> x, Complex<Real> y)
{
    return {rounded_sum(x.re, y.re), rounded_sum(x.im, y.im)};
}

__device__ inline float multiply(float x, float y)
{
    return rounded_product(x, y);
}
__device__ inline double multiply(double x, double y)
{
    return rounded_product(x, y);
}
/* The plain formula: infinities are not put right as C's Annex G would. */
template <typename Real> __device__ inline Complex<Real> multiply(Complex<Real> x, Complex<Real> y)
{
    return {rounded_sum(rounded_product(x.re, y.re), -rounded_product(x.im, y.im)),
            rounded_sum(rounded_product(x.re, y.im), rounded_product(x.im, y.re))};
}

__device__ inline float conjugate(float x)
{
    return x;
}
__device__ inline double conjugate(double x)
{
    return x;
}
template <typename Real> __device__ inline Complex<Real> conjugate(Complex<Real> x)
{
    return {x.re, -x.im};
}

__device__ inline bool is_zero(float x)
{
    return x == 0;
}
__device__ inline bool is_zero(double x)
{
    return x == 0;
}
template <typename Real> __device__ inline bool is_zero(Complex<Real> x)
{
    return (x.re == 0) & (x.im == 0);
}

template <typename Real> __device__ inline bool is_finite(Complex<Real> x)
{
    return is_finite(x.re) & is_finite(x.im);
}

/* What `keep` keeps; without a branch, which would cost a walk more than the arithmetic that it saves. */
__device__ inline float kept(bool keep, float x)
{
    return keep ? x : 0;
}
__device__ inline double kept(bool keep, double x)
{
    return keep ? x : 0;
}
template <typename Real> __device__ inline Complex<Real> kept(bool keep, Complex<Real> x)
{
    return {kept(keep, x.re), kept(keep, x.im)};
}

/* a h, where a decay of exactly 0 drops h, whatever it is.  The predicate depends on the decay alone. */
__device__ inline float dropped(float a, float h)
{
    return product_unless_zero(a, h, 0.0f);
}
__device__ inline double dropped(double a, double h)
{
    return product_unless_zero(a, h, 0.0);
}
template <typename Real> __device__ inline Complex<Real> dropped(Complex<Real> a, Complex<Real> h)
{
    return kept(!is_zero(a), multiply(a, h));
}

/*
 * a h + b, where a decay of exactly 0 selects b.  Product and sum are rounded each, as in the plain loop: a fused
 * step would be a little more exact most of the time, and far off the loop where that is lucky and growth follows.
 */
__device__ inline float advance(float a, float h, float b)
{
    return step_unless_zero(a, h, b);
}
__device__ inline double advance(double a, double h, double b)
{
    return step_unless_zero(a, h, b);
}
template <typename Real> __device__ inline Complex<Real> advance(Complex<Real> a, Complex<Real> h, Complex<Real> b)
{
    const Complex<Real> sum = add(multiply(a, h), b);
    const bool keep = !is_zero(a);
    return {keep ? sum.re : b.re, keep ? sum.im : b.im};
}

/* The gradient of a decay: g conj(h_{t-1}), but 0 where the decay is 0 and what it drops is not finite. */
template <typename N> __device__ inline N decay_gradient(N a, N before, N g)
{
    return kept(!is_zero(a) | is_finite(before), multiply(g, conjugate(before)));
}

/*
 * Elements of a type known at run time; N is the accumulation type, and complex types are their own.  `count` of the
 * STEPS steps are loaded, the others are left alone; loads of all of them are issued together.
 */
template <typename T, int STEPS, typename N>
__device__ inline void load_steps_as(N (&value)[STEPS], const void *data, int64_t at, int64_t stride, int64_t count)
{
    const T *from = (const T *)data + at;
    T raw[STEPS];
    if (count >= STEPS) {
#pragma unroll
        for (int k = 0; k < STEPS; k++, from += stride) raw[k] = *from;
#pragma unroll
        for (int k = 0; k < STEPS; k++) value[k] = (N)widen(raw[k]);
    } else {
#pragma unroll
        for (int k = 0; k < STEPS; k++, from += stride)
            if (k < count) value[k] = (N)widen(*from);
    }
}

template <int STEPS, typename N>
__device__ inline void load_steps(N (&value)[STEPS], const void *data, int dtype, int64_t at, int64_t stride,
                                  int64_t count)
{
    if constexpr (IsComplex<N>::value) {
        load_steps_as<N>(value, data, at, stride, count);
    } else {
        switch (dtype) {
        case RILL_F64:
            load_steps_as<double>(value, data, at, stride, count);
            break;
        case RILL_F32:
            load_steps_as<float>(value, data, at, stride, count);
            break;
        case RILL_BF16:
            load_steps_as<bf16>(value, data, at, stride, count);
            break;
        default:
            load_steps_as<f16>(value, data, at, stride, count);
            break;
        }
    }
}

template <typename T, int STEPS, typename N>
__device__ inline void store_steps_as(const N (&value)[STEPS], void *data, int64_t at, int64_t stride, int64_t count)
{
    T *to = (T *)data + at;
#pragma unroll
    for (int k = 0; k < STEPS; k++, to += stride)
        if (k < count) *to = rounded<T>(value[k]);
}

template <int STEPS, typename N>
__device__ inline void store_steps(const N (&value)[STEPS], void *data, int dtype, int64_t at, int64_t stride,
                                   int64_t count)
{
    if constexpr (IsComplex<N>::value) {
        store_steps_as<N>(value, data, at, stride, count);
    } else {
        switch (dtype) {
        case RILL_F64:
            store_steps_as<double>(value, data, at, stride, count);
            break;
        case RILL_F32:
            store_steps_as<float>(value, data, at, stride, count);
            break;
        case RILL_BF16:
            store_steps_as<bf16>(value, data, at, stride, count);
            break;
        default:
            store_steps_as<f16>(value, data, at, stride, count);
            break;
        }
    }
}

template <typename N> __device__ inline N load_number(const void *data, int dtype, int64_t at)
{
    N value[1] = {};
    load_steps(value, data, dtype, at, 0, 1);
    return value[0];
}

template <typename N> __device__ inline void store_number(void *data, int dtype, int64_t at, N number)
{
    const N value[1] = {number};
    store_steps(value, data, dtype, at, 0, 1);
}

/* States: zero where there is none to load, nothing where none is wanted. */
__device__ inline int64_t state_at(const rl_scan_state &state, int64_t sequence, int64_t channel)
{
    return sequence * state.sequence + channel * state.channel;
}

template <typename N> __device__ inline N load_state(const rl_scan_state &state, int64_t sequence, int64_t channel)
{
    return state.data ? load_number<N>(state.data, state.dtype, state_at(state, sequence, channel)) : N{};
}

template <typename N>
__device__ inline void store_state(const rl_scan_state &state, int64_t sequence, int64_t channel, N value)
{
    if (state.data) store_number(state.data, state.dtype, state_at(state, sequence, channel), value);
}

/* Moves the bits of an element; every size but 2 is a multiple of 4. */
__device__ inline void copy_element(void *to, int64_t to_at, const void *from, int64_t from_at, int size)
{
    if (size == 2) {
        ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
    } else {
        const int words = size / 4;
        for (int k = 0; k < words; k++)
            ((uint32_t *)to)[to_at * words + k] = ((const uint32_t *)from)[from_at * words + k];
    }
}

__device__ inline int size_of(int dtype)
{
    return dtype == RILL_BF16 || dtype == RILL_F16 ? 2 : dtype == RILL_F32 ? 4 : dtype == RILL_C128 ? 16 : 8;
}

/* What enters an empty sequence leaves it, bit for bit where the types are the same. */
template <typename N> __device__ inline void pass_on(const rl_scan_args &args, int64_t sequence, int64_t channel)
{
    const rl_scan_state &from = args.enter, &to = args.leave;
    if (!to.data) return;
    if (from.data && from.dtype == to.dtype)
        copy_element(to.data, state_at(to, sequence, channel), from.data, state_at(from, sequence, channel),
                     size_of(to.dtype));
    else
        store_state(to, sequence, channel, load_state<N>(from, sequence, channel));
}

/* A sequence of a scan. */
struct Span : Sequence {
    __device__ Span(const rl_scan_args &args, int64_t sequence)
        : Sequence(args.offsets, args.offsets_stride, args.length, sequence)
    {
    }

    /* The element of the first step that is run; from there the view's own step leads on. */
    __device__ int64_t at(const rl_scan_view &view, int64_t channel, bool down) const
    {
        return row * view.batch + first(down) * view.step + channel * view.channel;
    }
};

#endif
