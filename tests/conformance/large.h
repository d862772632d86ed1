/*
 * Tensors of gigabytes, where the backend at hand has them.
 *
 * On a machine with little memory one that is larger than it lies in one small block that is mapped over and over:
 * the library writes every element all the same, and final states, which do not lie there, are right or wrong.
 */
#ifndef CONFORMANCE_LARGE_H
#define CONFORMANCE_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rill/rill.h>

#include "venues.h"

/* Where all that follows is made. */
void large_on(const venue *here, rill_context *context);

/* A tensor where the venue has them. */
typedef struct large {
    rill_tensor view;
    size_t bytes;
    bool real; /* each element has a place of its own */
} large;

/* Bytes that the machine can still give. */
size_t large_memory(void);

/* Room for a span of elements.  sparse: few of them are used. */
large large_make(rill_dtype dtype, int64_t span, bool sparse);
void large_free(large *made);

/* The same memory as [n0, n1, n2], contiguous in this order of axes. */
rill_tensor large_shaped(const large *made, int64_t n0, int64_t n1, int64_t n2);

/* One number that stands for all elements of [n0, n1, n2]. */
large large_constant(rill_dtype dtype, double value, int64_t n0, int64_t n1, int64_t n2);

/* A copy from or to wherever they are. */
void large_put(const rill_tensor *to, const rill_tensor *from);

#endif
