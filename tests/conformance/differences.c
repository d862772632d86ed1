/*
 * The gradients of the reference against central differences of its own forward: of the sum of all outputs, each
 * times a random number, by elements of every input.  Of a complex number z = x + iy the gradient is d/dx + i d/dy.
 * An operator takes part by naming its backward in the table.
 *
 * The two agree to 1e-7 of the gradient, but for what differences cannot see: outputs are rounded to 53 bits, and so
 * are slopes, in units of the sum over the step.
 *
 *     differences [--seed N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "strided.h"
#include "words.h"

enum { CASES = 60, ELEMENTS = 24 };

static const double tolerance = 1e-7;

/*
 * Two ways to a slope: from both sides, and, where a strong exponential bends too much for that or a clamp's corner
 * is near, from four nearby places, whose error is of the fourth order of the step.
 */
typedef struct method {
    double step;
    int places;
    struct {
        int steps;
        double weight; /* over the step */
    } at[4];
} method;

static const method methods[] = {
    {1e-4, 2, {{1, 0.5}, {-1, -0.5}}},
    {1e-5, 4, {{1, 2.0 / 3}, {-1, -2.0 / 3}, {2, -1.0 / 12}, {-2, 1.0 / 12}}},
};

static rill_context *context;

/* A forward call, the weights of its outputs, and the gradients of its inputs; weights and gradients by the forward
 * operator's tensors. */
typedef struct pair {
    call forward;
    rill_tensor weight[OP_MAX_TENSORS], gradient[OP_MAX_TENSORS];
} pair;

static void fill_random(rng *r, const rill_tensor *tensor)
{
    rill_tensor parts = view_parts(*tensor);
    int64_t index[RILL_MAX_RANK] = {0};
    if (view_count(&parts) == 0) return;
    do view_store(&parts, index, rng_normal(r));
    while (view_next(&parts, index));
}

/* Weights, or room for gradients, for each tensor that has one in the backward operator. */
static pair make_pair(const test_case *c, rng *r)
{
    pair made = {.forward = call_make(c, true)};
    for (int i = 0; i < c->op->tensor_count; i++) {
        char name[64];
        const rill_tensor *of = &made.forward.tensor[i];
        snprintf(name, sizeof name, "d%s", c->op->tensors[i].name);
        if (!of->data || !op_tensor_find(c->op->backward, name)) continue;
        rill_tensor *to = op_is_output(&c->op->tensors[i]) ? &made.weight[i] : &made.gradient[i];
        *to = view_alloc_like(of, op_wide_type(c->activations));
        fill_random(r, to);
    }
    return made;
}

static void free_pair(pair *made)
{
    call_free(&made->forward);
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        free(made->weight[i].data);
        free(made->gradient[i].data);
    }
}

static bool run_forward(const pair *made)
{
    args_room args;
    call_args(&made->forward, &args);
    return args_run(context, made->forward.c->op, &args);
}

static bool run_backward(const pair *made)
{
    const test_case *c = made->forward.c;
    const op *back = c->op->backward;
    args_room args, forward;
    memset(&args, 0, sizeof args);
    for (int i = 0; i < back->tensor_count; i++) {
        const op_tensor *t = &back->tensors[i];
        const op_tensor *same = op_tensor_find(c->op, t->name);
        const op_tensor *of = same ? same : op_tensor_find(c->op, t->name + 1);
        int index = (int)(of - c->op->tensors);
        *op_args_tensor(t, &args) = same               ? made->forward.tensor[index]
                                    : op_is_output(of) ? made->weight[index]
                                                       : made->gradient[index];
    }
    call_args(&made->forward, &forward);
    for (int k = 0; k < back->option_count; k++) {
        const op_option *to = &back->options[k], *from = op_option_find(c->op, to->name);
        memcpy(args.bytes + to->offset, forward.bytes + from->offset,
               to->type == OP_BOOL ? sizeof(bool) : sizeof(double));
    }
    return args_run(context, back, &args);
}

/* The real part of each output times the weight's conjugate, summed; and the sum of the magnitudes. */
static long double loss(const pair *made, long double *magnitude)
{
    long double sum = 0;
    *magnitude = 0;
    for (int i = 0; i < made->forward.c->op->tensor_count; i++) {
        if (!made->weight[i].data) continue;
        rill_tensor weight = view_parts(made->weight[i]), out = view_parts(made->forward.tensor[i]);
        int64_t index[RILL_MAX_RANK] = {0};
        if (view_count(&out) == 0) continue;
        do {
            long double term = (long double)view_load(&weight, index) * (long double)view_load(&out, index);
            sum += term;
            *magnitude += fabsl(term);
        } while (view_next(&out, index));
    }
    return sum;
}

static double root_mean_square(const rill_tensor *tensor)
{
    int64_t index[RILL_MAX_RANK] = {0};
    double sum = 0;
    do sum += view_load(tensor, index) * view_load(tensor, index);
    while (view_next(tensor, index));
    return sqrt(sum / (double)view_count(tensor));
}

/* By differences; and the rounding of the sums that they are of, as rounding of the slope. */
static bool find_slope(const pair *made, const method *how, const rill_tensor *values, const int64_t *index,
                       long double *slope, double *rounding)
{
    double before = view_load(values, index);
    bool good = true;
    *slope = 0;
    *rounding = 0;
    for (int i = 0; i < how->places && good; i++) {
        long double magnitude;
        view_store(values, index, before + how->at[i].steps * how->step);
        good = run_forward(made);
        *slope += how->at[i].weight / how->step * loss(made, &magnitude);
        *rounding += 0x1p-53 * fabs(how->at[i].weight) / how->step * (double)magnitude;
    }
    view_store(values, index, before);
    return good;
}

/* One number of an input: the difference, and what the backward operator says. */
static bool check_number(const pair *made, int input, const int64_t *index)
{
    rill_tensor values = view_parts(made->forward.tensor[input]), gradients = view_parts(made->gradient[input]);
    double found = view_load(&gradients, index), rounding;
    double size = fabs(found) + root_mean_square(&gradients);
    long double slope = 0;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (!find_slope(made, &methods[i], &values, index, &slope, &rounding)) return false;
        if (fabsl(slope - found) <= tolerance * size + rounding) return true;
    }
    printf("d%s is %.12g, by differences %.12g, at", made->forward.c->op->tensors[input].name, found, (double)slope);
    for (int k = 0; k < values.rank; k++) printf(" %lld", (long long)index[k]);
    printf("\n");
    return false;
}

static bool check_input(const pair *made, rng *r, int input)
{
    rill_tensor parts = view_parts(made->gradient[input]);
    bool good = true;
    for (int i = 0; i < ELEMENTS && good && view_count(&parts) > 0; i++) {
        int64_t index[RILL_MAX_RANK] = {0};
        for (int k = 0; k < parts.rank; k++) index[k] = rng_below(r, parts.shape[k]);
        good = check_number(made, input, index);
    }
    return good;
}

/* A small case in float64, whose states are float64 too. */
static test_case draw(const op *row, uint64_t seed, uint64_t number)
{
    static const int64_t sizes[][3] = {{2, 9, 3}, {1, 24, 2}, {3, 1, 4}, {1, 60, 1}, {2, 5, 7}};
    static const int64_t attention[][4] = {{3, 3, 5, 2}, {4, 2, 2, 6}, {2, 1, 1, 1}, {1, 1, 4, 4}, {6, 2, 3, 1}};
    static const int64_t states[] = {3, 1, 5, 16, 2};
    draw_limits limits = {.cost = 1e5, .plain = true, .activations = RILL_F64, .op = row};
    limits.complex = number % 3 == 2;
    limits.packed = number % 4 == 1 ? 1 : -1;
    op_size_set(&limits.pinned, "batch", sizes[number % 5][0]);
    op_size_set(&limits.pinned, "length", sizes[number % 5][1]);
    op_size_set(&limits.pinned, "channels", sizes[number % 5][2]);
    op_size_set(&limits.pinned, "states", states[number % 5]);
    op_size_set(&limits.pinned, "heads", attention[number % 5][0]);
    op_size_set(&limits.pinned, "query_heads", attention[number % 5][1]);
    op_size_set(&limits.pinned, "keys", attention[number % 5][2]);
    op_size_set(&limits.pinned, "values", attention[number % 5][3]);
    return case_draw(seed, number, &limits);
}

static bool check_case_number(const op *row, uint64_t seed, uint64_t number)
{
    test_case c = draw(row, seed, number);
    rng r = rng_make(seed + 1, number);
    pair made = make_pair(&c, &r);
    bool good = run_forward(&made) && run_backward(&made);
    for (int i = 0; i < row->tensor_count && good; i++)
        if (made.gradient[i].data) good = check_input(&made, &r, i);
    if (!good) case_print(&c);
    free_pair(&made);
    return good;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 4);
    int failed = 0, tested = 0;
    context = context_open(RILL_BACKEND_REFERENCE);
    for (const op *const *row = op_table; *row; row++) {
        if (!(*row)->backward) continue;
        for (uint64_t number = 0; number < CASES; number++) failed += !check_case_number(*row, given.seed, number);
        tested++;
    }
    rill_context_destroy(context);
    printf("%d operators, %d failed\n", tested, failed);
    return failed != 0;
}
