/*
 * SPEC's measure of agreement: every slice of every output satisfies
 *
 *     ‖out − ref‖ ≤ tol · max(‖ref‖, ¼ ‖tensor‖ √(n_slice / n_tensor)) + 3 ‖loop − ref‖
 *
 * where ref is the result in twice the accumulation precision, loop the plain loop in the accumulation type rounded
 * to storage, and elements whose ref is not finite or overflows the storage type must be the same in out, and leave
 * the norms.  Right values from elsewhere (expect.NAME) take ref's place in all but the last term, which is about the
 * rounding of the two runs alone: a wrong expectation must not widen its own bound.  A complex element is two numbers
 * of its slice, each of which may be a special value of its own.  A slice is one sequence of one channel (axes
 * "batch"/"sequences", "channels", "groups", "heads"; the time axis "length" is cut by offsets); a tensor with no
 * batch, sequences or length axis is one slice.
 */
#ifndef TOOLS_MEASURE_H
#define TOOLS_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "operators.h"

typedef struct measure {
    bool passed;
    double worst;          /* the largest error of a slice over its bound; above 1 fails; infinity: special values */
    double relative_error; /* ‖out − ref‖ / ‖ref‖ over the whole tensor */
    int64_t slices, failed;
    int64_t special_mismatches;         /* numbers that had to be a NaN or infinity and were not, or the reverse */
    int64_t worst_index[RILL_MAX_RANK]; /* first element of the worst slice */
} measure;

/* The bound's tol for an output (or a gradient) whose activations have this type. */
double measure_tolerance(rill_dtype activations, bool gradient);

/* What an output is held against: host views of its shape, in any real types, or where it is complex any complex
 * ones.
 */
typedef struct measure_against {
    const rill_tensor *right; /* the right values: ref, or what is expected */
    const rill_tensor *ref;   /* the reference run, and the plain loop's; both NULL: no term for rounding */
    const rill_tensor *loop;
} measure_against;

/* out: a host view in the output's storage type.  offsets NULL: sequences are the rows of the batch. */
measure measure_compare(const op_tensor *tensor, const rill_tensor *out, const measure_against *against,
                        const int64_t *offsets, int64_t sequences, double tolerance);

/* Reads an element of a host tensor as double; of a complex one its real part. */
double measure_load(const rill_tensor *tensor, const int64_t *index);

/* How many numbers an element is, and one of them: part 1 is the imaginary one. */
int measure_parts(rill_dtype dtype);
double measure_load_part(const rill_tensor *tensor, const int64_t *index, int part);

#endif
