#include "draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw_layout.h"

enum { FEW_SEQUENCES = 8, LATEST = 2 };

static bool is_half(rill_dtype dtype)
{
    return dtype == RILL_BF16 || dtype == RILL_F16;
}

int case_tensor_index(const test_case *c, const char *name)
{
    return (int)(op_tensor_find(c->op, name) - c->op->tensors);
}

draw_turn draw_turn_of(uint64_t number)
{
    for (int later = LATEST; later > 0; later--) {
        if (number % 3 == 2) return (draw_turn){later, number / 3};
        number -= number / 3;
    }
    return (draw_turn){0, number};
}

static const plausible *rules_of(const op *row)
{
    const plausible *rules = plausible_find(row->name);
    if (rules) return rules;
    fprintf(stderr, "%s: no row in tests/conformance/plausible.c\n", row->name);
    exit(1);
}

int draw_op_count(int later)
{
    int count = 0;
    for (const op *const *row = op_table; *row; row++) count += rules_of(*row)->later == later;
    return count;
}

const op *draw_op_at(int later, uint64_t i)
{
    const op *const *row = op_table;
    for (uint64_t skip = i % (uint64_t)draw_op_count(later);; row++) {
        if (rules_of(*row)->later != later) continue;
        if (skip-- == 0) return *row;
    }
}

static const op *draw_op(rng *r, const draw_limits *limits)
{
    if (limits->op) return limits->op;
    return draw_op_at(limits->later, (uint64_t)rng_below(r, draw_op_count(limits->later)));
}

static const size_rule *find_size_rule(const plausible *rules, const char *axis)
{
    for (int i = 0; i < 8 && rules->sizes[i].axis; i++)
        if (strcmp(rules->sizes[i].axis, axis) == 0) return &rules->sizes[i];
    return NULL;
}

static int64_t draw_size(rng *r, const test_case *c, const char *axis, const draw_limits *limits)
{
    const size_rule *rule = find_size_rule(c->rules, axis);
    int64_t size = op_size(&limits->pinned, axis);
    if (size >= 0) return size;
    if (!rule) return 1 + rng_below(r, 16);
    size = rule->choices[rng_below(r, rule->count)];
    int64_t whole = rule->divides ? op_size(&c->sizes, rule->divides) : 0;
    while (whole > 0 && whole % size != 0) size--;
    return size;
}

/* In runs of the innermost lines, which where steps are cheap are as many as there are elements. */
static double cost_of(const test_case *c)
{
    double cost = 0;
    if (c->rules->cheap_steps)
        return (double)op_size(&c->sizes, "batch") * (double)op_size(&c->sizes, "length") *
               (double)op_size(&c->sizes, "channels");
    for (int i = 0; i < c->op->cost_count; i++) {
        double product = c->op->costs[i].factor;
        for (int k = 0; k < RILL_MAX_RANK && c->op->costs[i].axes[k]; k++)
            product *= (double)op_size(&c->sizes, c->op->costs[i].axes[k]);
        cost += product;
    }
    return c->rules->ease > 0 ? cost / c->rules->ease : cost;
}

/* Shortens batch and length until the plain loop is cheap enough. */
static void fit_cost(test_case *c, double limit)
{
    while (cost_of(c) > limit) {
        int64_t batch = op_size(&c->sizes, "batch"), length = op_size(&c->sizes, "length");
        if (batch <= 1 && length <= 3) break;
        if (batch > 1)
            op_size_set(&c->sizes, "batch", batch - 1);
        else
            op_size_set(&c->sizes, "length", length / 2 + 1);
    }
}

/* Draws each axis once, divisors in a second pass after what they divide.  Rules and offsets give the other axes. */
static void draw_sizes(rng *r, test_case *c, const draw_limits *limits)
{
    for (int divisors = 0; divisors < 2; divisors++)
        for (int i = 0; i < c->op->tensor_count; i++)
            for (int k = 0; k < c->op->tensors[i].rank; k++) {
                const char *axis = c->op->tensors[i].axes[k];
                const size_rule *rule = find_size_rule(c->rules, axis);
                bool derived = c->op->tensors[i].kind == OP_OFFSETS || strcmp(axis, "sequences") == 0;
                if (derived || (rule && rule->divides) != divisors || op_size(&c->sizes, axis) >= 0) continue;
                op_size_set(&c->sizes, axis, draw_size(r, c, axis, limits));
            }
    for (int i = 0; i < c->op->rule_count; i++) {
        const op_axis_rule *rule = &c->op->rules[i];
        if (strcmp(rule->axis, "sequences") == 0 || c->tensors[case_tensor_index(c, rule->unless)].given) continue;
        op_size_set(&c->sizes, rule->axis, op_size(&c->sizes, rule->same_as));
    }
    if (c->packed) op_size_set(&c->sizes, "batch", 1);
    /* The tests' own work is by elements: where those are all there is, most cases are a quarter of the cost. */
    fit_cost(c, c->rules->cheap_steps && !rng_chance(r, 0.1) ? limits->cost / 4 : limits->cost);
}

/* Cuts the length into sequences, some of them empty; without offsets each row of the batch is one. */
static void draw_sequences(rng *r, test_case *c)
{
    int64_t length = op_size(&c->sizes, "length"), count = op_size(&c->sizes, "batch");
    if (c->packed) count = length == 0 ? rng_below(r, 4) : 1 + rng_below(r, FEW_SEQUENCES - 1);
    bool crowd = c->packed && c->rules->cheap_steps && length > 0 && rng_chance(r, 0.3);
    if (crowd) count = length / 3 < CASE_SEQUENCES ? length / 3 + 1 : CASE_SEQUENCES;
    op_size_set(&c->sizes, "sequences", count);
    if (!c->packed) return;
    for (int64_t s = 1; s < count; s++) {
        int64_t before = c->offsets[s - 1];
        int64_t most = crowd ? 6 : (length - before) / 2 + 2;
        c->offsets[s] = rng_chance(r, 0.3) ? before : before + rng_below(r, most);
        if (c->offsets[s] > length) c->offsets[s] = length;
    }
    c->offsets[count] = length;
}

rill_dtype case_wide(const test_case *c)
{
    return op_default_type(OP_STATE, c->activations);
}

static rill_dtype draw_dtype(rng *r, op_kind kind, const test_case *c)
{
    rill_dtype activations = c->activations, wide = case_wide(c);
    bool coin = rng_chance(r, 0.5);
    switch (kind) {
    case OP_ACTIVATION:
        return activations;
    case OP_GRADIENT:
        return coin && !op_type_is_complex(activations) ? RILL_F32 : activations;
    case OP_WEIGHT:
    case OP_GATE:
    case OP_RESULT_F32:
        return is_half(activations) && coin ? RILL_F32 : activations;
    case OP_PARAMETER:
        return wide;
    case OP_PARAMETER_GRADIENT:
        return coin && activations == RILL_F64 ? RILL_F32 : wide;
    case OP_STATE:
        return coin ? wide : activations;
    case OP_STATE_GRADIENT:
        if (activations == RILL_F64 && rng_chance(r, 0.3)) return RILL_F32;
        return coin ? wide : activations;
    case OP_OFFSETS:
        return RILL_I64;
    }
    return RILL_ABSENT;
}

static const value_rule *draw_rule(rng *r, const test_case *c, const char *name)
{
    const value_rule *fits[24];
    int count = 0;
    for (int i = 0; i < 24 && c->rules->values[i].tensor; i++) {
        const value_rule *rule = &c->rules->values[i];
        bool holds = true;
        for (int k = 0; rule->option && k < c->op->option_count; k++)
            if (strcmp(c->op->options[k].name, rule->option) == 0) holds = (c->options[k] != 0) == rule->when;
        if (holds && strcmp(rule->tensor, name) == 0) fits[count++] = rule;
    }
    return count ? fits[rng_below(r, count)] : NULL;
}

static void draw_options(rng *r, test_case *c)
{
    for (int k = 0; k < c->op->option_count; k++)
        if (c->op->options[k].type == OP_BOOL) c->options[k] = rng_chance(r, 0.5);
    for (int i = 0; i < 4 && c->rules->options[i].count; i++) {
        const option_rule *rule = &c->rules->options[i];
        const double *row = rule->rows[rng_below(r, rule->count)];
        for (int n = 0; n < 2 && rule->names[n]; n++)
            for (int k = 0; k < c->op->option_count; k++)
                if (strcmp(c->op->options[k].name, rule->names[n]) == 0) c->options[k] = row[n];
    }
}

static void draw_tensor(rng *r, test_case *c, int index, const draw_limits *limits)
{
    const op_tensor *t = &c->op->tensors[index];
    case_tensor *out = &c->tensors[index];
    out->dtype = draw_dtype(r, t->kind, c);
    out->seed = rng_next(r);
    out->alias = -1;
    for (int k = 0; k < t->rank; k++) out->shape[k] = op_size(&c->sizes, t->axes[k]);
    if (!op_is_output(t)) out->rule = draw_rule(r, c, t->name);
    out->how = draw_layout(r, out, t->rank, !op_is_output(t) && t->kind != OP_OFFSETS);
    if (limits->plain) out->how = layout_contiguous();
}

/* Lets an output be the view of an input, where the rules allow it. */
static void draw_aliases(rng *r, test_case *c)
{
    for (int i = 0; i < 4 && c->rules->aliases[i].output; i++) {
        int output = case_tensor_index(c, c->rules->aliases[i].output),
            input = case_tensor_index(c, c->rules->aliases[i].input);
        case_tensor *from = &c->tensors[input], *to = &c->tensors[output];
        if (!from->given || !to->given || !rng_chance(r, 0.35)) continue;
        memset(from->how.broadcast, 0, sizeof from->how.broadcast);
        to->alias = input;
        to->dtype = from->dtype;
        to->how = from->how;
    }
}

static void draw_specials(rng *r, test_case *c)
{
    if (!rng_chance(r, 0.08)) return;
    for (int i = 0; i < 2; i++) {
        int index = (int)rng_below(r, c->op->tensor_count);
        const op_tensor *t = &c->op->tensors[index];
        if (!op_is_output(t) && t->kind != OP_OFFSETS && c->tensors[index].given) c->tensors[index].specials = 1;
    }
}

static bool is_optional(const op_tensor *t)
{
    return t->role == OP_OPTIONAL_INPUT || t->role == OP_OPTIONAL_OUTPUT;
}

/* The input whose gradient an output is, if it is one of the same operator, or -1. */
static int gradient_of(const op *row, const op_tensor *output)
{
    const op_tensor *of = output->name[0] == 'd' ? op_tensor_find(row, output->name + 1) : NULL;
    return op_is_output(output) && of && !op_is_output(of) ? (int)(of - row->tensors) : -1;
}

void case_give(test_case *c, int tensor)
{
    const op_tensor *t = &c->op->tensors[tensor];
    int of = gradient_of(c->op, t);
    c->tensors[tensor].given = true;
    if (of >= 0) c->tensors[of].given = true;
    if (c->rules->needs[0] && strcmp(c->rules->needs[0], t->name) == 0)
        c->tensors[case_tensor_index(c, c->rules->needs[1])].given = true;
    for (int i = 0; i < c->op->tensor_count && c->rules->unread; i++)
        if (c->tensors[case_tensor_index(c, c->rules->unread)].given) c->tensors[i].unread_first = false;
}

/* Where every output is optional: all of the call, often; else those that can be, at least one. */
static void draw_wanted(rng *r, test_case *c)
{
    bool all = rng_chance(r, 0.4), any = false;
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        int of = gradient_of(c->op, t);
        if (all && t->kind != OP_OFFSETS) c->tensors[i].given = true;
        if (of >= 0 && !c->tensors[of].given) c->tensors[i].given = false;
        if (op_is_output(t) && c->tensors[i].given) case_give(c, i);
        any = any || (op_is_output(t) && c->tensors[i].given);
    }
    for (int i = 0; i < c->op->tensor_count && !any; i++) {
        any = op_is_output(&c->op->tensors[i]);
        if (any) case_give(c, i);
    }
}

static void draw_given(rng *r, test_case *c, const draw_limits *limits)
{
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        c->tensors[i].given = !is_optional(t) || rng_chance(r, 0.5);
        if (t->kind != OP_OFFSETS) continue;
        c->packed = limits->packed > 0 || (limits->packed == 0 && rng_chance(r, 0.25));
        c->tensors[i].given = c->packed;
    }
    for (int i = 0; i < c->op->tensor_count; i++)
        if (c->op->tensors[i].role == OP_OUTPUT) return;
    draw_wanted(r, c);
}

static rill_dtype draw_activations(rng *r, const op *row, const draw_limits *limits)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F32, RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    rill_dtype drawn = types[rng_below(r, sizeof types / sizeof types[0])];
    if (limits->activations != RILL_ABSENT) drawn = limits->activations;
    if (!row->takes_complex) return drawn;
    bool complex = limits->activations != RILL_ABSENT ? limits->complex : rng_chance(r, 0.25);
    if (complex) return drawn == RILL_F64 ? RILL_C128 : RILL_C64;
    return drawn;
}

test_case case_draw(uint64_t seed, uint64_t number, const draw_limits *limits)
{
    test_case c = {.seed = seed, .number = number};
    rng made = rng_make(seed, number), *r = &made;
    c.op = draw_op(r, limits);
    c.rules = rules_of(c.op);
    c.activations = draw_activations(r, c.op, limits);
    c.decay = rng_chance(r, 0.5) ? REGIME_ORDINARY : (regime)rng_below(r, c.rules->regimes);
    c.threads = (int[]){1, 2, 3, 16}[rng_below(r, 4)];
    c.reproducible = rng_chance(r, 0.3);
    draw_options(r, &c);
    draw_given(r, &c, limits);
    draw_sizes(r, &c, limits);
    draw_sequences(r, &c);
    for (int i = 0; i < c.op->tensor_count; i++) draw_tensor(r, &c, i, limits);
    if (c.rules->cheap_steps) draw_arrangement(r, &c, limits);
    draw_decays(r, &c, limits);
    if (limits->plain) return c;
    draw_aliases(r, &c);
    draw_specials(r, &c);
    return c;
}

void case_set_options(const test_case *c, void *args)
{
    for (int k = 0; k < c->op->option_count; k++) {
        void *at = (char *)args + c->op->options[k].offset;
        if (c->op->options[k].type == OP_BOOL)
            *(bool *)at = c->options[k] != 0;
        else
            *(double *)at = c->options[k];
    }
}
