/*
 * Two views share a byte where  base1 + Σ s1_i x_i + e1 = base2 + Σ s2_j y_j + e2  has a solution with every index
 * in its range and e a byte inside an element.  With the sign of each stride folded into its index this is
 *
 *     Σ a_k x_k = target,   a_k > 0,   0 <= x_k <= u_k,
 *
 * searched from the largest coefficient down: what the smaller ones can still add leaves each index few values,
 * in orderly layouts one or two, so the search is short.
 */
#include "overlap.h"

#include <stdint.h>

enum { MAX_TERMS = 2 * RILL_MAX_RANK + 1, BUDGET = 1 << 20 };

__extension__ typedef __int128 wide; /* sums of several 63-bit spans */

typedef struct equation {
    wide coefficient[MAX_TERMS], bound[MAX_TERMS];
    wide reach[MAX_TERMS + 1]; /* the most that terms k and up can add */
    int terms;
    int wanted; /* solutions to find before the search ends */
    int budget;
} equation;

static bool is_empty(const rill_tensor *tensor)
{
    for (int axis = 0; axis < tensor->rank; axis++)
        if (tensor->shape[axis] == 0) return true;
    return false;
}

/*
 * Adds a term in descending order of coefficients.  Terms that add nothing are left out, and equal coefficients,
 * which views of one layout have throughout, become one term.
 */
static void add_term(equation *eq, wide coefficient, wide bound)
{
    if (coefficient == 0 || bound <= 0) return;
    for (int k = 0; k < eq->terms; k++)
        if (eq->coefficient[k] == coefficient) {
            eq->bound[k] += bound;
            return;
        }
    int at = eq->terms++;
    for (; at > 0 && eq->coefficient[at - 1] < coefficient; at--) {
        eq->coefficient[at] = eq->coefficient[at - 1];
        eq->bound[at] = eq->bound[at - 1];
    }
    eq->coefficient[at] = coefficient;
    eq->bound[at] = bound;
}

static void sum_reach(equation *eq)
{
    eq->reach[eq->terms] = 0;
    for (int k = eq->terms - 1; k >= 0; k--) eq->reach[k] = eq->reach[k + 1] + eq->coefficient[k] * eq->bound[k];
}

/* Counts solutions of terms k and up, until the wanted number is found.  Returns how many are still wanted. */
static int search(equation *eq, int k, wide target)
{
    if (eq->wanted == 0) return 0;
    if (target < 0 || target > eq->reach[k]) return eq->wanted;
    if (eq->budget-- <= 0) return eq->wanted = 0;
    if (k == eq->terms) return --eq->wanted; /* reach is 0 here, so target is 0 */
    wide coefficient = eq->coefficient[k], rest = target - eq->reach[k + 1];
    wide low = rest > 0 ? (rest + coefficient - 1) / coefficient : 0, high = target / coefficient;
    if (high > eq->bound[k]) high = eq->bound[k];
    for (wide x = low; x <= high && eq->wanted > 0; x++) search(eq, k + 1, target - coefficient * x);
    return eq->wanted;
}

/* The view's bytes from its lowest address; adds the terms of its axes. */
static uintptr_t add_axes(equation *eq, const rill_tensor *tensor)
{
    int64_t size = (int64_t)rill_dtype_size(tensor->dtype);
    uintptr_t lowest = (uintptr_t)tensor->data;
    for (int axis = 0; axis < tensor->rank; axis++) {
        int64_t last = tensor->shape[axis] - 1;
        if (last == 0) continue; /* its stride may be anything */
        int64_t step = tensor->stride[axis] * size;
        if (step < 0) lowest += (uintptr_t)(step * last);
        add_term(eq, step < 0 ? -(wide)step : step, last);
    }
    return lowest;
}

/* The addresses from a view's lowest byte to one past its highest. */
typedef struct range {
    uintptr_t low, high;
} range;

static range range_of(const rill_tensor *tensor)
{
    int64_t size = (int64_t)rill_dtype_size(tensor->dtype);
    range r = {(uintptr_t)tensor->data, (uintptr_t)tensor->data + (uintptr_t)size};
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] <= 1) continue;
        int64_t reach = tensor->stride[axis] * (tensor->shape[axis] - 1) * size;
        if (reach < 0)
            r.low += (uintptr_t)reach;
        else
            r.high += (uintptr_t)reach;
    }
    return r;
}

bool rl_overlap(const rill_tensor *first, const rill_tensor *second)
{
    if (is_empty(first) || is_empty(second)) return false;
    range r1 = range_of(first), r2 = range_of(second);
    if (r1.high <= r2.low || r2.high <= r1.low) return false; /* the common case */

    equation eq = {.wanted = 1, .budget = BUDGET}, alone = {0};
    int64_t size1 = (int64_t)rill_dtype_size(first->dtype), size2 = (int64_t)rill_dtype_size(second->dtype);
    uintptr_t low1 = add_axes(&eq, first), low2 = add_axes(&alone, second);
    /* Σ a x + e1 = (low2 - low1) + Σ b y + e2.  With y' = last - y and e2' = size2 - 1 - e2 all terms are positive.
     */
    wide target = (low2 >= low1 ? (wide)(low2 - low1) : -(wide)(low1 - low2)) + size2 - 1;
    for (int k = 0; k < alone.terms; k++) {
        target += alone.coefficient[k] * alone.bound[k];
        add_term(&eq, alone.coefficient[k], alone.bound[k]);
    }
    add_term(&eq, 1, size1 - 1 + size2 - 1);
    sum_reach(&eq);
    return search(&eq, 0, target) == 0;
}

/* Whether every stride passes over all that smaller strides can reach, as in any view of an array's axes. */
static bool is_nested(const rill_tensor *tensor)
{
    int64_t stride[RILL_MAX_RANK], last[RILL_MAX_RANK], reach = 0;
    int count = 0;
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] <= 1) continue;
        int64_t step = tensor->stride[axis] < 0 ? -tensor->stride[axis] : tensor->stride[axis];
        int at = count++;
        for (; at > 0 && stride[at - 1] > step; at--) {
            stride[at] = stride[at - 1];
            last[at] = last[at - 1];
        }
        stride[at] = step;
        last[at] = tensor->shape[axis] - 1;
    }
    for (int k = 0; k < count; k++) {
        if (stride[k] <= reach) return false;
        reach += stride[k] * last[k];
    }
    return true;
}

bool rl_overlaps_itself(const rill_tensor *tensor)
{
    if (is_empty(tensor) || is_nested(tensor)) return false; /* the common case */

    equation eq = {.wanted = 2, .budget = BUDGET};
    int64_t size = (int64_t)rill_dtype_size(tensor->dtype);
    wide target = 0;
    int long_axes = 0;
    for (int axis = 0; axis < tensor->rank; axis++) long_axes += tensor->shape[axis] > 1;
    add_axes(&eq, tensor);
    if (eq.terms < long_axes) return true; /* a stride of 0, or two axes that walk the same elements */
    /* Elements x and y share a byte where Σ a (x - y) = e, |e| < size; x - y = d is shifted to 0 .. 2 last.  Aligned
     * data has e = 0 only, and the one solution that must be there is d = 0. */
    for (int k = 0; k < eq.terms; k++) {
        eq.coefficient[k] /= size;
        target += eq.coefficient[k] * eq.bound[k];
        eq.bound[k] *= 2;
    }
    sum_reach(&eq);
    return search(&eq, 0, target) == 0;
}

bool rl_same_view(const rill_tensor *first, const rill_tensor *second)
{
    if (first->data != second->data || first->dtype != second->dtype || first->rank != second->rank) return false;
    for (int axis = 0; axis < first->rank; axis++) {
        if (first->shape[axis] != second->shape[axis]) return false;
        if (first->shape[axis] > 1 && first->stride[axis] != second->stride[axis]) return false;
    }
    return true;
}
