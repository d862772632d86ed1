/* The values of a case's inputs, each from its place alone, and the case in words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "strided.h"

static double draw_value(rng *r, const value_rule *rule, int64_t last_axis)
{
    if (!rule) return rng_normal(r);
    switch (rule->how) {
    case DRAW_NORMAL:
        return rule->center + rule->spread * rng_normal(r);
    case DRAW_UNIFORM:
        return rule->center + rule->spread * (2 * rng_unit(r) - 1);
    case DRAW_MATRIX:
        return rule->spread * rng_normal(r) / sqrt((double)(last_axis > 0 ? last_axis : 1));
    case DRAW_NEGATIVE:
        return -exp(rule->center + rule->spread * rng_normal(r));
    }
    return 0;
}

/* Bends what becomes a decay through an exponential to the case's regime. */
static double bend_exponent(double value, decay_form form, regime decay, int64_t length)
{
    bool factor = form == DECAY_FACTOR;
    switch (decay) {
    case REGIME_SLOW:
        return factor ? value * 0.001 : value + log(0.001);
    case REGIME_STRONG:
        return factor ? value * 50 : value + log(50);
    case REGIME_STILL:
        return factor ? 0 : -1000; /* exp(-1000) underflows to 0 */
    case REGIME_GROWTH:
        return factor ? fmin(-value, 4) * 0.3 / (double)(length + 1) : value;
    default:
        return value;
    }
}

/* Bends a decay itself, of step t.  Growth is by exp(12) over the whole length at most. */
static double bend_decay(rng *r, double value, regime decay, int64_t t, int64_t length)
{
    switch (decay) {
    case REGIME_SLOW:
        return 1 - (1 - value) * 0.001;
    case REGIME_STRONG:
        return value * 1e-6;
    case REGIME_STILL:
        return 1;
    case REGIME_GROWTH:
        return copysign(exp(fmin(fabs(value), 1) * 12 / (double)(length + 1)), value);
    case REGIME_RESETS:
        return rng_chance(r, 0.1) ? 0 : value;
    case REGIME_WAVES:
        return copysign(t / 12 % 2 ? 0.6 : 1.5, value);
    default:
        return value;
    }
}

/* What a value is drawn for. */
typedef struct purpose {
    const test_case *c;
    const case_tensor *t;
    int64_t last_axis, length;
    int time; /* the time axis, or -1 */
} purpose;

static double draw_number(rng *r, const purpose *is, const int64_t *index)
{
    const value_rule *rule = is->t->rule;
    regime decay = is->c->decay;
    double value = draw_value(r, rule, is->last_axis);
    if (!rule || rule->decay == DECAY_NONE) return value;
    if (rule->decay == DECAY_FACTOR || rule->decay == DECAY_LOG)
        return bend_exponent(value, rule->decay, decay, is->length);
    value = bend_decay(r, value, decay, is->time < 0 ? 0 : index[is->time], is->length);
    bool constant = is->time >= 0 && is->t->how.broadcast[is->time];
    if (constant && decay != REGIME_GROWTH && fabs(value) > 1) value = 1 / value; /* it acts at every step */
    return rule->decay == DECAY_EXPONENT ? log(fabs(value)) : value;
}

/* Draws one element; a complex decay is turned by an angle, mostly a small one. */
static void draw_element(rng *r, const purpose *is, const rill_tensor *values, int64_t *index)
{
    double value = draw_number(r, is, index);
    if (!op_type_is_complex(values->dtype)) {
        view_store(values, index, value);
        return;
    }
    rill_tensor parts = view_parts(*values);
    double re = value, im;
    if (is->t->rule && is->t->rule->decay == DECAY_ITSELF) {
        double turn = 2 * rng_unit(r) - 1, angle = is->c->decay == REGIME_STILL ? 0 : 3 * turn * turn * turn;
        re = value * cos(angle), im = value * sin(angle);
    } else {
        im = draw_number(r, is, index);
    }
    index[values->rank] = 0;
    view_store(&parts, index, re);
    index[values->rank] = 1;
    view_store(&parts, index, im);
}

/*
 * Infinities only where decays stay near 1, or resets are so close that no product of them vanishes: where one is 0
 * in float and not in the reference's double, times an infinity is NaN in the one and infinite in the other, and
 * there is no right answer.
 */
static void put_specials(const test_case *c, int tensor, const rill_tensor *values)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    bool near = c->decay == REGIME_SLOW || c->decay == REGIME_STILL || c->decay == REGIME_RESETS;
    int64_t kinds = near ? 3 : 1;
    rng r = rng_make(c->tensors[tensor].seed, 1);
    int64_t index[RILL_MAX_RANK] = {0};
    if (view_count(values) == 0) return;
    for (int i = 0; i < c->tensors[tensor].specials; i++) {
        for (int axis = 0; axis < values->rank; axis++) index[axis] = rng_below(&r, values->shape[axis]);
        view_store(values, index, specials[rng_below(&r, kinds)]);
    }
}

/* NaN at the step with which each sequence begins, which without a state is not read. */
static void spoil_first(const test_case *c, int tensor, const rill_tensor *values)
{
    const op_tensor *t = &c->op->tensors[tensor];
    const op_option *reverse = op_option_find(c->op, "reverse");
    bool backwards = reverse && c->options[reverse - c->op->options] != 0;
    int64_t index[RILL_MAX_RANK] = {0}, sequences = op_size(&c->sizes, "sequences");
    int time = op_tensor_axis(t, "length");
    for (int64_t s = 0; s < (c->packed ? sequences : 1); s++) {
        int64_t begin = c->packed ? c->offsets[s] : 0;
        int64_t end = c->packed ? c->offsets[s + 1] : values->shape[time];
        rill_tensor first = view_narrow(*values, time, backwards ? end - 1 : begin, 1);
        if (begin == end) continue;
        memset(index, 0, sizeof index);
        do view_store(&first, index, NAN);
        while (view_next(&first, index));
    }
}

/* Repeats element 0 along the axes that are a broadcast. */
static void repeat_broadcasts(const layout *how, const rill_tensor *values)
{
    rill_tensor first = *values;
    bool any = false;
    for (int axis = 0; axis < values->rank; axis++)
        if (how->broadcast[axis]) {
            first.stride[axis] = 0;
            any = true;
        }
    if (any) view_copy(values, &first);
}

rill_tensor case_values(const test_case *c, int tensor)
{
    const case_tensor *t = &c->tensors[tensor];
    int rank = c->op->tensors[tensor].rank;
    rill_tensor values = view_alloc(t->dtype, rank, t->shape);
    int64_t index[RILL_MAX_RANK] = {0};
    purpose is = {
        .c = c, .t = t, .last_axis = t->shape[rank - 1], .length = op_size(&c->sizes, "length"), .time = -1};
    rng r = rng_make(t->seed, 0);
    if (t->dtype == RILL_I64) {
        for (int64_t s = 0; s < values.shape[0]; s++) ((int64_t *)values.data)[s] = c->offsets[s];
        return values;
    }
    if (view_count(&values) == 0) return values;
    is.time = op_tensor_axis(&c->op->tensors[tensor], "length");
    do draw_element(&r, &is, &values, index);
    while (view_next(&values, index));
    put_specials(c, tensor, &values);
    if (t->unread_first) spoil_first(c, tensor, &values);
    repeat_broadcasts(&t->how, &values);
    return values;
}

static const char *const regime_names[REGIME_COUNT] = {"ordinary", "slow",  "strong", "still",
                                                       "growing",  "reset", "waving"};

static void print_layout(const layout *how, int rank)
{
    for (int axis = 0; axis < rank; axis++)
        printf("%s%s%d%s%s+%lld", axis ? " " : " {", how->reversed[axis] ? "-" : "", how->order[axis],
               how->broadcast[axis] ? "*0" : "", how->step > 1 && axis == rank - 1 ? " step" : "",
               (long long)(how->step > 1 && axis == rank - 1 ? how->step : how->pad[axis]));
    printf("}");
}

static void print_tensor(const test_case *c, int index)
{
    const op_tensor *t = &c->op->tensors[index];
    const case_tensor *drawn = &c->tensors[index];
    layout plain = layout_contiguous();
    if (!drawn->given) return;
    printf(" %s:%s", t->name, rill_dtype_name(drawn->dtype));
    if (drawn->alias >= 0) {
        printf("=%s", c->op->tensors[drawn->alias].name);
        return;
    }
    plain.lead = drawn->how.lead;
    plain.align = drawn->how.align;
    if (plain.align) printf(" aligned");
    if (memcmp(&plain, &drawn->how, sizeof plain) != 0) print_layout(&drawn->how, t->rank);
    if (drawn->specials) printf(" special");
    if (drawn->unread_first) printf(" unread");
}

void case_print(const test_case *c)
{
    printf("--seed %llu --case %llu: %s %s", (unsigned long long)c->seed, (unsigned long long)c->number, c->op->name,
           rill_dtype_name(c->activations));
    for (int i = 0; i < c->sizes.count; i++) printf(" %s %lld", c->sizes.axis[i], (long long)c->sizes.size[i]);
    if (c->packed) {
        printf(" offsets");
        for (int64_t s = 0; s <= op_size(&c->sizes, "sequences") && s < 12; s++)
            printf("%s%lld", s ? "," : " ", (long long)c->offsets[s]);
    }
    for (int k = 0; k < c->op->option_count; k++)
        if (c->options[k] != 0) printf(" %s %g", c->op->options[k].name, c->options[k]);
    printf(", %s decays, threads %d%s;", regime_names[c->decay], c->threads,
           c->reproducible ? " reproducible"
           : c->time_last  ? " time last"
                           : "");
    for (int i = 0; i < c->op->tensor_count; i++) print_tensor(c, i);
    printf("\n");
}
