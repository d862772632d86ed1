/*
 * The number that the reference computes in, and elements in and out of tensors.  Every source here is compiled once
 * for each RL_REAL (float, double, long double), with RL_TAG in the names it exports.  Nothing is shared with the
 * other backends, so that a fault there cannot be here too.
 */
#ifndef RL_REFERENCE_NUMBER_H
#define RL_REFERENCE_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

#include <rill/tensor.h>

typedef RL_REAL real;

#define RL_JOIN_(name, tag) name##_##tag
#define RL_JOIN(name, tag) RL_JOIN_(name, tag)
#define RL_NAME(name) RL_JOIN(name, RL_TAG)

/* 1 sign, `exponent` and `fraction` bits, as IEEE 754 has it. */
static inline double small_to_double(uint16_t bits, int exponent, int fraction)
{
    int field = bits >> fraction & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
    double part = ldexp((double)(bits & ((1 << fraction) - 1)), -fraction), value;
    if (field == (1 << exponent) - 1)
        value = part == 0 ? INFINITY : NAN;
    else if (field == 0)
        value = ldexp(part, 1 - bias);
    else
        value = ldexp(1 + part, field - bias);
    return bits >> 15 ? -value : value;
}

/* Rounds once to nearest even: the spacing of the wanted type at this magnitude is a power of two. */
static inline uint16_t small_from_real(real value, int exponent, int fraction)
{
    int bias = (1 << (exponent - 1)) - 1, scale;
    uint16_t sign = signbit(value) ? 0x8000 : 0, infinite = (uint16_t)(((1 << exponent) - 1) << fraction);
    if (isnan(value)) return (uint16_t)(sign | infinite | 1 << (fraction - 1));
    value = fabs(value);
    if (isinf(value)) return (uint16_t)(sign | infinite);
    if (value == 0) return sign;
    frexp(value, &scale);
    if (scale < 2 - bias) scale = 2 - bias; /* subnormals share the spacing of the smallest normal */
    real units = rint(ldexp(value, fraction + 1 - scale));
    real bits = units + ldexp((real)(scale - 2 + bias), fraction); /* a carry moves into the exponent by itself */
    return bits >= infinite ? (uint16_t)(sign | infinite) : (uint16_t)(sign | (uint16_t)bits);
}

/* Element (i0, i1, i2, i3) of a tensor of any rank up to 4: axes beyond the rank have index 0. */
static inline char *element(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    int64_t index[4] = {i0, i1, i2, i3}, offset = 0;
    for (int axis = 0; axis < tensor->rank && axis < 4; axis++) offset += index[axis] * tensor->stride[axis];
    return (char *)tensor->data + offset * (int64_t)rill_dtype_size(tensor->dtype);
}

static inline real load(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const char *from = element(tensor, i0, i1, i2, i3);
    switch (tensor->dtype) {
    case RILL_F64:
        return (real) * (const double *)from;
    case RILL_F32:
        return (real) * (const float *)from;
    case RILL_BF16:
        return (real)small_to_double(*(const uint16_t *)from, 8, 7);
    case RILL_F16:
        return (real)small_to_double(*(const uint16_t *)from, 5, 10);
    default:
        return NAN;
    }
}

static inline void store(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, int64_t i3, real value)
{
    char *to = element(tensor, i0, i1, i2, i3);
    switch (tensor->dtype) {
    case RILL_F64:
        *(double *)to = (double)value;
        break;
    case RILL_F32:
        *(float *)to = (float)value;
        break;
    case RILL_BF16:
        *(uint16_t *)to = small_from_real(value, 8, 7);
        break;
    case RILL_F16:
        *(uint16_t *)to = small_from_real(value, 5, 10);
        break;
    default:
        break;
    }
}

/* Where a sequence lies: row of the batch, first step, one past the last. */
typedef struct span {
    int64_t row, begin, end;
} span;

static inline span sequence_span(const rill_tensor *offsets, int64_t sequence, int64_t length)
{
    if (!offsets->data) return (span){sequence, 0, length};
    const int64_t *entries = offsets->data;
    return (span){0, entries[sequence * offsets->stride[0]], entries[(sequence + 1) * offsets->stride[0]]};
}

/* The i-th step in the order of the recurrence. */
static inline int64_t step_at(span s, int64_t i, bool reverse)
{
    return reverse ? s.end - 1 - i : s.begin + i;
}

#endif
