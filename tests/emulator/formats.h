/* Elements of products as floats. */
#ifndef EMULATOR_FORMATS_H
#define EMULATOR_FORMATS_H

#include <immintrin.h>
#include <string.h>

#include "products.h"

namespace emulator
{

inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline int bytes_of(Format format)
{
    return format == TENSOR_FLOAT ? 4 : 2;
}

/* The element whose bits are the lowest of `bits`. */
inline float widened(Format format, uint32_t bits)
{
    if (format == TENSOR_FLOAT) return float_of(bits & ~0x1fffu);
    return format == BFLOAT ? float_of(bits << 16) : _cvtsh_ss((unsigned short)bits);
}

/* Of a register's elements of 16 bits the first or the second; of tf32 it has but one. */
inline float element_of(Format format, uint32_t bits, int which)
{
    return widened(format, which ? bits >> 16 : format == TENSOR_FLOAT ? bits : bits & 0xffff);
}

} // namespace emulator

#endif
