#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double reference_tolerance = 1e-13, reference_gradient_tolerance = 1e-12;

static bool run_on(solution *made, const casefile *from, rill_backend backend, bool wide, failure *why)
{
    rill_context *context;
    if (rill_context_create(&(rill_options){.backend = backend}, &context) != RILL_OK)
        return failure_set(why, "%s", rill_last_error(NULL));
    bool good = solution_open(made, from, context, wide, why);
    if (good && !solution_add_gradients(made, context, why)) {
        solution_close(made);
        good = false;
    }
    rill_context_destroy(context);
    return good;
}

bool judge_open(judge *made, const casefile *from, failure *why)
{
    *made = (judge){.from = from};
    if (!run_on(&made->ref, from, RILL_BACKEND_REFERENCE, true, why)) return false;
    if (run_on(&made->loop, from, RILL_BACKEND_LOOP, false, why)) return true;
    solution_close(&made->ref);
    return false;
}

void judge_close(judge *made)
{
    solution_close(&made->ref);
    solution_close(&made->loop);
}

/* Offsets lie on the host here and the operator has checked them. */
static const int64_t *host_offsets(const casefile *from)
{
    const op_tensor *tensor = op_tensor_find(from->operation, "offsets");
    const rill_tensor *view = tensor ? op_args_tensor(tensor, from->args) : NULL;
    return view && view->dtype == RILL_I64 ? view->data : NULL;
}

/* The same tensor of another solution. */
static const rill_tensor *same_of(const solution *other, const outcome *out)
{
    outcome list[SOLUTION_MAX_OUTCOMES];
    int count = solution_list(other, list);
    for (int i = 0; i < count; i++)
        if (list[i].tensor == out->tensor) return list[i].view;
    return NULL;
}

static bool is_stretched(const outcome *out)
{
    for (int axis = 0; out->input && axis < out->view->rank; axis++)
        if (out->input->shape[axis] != out->view->shape[axis]) return true;
    return false;
}

static bool step(int64_t *index, const int64_t *shape, int rank)
{
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (++index[axis] < shape[axis]) return true;
        index[axis] = 0;
    }
    return false;
}

/* The sum over the part of `whole` that begins at `index` and has the shape `part_shape`. */
static double sum_part(const rill_tensor *whole, const int64_t *index, const int64_t *part_shape, int part)
{
    int64_t within[RILL_MAX_RANK] = {0}, at[RILL_MAX_RANK];
    long double sum = 0.0L;
    do {
        for (int axis = 0; axis < whole->rank; axis++) at[axis] = index[axis] + within[axis];
        sum += (long double)measure_load_part(whole, at, part);
    } while (step(within, part_shape, whole->rank));
    return (double)sum;
}

/* Sums over the axes that `like` has only once, into memory of the result's own (data NULL: there is none). */
static rill_tensor sum_stretched(const rill_tensor *whole, const rill_tensor *like)
{
    int64_t index[RILL_MAX_RANK] = {0}, part_shape[RILL_MAX_RANK];
    size_t count = 1;
    bool empty = false;
    for (int axis = 0; axis < whole->rank; axis++) {
        bool summed = like->shape[axis] != whole->shape[axis];
        part_shape[axis] = summed ? whole->shape[axis] : 1;
        empty = empty || whole->shape[axis] == 0;
        count *= (size_t)like->shape[axis];
    }
    int parts = measure_parts(whole->dtype);
    double *sums = calloc(count ? count : 1, (size_t)parts * sizeof *sums);
    for (size_t i = 0; sums && !empty && i < count; i++) {
        for (int part = 0; part < parts; part++)
            sums[i * (size_t)parts + (size_t)part] = sum_part(whole, index, part_shape, part);
        step(index, like->shape, like->rank);
    }
    return rill_tensor_view(RILL_HOST, sums, parts == 2 ? RILL_C128 : RILL_F64, like->rank, like->shape, NULL);
}

/* One slice: no axis has a name that would cut the tensor. */
static measure compare_sums(const outcome *out, const measure_against *whole, double tolerance)
{
    op_tensor one = *out->tensor;
    for (int axis = 0; axis < one.rank; axis++) one.axes[axis] = "summed";
    bool right_is_ref = whole->right == whole->ref;
    rill_tensor sum = sum_stretched(out->view, out->input), ref = {0}, loop = {0};
    if (whole->ref) ref = sum_stretched(whole->ref, out->input);
    if (whole->loop) loop = sum_stretched(whole->loop, out->input);
    measure result = {.worst = INFINITY};
    if (sum.data && (!whole->ref || ref.data) && (!whole->loop || loop.data)) {
        measure_against against = {.right = right_is_ref ? &ref : whole->right,
                                   .ref = whole->ref ? &ref : NULL,
                                   .loop = whole->loop ? &loop : NULL};
        result = measure_compare(&one, &sum, &against, NULL, 1, tolerance);
    }
    free(sum.data);
    free(ref.data);
    free(loop.data);
    return result;
}

static measure compare(const judge *made, const outcome *out, const measure_against *against, double tolerance)
{
    if (is_stretched(out)) return compare_sums(out, against, tolerance);
    return measure_compare(out->tensor, out->view, against, host_offsets(made->from),
                           op_size(&made->from->sizes, "sequences"), tolerance);
}

measure judge_outcome(const judge *made, const outcome *out)
{
    const rill_tensor *expected = casefile_expected(made->from, out->tensor->name);
    measure_against against = {.ref = same_of(&made->ref, out), .loop = same_of(&made->loop, out)};
    against.right = expected ? expected : against.ref;
    if (!against.ref || !against.loop) return (measure){.worst = INFINITY};
    return compare(made, out, &against, measure_tolerance(made->from->activations, out->gradient));
}

measure judge_reference(const judge *made, const outcome *out, bool *known)
{
    const rill_tensor *expected = casefile_expected(made->from, out->tensor->name);
    *known = expected != NULL;
    if (!expected) return (measure){.passed = true};
    return compare(made, out, &(measure_against){.right = expected},
                   out->gradient ? reference_gradient_tolerance : reference_tolerance);
}
