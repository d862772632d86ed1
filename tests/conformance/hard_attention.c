/*
 * The inputs on which linear attention has failed elsewhere (HARD_INPUTS), each with its right value, on every
 * backend and instruction set that has the operator, forward and through the gradients: attention_values.c and
 * attention_shapes.c hold them.  Row 7 is in large_attention.c.
 */
#include "hard_attention.h"

#include <stdio.h>
#include <string.h>

#include "available.h"
#include "strided.h"

rill_context *context;
const venue *where;

const rill_dtype wide_types[2] = {RILL_F32, RILL_F64};

void run(const rill_linear_attention_args *args)
{
    rill_status status = rill_linear_attention(context, args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

void run_back(const rill_linear_attention_backward_args *args)
{
    rill_status status = rill_linear_attention_backward(context, args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

void narrow(attention *made, int64_t start, int64_t count)
{
    rill_linear_attention_args *a = &made->forward;
    rill_linear_attention_backward_args *b = &made->backward;
    rill_tensor *const by_time[] = {&a->q,  &a->k,  &a->v,  &a->gate, &a->beta,  &a->y,
                                    &b->dy, &b->dq, &b->dk, &b->dv,   &b->dgate, &b->dbeta};
    for (size_t i = 0; i < sizeof by_time / sizeof by_time[0]; i++)
        if (by_time[i]->dtype != RILL_ABSENT) *by_time[i] = view_narrow(*by_time[i], 1, start, count);
    attention_share(made);
}

void set_gate(const attention *made, int64_t t, double value)
{
    const rill_tensor *gate = &made->forward.gate;
    for (int64_t b = 0; b < gate->shape[0]; b++)
        for (int64_t h = 0; h < gate->shape[2]; h++) view_store(gate, (int64_t[]){b, t, h}, value);
}

void list_outputs(attention *made, rill_tensor *list[ATTENTION_OUTPUTS])
{
    rill_tensor *const all[] = {&made->forward.y,      &made->forward.S_final, &made->backward.dq,
                                &made->backward.dk,    &made->backward.dv,     &made->backward.dgate,
                                &made->backward.dbeta, &made->backward.dS_init};
    memcpy(list, all, sizeof all);
}

/* -1 where the operator is not there. */
static int run_venue(const venue *v, rill_context *opened)
{
    where = v;
    context = opened;
    bool has = op_available(op_find("linear_attention"), context) &&
               op_available(op_find("linear_attention_backward"), context);
    if (!has) printf("%s: does not have both directions, not tested\n", v->name);
    return has ? run_value_tests(v->name) + run_shape_tests(v->name) + run_chunk_tests(v->name) : -1;
}

int main(int count, char **words)
{
    return venues_main(count, words, run_venue);
}
