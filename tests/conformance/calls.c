#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strided.h"

bool tensor_has_axis(const op_tensor *t, const char *axis)
{
    for (int k = 0; k < t->rank; k++)
        if (strcmp(t->axes[k], axis) == 0) return true;
    return false;
}

bool state_pair(const test_case *c, int i, int *init, int *final)
{
    for (int k = 0; k < 4 && c->rules->aliases[k].output; k++) {
        const op_tensor *output = op_tensor_find(c->op, c->rules->aliases[k].output);
        if (tensor_has_axis(output, "length") || i-- > 0) continue;
        *final = (int)(output - c->op->tensors);
        *init = (int)(op_tensor_find(c->op, c->rules->aliases[k].input) - c->op->tensors);
        return true;
    }
    return false;
}

bool case_option(const test_case *c, const char *name)
{
    const op_option *option = op_option_find(c->op, name);
    return option && c->options[option - c->op->options] != 0;
}

/* The same values in f64. */
static rill_tensor widen(rill_tensor narrow)
{
    rill_tensor wide = view_alloc_like(&narrow, RILL_F64);
    int64_t index[RILL_MAX_RANK] = {0};
    if (view_count(&narrow) > 0) {
        do view_store(&wide, index, view_load(&narrow, index));
        while (view_next(&narrow, index));
    }
    free(narrow.data);
    return wide;
}

call call_make(const test_case *c, bool wide)
{
    call made = {.c = c};
    int init, final;
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        if (!c->tensors[i].given) continue;
        made.tensor[i] = op_is_output(t)
                             ? view_alloc(wide ? RILL_F64 : c->tensors[i].dtype, t->rank, c->tensors[i].shape)
                             : case_values(c, i);
    }
    for (int i = 0; wide && state_pair(c, i, &init, &final); i++)
        if (made.tensor[init].data) made.tensor[init] = widen(made.tensor[init]);
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
        for (int k = 0; t->dtype != RILL_ABSENT && k < row->tensors[i].rank; k++)
            if (strcmp(row->tensors[i].axes[k], axis) == 0) *t = view_narrow(*t, k, start, count);
    }
}

bool args_run(rill_context *context, const op *row, args_room *args)
{
    rill_status status = row->run(context, args);
    if (status == RILL_OK) return true;
    printf("%s: %s\n", rill_status_name(status), rill_last_error(context));
    return false;
}

bool calls_same_outputs(const call *a, const call *b, const char *what)
{
    for (int i = 0; i < a->c->op->tensor_count; i++) {
        int64_t at[RILL_MAX_RANK] = {0};
        const op_tensor *t = &a->c->op->tensors[i];
        if (!a->tensor[i].data || !op_is_output(t) || view_same(&a->tensor[i], &b->tensor[i], at)) continue;
        printf("%s: %s differs at", what, t->name);
        for (int k = 0; k < t->rank; k++) printf(" %lld", (long long)at[k]);
        printf(": %.17g and %.17g\n", view_load(&a->tensor[i], at), view_load(&b->tensor[i], at));
        return false;
    }
    return true;
}
