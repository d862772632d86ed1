/*
 * One pass over the tensor adds each element's squares to its slice's sums; a second pass over the slices compares
 * each with its bound.  Sums are long double, whose range holds the square of any double.
 */
#include "measure.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

typedef struct slice {
    long double error, right, rounding; /* sums of squares: out - right, right, loop - ref */
    int64_t elements;                   /* numbers that are in the sums */
    int64_t mismatches;                 /* special values that are not as they must be */
} slice;

/* How a tensor falls into slices: axes in the slice's index (not the sequence) are lanes. */
typedef struct slicing {
    int sequence_axis, time_axis; /* -1 where the tensor has none */
    bool lane[RILL_MAX_RANK];
    int64_t lanes, sequences;
    const int64_t *offsets;
} slicing;

double measure_tolerance(rill_dtype activations, bool gradient)
{
    switch (activations) {
    case RILL_F64:
    case RILL_C128:
        return gradient ? 1e-12 : 1e-13;
    case RILL_BF16:
        return gradient ? 8e-3 : 4e-3;
    case RILL_F16:
        return gradient ? 2e-3 : 6e-4;
    case RILL_F32:
    case RILL_C64:
    case RILL_ABSENT:
    case RILL_I64:
        break;
    }
    return gradient ? 1e-5 : 2e-6;
}

static double load_at(const rill_tensor *tensor, int64_t element, int part)
{
    const char *at = (const char *)tensor->data + element * (int64_t)rill_dtype_size(tensor->dtype);
    switch (tensor->dtype) {
    case RILL_F64:
        return *(const double *)at;
    case RILL_F32:
        return (double)*(const float *)at;
    case RILL_BF16:
        return (double)rl_float_from_bf16(*(const uint16_t *)at);
    case RILL_F16:
        return (double)rl_float_from_f16(*(const uint16_t *)at);
    case RILL_I64:
        return (double)*(const int64_t *)at;
    case RILL_C64:
        return (double)((const float *)at)[part];
    case RILL_C128:
        return ((const double *)at)[part];
    case RILL_ABSENT:
        break;
    }
    return NAN;
}

int measure_parts(rill_dtype dtype)
{
    return op_type_is_complex(dtype) ? 2 : 1;
}

double measure_load_part(const rill_tensor *tensor, const int64_t *index, int part)
{
    int64_t element = 0;
    for (int axis = 0; axis < tensor->rank; axis++) element += index[axis] * tensor->stride[axis];
    return load_at(tensor, element, part);
}

double measure_load(const rill_tensor *tensor, const int64_t *index)
{
    return measure_load_part(tensor, index, 0);
}

/* The least magnitude that rounds to infinity in a storage type: the middle between its largest value and 2^emax. */
static double overflow_limit(rill_dtype storage)
{
    switch (storage) {
    case RILL_F32:
    case RILL_C64:
        return 0x1.ffffffp127;
    case RILL_BF16:
        return 0x1.ffp127;
    case RILL_F16:
        return 65520.0;
    case RILL_F64:
    case RILL_C128:
    case RILL_ABSENT:
    case RILL_I64:
        break;
    }
    return INFINITY;
}

static bool same_special(double left, double right)
{
    return isnan(right) ? isnan(left) != 0 : left == right;
}

/* A number of the four tensors. */
typedef struct element {
    double out, right, ref, loop;
} element;

/*
 * Adds one number.  Where the plain loop itself is not finite though the reference is, nothing can be asked of out.
 * A right value within the tolerance of the overflow limit may land on either side of it.
 */
static void add_element(slice *sums, element at, double limit, double tolerance)
{
    double magnitude = fabs(at.right);
    if (!isfinite(at.right)) {
        sums->mismatches += !same_special(at.out, at.right);
        return;
    }
    if (magnitude >= limit) {
        bool near = magnitude <= limit * (1.0 + tolerance);
        bool good = at.out == copysign(INFINITY, at.right) || (near && fabs(at.out - at.right) <= tolerance * limit);
        sums->mismatches += !good;
        return;
    }
    bool sound = fabs(at.ref) < limit;
    if (sound && !isfinite(at.loop)) return;
    if (!isfinite(at.out)) {
        bool near = magnitude >= limit * (1.0 - tolerance);
        sums->mismatches += !(near && at.out == copysign(INFINITY, at.right));
        return;
    }
    long double error = (long double)at.out - (long double)at.right;
    long double rounding = sound ? (long double)at.loop - (long double)at.ref : 0.0L;
    sums->error += error * error;
    sums->right += (long double)at.right * (long double)at.right;
    sums->rounding += rounding * rounding;
    sums->elements++;
}

static element load_element(const rill_tensor *out, const measure_against *against, const int64_t *index, int part)
{
    element at = {.out = measure_load_part(out, index, part),
                  .right = measure_load_part(against->right, index, part)};
    at.ref = against->loop ? measure_load_part(against->ref, index, part) : 0.0;
    at.loop = against->loop ? measure_load_part(against->loop, index, part) : 0.0;
    return at;
}

static bool is_lane(const char *axis)
{
    static const char *const lanes[] = {"channels", "groups", "heads", "query_heads"};
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)
        if (strcmp(axis, lanes[i]) == 0) return true;
    return false;
}

static slicing make_slicing(const op_tensor *tensor, const rill_tensor *out, const int64_t *offsets,
                            int64_t sequences)
{
    slicing how = {.sequence_axis = -1, .time_axis = -1, .lanes = 1, .sequences = 1};
    for (int axis = 0; axis < out->rank; axis++) {
        const char *name = tensor->axes[axis];
        if (strcmp(name, "length") == 0) how.time_axis = axis;
        if (strcmp(name, "batch") == 0 || strcmp(name, "sequences") == 0) how.sequence_axis = axis;
    }
    if (how.time_axis < 0 && how.sequence_axis < 0) return how; /* a parameter: one slice */
    for (int axis = 0; axis < out->rank; axis++) {
        how.lane[axis] = is_lane(tensor->axes[axis]);
        if (how.lane[axis]) how.lanes *= out->shape[axis];
    }
    if (how.sequence_axis >= 0) how.sequences = out->shape[how.sequence_axis];
    if (offsets && how.time_axis >= 0) {
        how.offsets = offsets;
        how.sequences = sequences;
    }
    return how;
}

/* The last sequence that begins at or before step t; empty ones lie behind. */
static int64_t sequence_of(const int64_t *offsets, int64_t sequences, int64_t t)
{
    int64_t low = 0, high = sequences;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (offsets[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t slice_of(const slicing *how, const rill_tensor *out, const int64_t *index)
{
    int64_t sequence = 0, lane = 0;
    if (how->offsets)
        sequence = sequence_of(how->offsets, how->sequences, index[how->time_axis]);
    else if (how->sequence_axis >= 0)
        sequence = index[how->sequence_axis];
    for (int axis = 0; axis < out->rank; axis++)
        if (how->lane[axis]) lane = lane * out->shape[axis] + index[axis];
    return sequence * how->lanes + lane;
}

static void first_index(const slicing *how, const rill_tensor *out, int64_t which, int64_t *index)
{
    memset(index, 0, RILL_MAX_RANK * sizeof *index);
    int64_t sequence = which / how->lanes, lane = which % how->lanes;
    if (how->offsets)
        index[how->time_axis] = how->offsets[sequence];
    else if (how->sequence_axis >= 0)
        index[how->sequence_axis] = sequence;
    for (int axis = out->rank - 1; axis >= 0; axis--) {
        if (!how->lane[axis]) continue;
        index[axis] = lane % out->shape[axis];
        lane /= out->shape[axis];
    }
}

static void sum_slices(slice *slices, const slicing *how, const rill_tensor *out, const measure_against *against,
                       double tolerance)
{
    int64_t index[RILL_MAX_RANK] = {0}, elements = 1;
    int parts = measure_parts(out->dtype);
    for (int axis = 0; axis < out->rank; axis++) elements *= out->shape[axis];
    double limit = overflow_limit(out->dtype);
    for (int64_t i = 0; i < elements; i++) {
        slice *sums = &slices[slice_of(how, out, index)];
        for (int part = 0; part < parts; part++)
            add_element(sums, load_element(out, against, index, part), limit, tolerance);
        for (int axis = out->rank - 1; axis >= 0 && ++index[axis] == out->shape[axis]; axis--) index[axis] = 0;
    }
}

/* The slice's error over its bound: 0 where both are 0, infinity for special values that disagree. */
static double ratio(const slice *sums, const slice *whole, double tolerance)
{
    if (sums->mismatches) return INFINITY;
    if (sums->elements == 0) return 0.0;
    long double share = (long double)sums->elements / (long double)whole->elements;
    long double floor = 0.25L * sqrtl(whole->right * share);
    long double size = sqrtl(sums->right);
    long double bound = (long double)tolerance * (size > floor ? size : floor) + 3.0L * sqrtl(sums->rounding);
    long double error = sqrtl(sums->error);
    if (error == 0.0L) return 0.0;
    return bound > 0.0L ? (double)(error / bound) : INFINITY;
}

static void judge(measure *result, const slice *slices, const slicing *how, const rill_tensor *out, double tolerance)
{
    slice whole = {0};
    int64_t worst = 0;
    for (int64_t i = 0; i < result->slices; i++) {
        whole.error += slices[i].error;
        whole.right += slices[i].right;
        whole.elements += slices[i].elements;
        result->special_mismatches += slices[i].mismatches;
    }
    for (int64_t i = 0; i < result->slices; i++) {
        double over = ratio(&slices[i], &whole, tolerance);
        result->failed += !(over <= 1.0);
        if (over > result->worst) {
            result->worst = over;
            worst = i;
        }
    }
    result->relative_error = whole.error == 0.0L ? 0.0 : (double)sqrtl(whole.error / whole.right);
    first_index(how, out, worst, result->worst_index);
    result->passed = result->failed == 0;
}

/* Shapes, and whether both are real. */
static bool same_form(const rill_tensor *left, const rill_tensor *right)
{
    if (left->rank != right->rank || measure_parts(left->dtype) != measure_parts(right->dtype)) return false;
    return memcmp(left->shape, right->shape, (size_t)left->rank * sizeof left->shape[0]) == 0;
}

measure measure_compare(const op_tensor *tensor, const rill_tensor *out, const measure_against *against,
                        const int64_t *offsets, int64_t sequences, double tolerance)
{
    measure result = {0};
    bool comparable = out->rank == tensor->rank && same_form(out, against->right);
    if (against->loop) comparable = comparable && same_form(out, against->loop) && same_form(out, against->ref);
    slicing how = {0};
    slice *slices = NULL;
    if (comparable) {
        how = make_slicing(tensor, out, offsets, sequences);
        result.slices = how.lanes * how.sequences;
        slices = calloc(result.slices > 0 ? (size_t)result.slices : 1, sizeof *slices);
    }
    if (!slices) { /* forms that disagree, or no memory: never passed over */
        result.worst = INFINITY;
        return result;
    }
    result.passed = true;
    if (result.slices > 0) {
        sum_slices(slices, &how, out, against, tolerance);
        judge(&result, slices, &how, out, tolerance);
    }
    free(slices);
    return result;
}
