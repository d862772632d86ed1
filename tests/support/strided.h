/* Host views element by element: walking, storing, comparing, narrowing. */
#ifndef TEST_STRIDED_H
#define TEST_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

int64_t view_count(const rill_tensor *view);

/* Steps index through the view's elements, last axis fastest; false after the last one.  Start from all zeros. */
bool view_next(const rill_tensor *view, int64_t *index);

/* The element's place, in elements from data. */
int64_t view_offset(const rill_tensor *view, const int64_t *index);

/* Stores value in the view's type, rounded once.  Of a complex element value is the real part, and 0 the other. */
void view_store(const rill_tensor *view, const int64_t *index, double value);
double view_load(const rill_tensor *view, const int64_t *index);

/* A complex view as a real one with one more axis of 2; a real view as it is. */
rill_tensor view_parts(rill_tensor view);

/* Every element becomes value. */
void view_fill(const rill_tensor *view, double value);

/* Same type and shape, any strides; bits are kept. */
void view_copy(const rill_tensor *to, const rill_tensor *from);

/* Same type, shape and bits; else the first index that differs. */
bool view_same(const rill_tensor *a, const rill_tensor *b, int64_t *where);

/* The same bits in one element of two views of one type. */
bool view_same_element(const rill_tensor *a, const rill_tensor *b, const int64_t *index);

/* The part [start, start + count) of an axis. */
rill_tensor view_narrow(rill_tensor view, int axis, int64_t start, int64_t count);

/* A contiguous view of memory for as many elements, from malloc; the caller frees view.data. */
rill_tensor view_alloc(rill_dtype dtype, int rank, const int64_t *shape);
rill_tensor view_alloc_like(const rill_tensor *view, rill_dtype dtype);

#endif
