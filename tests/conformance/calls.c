#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strided.h"

int op_count(void)
{
    int count = 0;
    while (op_table[count]) count++;
    return count;
}

void pin_attention(draw_limits *limits, int number)
{
    static const int64_t sizes[6][4] = {
        /* heads, query_heads, keys, values */
        {4, 2, 24, 24}, {16, 16, 16, 40}, {1, 1, 64, 64}, {2, 1, 8, 100}, {6, 3, 60, 3}, {3, 3, 128, 64},
    };
    op_size_set(&limits->pinned, "heads", sizes[number][0]);
    op_size_set(&limits->pinned, "query_heads", sizes[number][1]);
    op_size_set(&limits->pinned, "keys", sizes[number][2]);
    op_size_set(&limits->pinned, "values", sizes[number][3]);
}

bool state_pair(const test_case *c, int i, int *entry, int *exit)
{
    if (i >= 2 || !c->rules->states[i].entry) return false;
    *entry = case_tensor_index(c, c->rules->states[i].entry);
    *exit = case_tensor_index(c, c->rules->states[i].exit);
    return true;
}

bool case_option(const test_case *c, const char *name)
{
    const op_option *option = op_option_find(c->op, name);
    return option && c->options[option - c->op->options] != 0;
}

bool runs_backwards(const test_case *c)
{
    return case_option(c, "reverse") != op_is_backward(c->op);
}

/* The same values in f64, or c128. */
static rill_tensor widen(rill_tensor narrow)
{
    rill_tensor made = view_alloc_like(&narrow, op_wide_type(narrow.dtype));
    rill_tensor wide = view_parts(made), from = view_parts(narrow);
    int64_t index[RILL_MAX_RANK] = {0};
    if (view_count(&from) > 0) {
        do view_store(&wide, index, view_load(&from, index));
        while (view_next(&from, index));
    }
    free(narrow.data);
    return made;
}

/* The same elements in memory whose fastest axis is time. */
static rill_tensor with_time_last(const op_tensor *t, rill_tensor plain)
{
    int time = op_tensor_axis(t, "length");
    layout how = layout_contiguous();
    if (time < 0) return plain;
    for (int k = time + 1; k < t->rank; k++) how.order[k - 1] = k;
    how.order[t->rank - 1] = time;
    rill_tensor made = view_alloc_like(&plain, plain.dtype);
    for (int64_t i = t->rank - 1, run = 1; i >= 0; run *= made.shape[how.order[i--]]) made.stride[how.order[i]] = run;
    view_copy(&made, &plain);
    free(plain.data);
    return made;
}

call call_make(const test_case *c, bool wide)
{
    call made = {.c = c, .wide = wide};
    int entry, exit;
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        rill_dtype dtype = wide ? op_wide_type(c->activations) : c->tensors[i].dtype;
        if (!c->tensors[i].given) continue;
        made.tensor[i] = op_is_output(t) ? view_alloc(dtype, t->rank, c->tensors[i].shape) : case_values(c, i);
        if (c->time_last) made.tensor[i] = with_time_last(t, made.tensor[i]);
    }
    for (int i = 0; wide && state_pair(c, i, &entry, &exit); i++)
        if (made.tensor[entry].data) made.tensor[entry] = widen(made.tensor[entry]);
    call_clear_outputs(&made);
    return made;
}

void call_free(call *made)
{
    for (int i = 0; i < OP_MAX_TENSORS; i++) free(made->tensor[i].data);
    *made = (call){0};
}

void call_clear_outputs(const call *made)
{
    for (int i = 0; i < made->c->op->tensor_count; i++)
        if (made->tensor[i].data && op_is_output(&made->c->op->tensors[i])) view_fill(&made->tensor[i], -12345);
}

void call_args(const call *made, args_room *args)
{
    memset(args, 0, sizeof *args);
    for (int i = 0; i < made->c->op->tensor_count; i++)
        *op_args_tensor(&made->c->op->tensors[i], args) = made->tensor[i];
    case_set_options(made->c, args);
}

void args_narrow(const op *row, args_room *args, const char *axis, int64_t start, int64_t count)
{
    for (int i = 0; i < row->tensor_count; i++) {
        rill_tensor *t = op_args_tensor(&row->tensors[i], args);
        int k = op_tensor_axis(&row->tensors[i], axis);
        if (t->dtype != RILL_ABSENT && k >= 0) *t = view_narrow(*t, k, start, count);
    }
}

bool args_run(rill_context *context, const op *row, args_room *args)
{
    rill_status status = row->run(context, args);
    if (status == RILL_OK) return true;
    printf("%s: %s\n", rill_status_name(status), rill_last_error(context));
    return false;
}

bool is_sum(const op_tensor *t)
{
    return op_is_output(t) && op_tensor_axis(t, "length") < 0 && op_tensor_axis(t, "sequences") < 0;
}

bool calls_same_outputs(const call *a, const call *b, const char *what, bool sums)
{
    for (int i = 0; i < a->c->op->tensor_count; i++) {
        int64_t at[RILL_MAX_RANK] = {0};
        const op_tensor *t = &a->c->op->tensors[i];
        if (!a->tensor[i].data || !op_is_output(t) || (is_sum(t) && !sums) ||
            view_same(&a->tensor[i], &b->tensor[i], at))
            continue;
        printf("%s: %s differs at", what, t->name);
        for (int k = 0; k < t->rank; k++) printf(" %lld", (long long)at[k]);
        printf(": %.17g and %.17g%s\n", view_load(&a->tensor[i], at), view_load(&b->tensor[i], at),
               op_type_is_complex(a->tensor[i].dtype) ? " (real parts)" : "");
        return false;
    }
    return true;
}
