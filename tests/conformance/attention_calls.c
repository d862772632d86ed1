#include "attention_calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "rng.h"
#include "strided.h"
#include "venues.h"

/* A drawn value: normal, or a fraction; or NaN where it is an output. */
typedef enum content { NORMAL, FRACTION, NOTHING } content;

static rill_tensor make(attention *made, rill_dtype dtype, int rank, const int64_t *shape, content holds)
{
    rill_tensor tensor = view_alloc(dtype, rank, shape);
    rng r = rng_make(17, (uint64_t)made->count);
    int64_t index[RILL_MAX_RANK] = {0};
    made->memory[made->count++] = tensor.data;
    if (view_count(&tensor) == 0) return tensor;
    do
        view_store(&tensor, index,
                   holds == NOTHING  ? NAN
                   : holds == NORMAL ? 0.2 + rng_normal(&r)
                                     : 0.8 + 0.2 * rng_unit(&r));
    while (view_next(&tensor, index));
    return tensor;
}

attention attention_make(rill_dtype dtype, attention_sizes s)
{
    const int64_t queries[] = {s.batch, s.length, s.query_heads, s.keys}, gates[] = {s.batch, s.length, s.heads};
    const int64_t values[] = {s.batch, s.length, s.heads, s.values};
    const int64_t states[] = {s.sequences ? s.sequences : s.batch, s.heads, s.keys, s.values};
    rill_dtype wide = op_default_type(OP_STATE, dtype);
    attention made = {.count = 0};
    rill_linear_attention_args *a = &made.forward;
    rill_linear_attention_backward_args *b = &made.backward;
    a->q = make(&made, dtype, 4, queries, NORMAL), a->k = make(&made, dtype, 4, queries, NORMAL);
    a->v = make(&made, dtype, 4, values, NORMAL);
    a->gate = make(&made, dtype, 3, gates, FRACTION), a->beta = make(&made, dtype, 3, gates, FRACTION);
    a->S_init = make(&made, wide, 4, states, NORMAL);
    a->y = make(&made, dtype, 4, values, NOTHING), a->S_final = make(&made, wide, 4, states, NOTHING);
    b->dy = make(&made, dtype, 4, values, NORMAL), b->dS_final = make(&made, wide, 4, states, NORMAL);
    b->dq = make(&made, dtype, 4, queries, NOTHING), b->dk = make(&made, dtype, 4, queries, NOTHING);
    b->dv = make(&made, dtype, 4, values, NOTHING);
    b->dgate = make(&made, dtype, 3, gates, NOTHING), b->dbeta = make(&made, dtype, 3, gates, NOTHING);
    b->dS_init = make(&made, wide, 4, states, NOTHING);
    attention_share(&made);
    return made;
}

void attention_free(attention *made)
{
    for (int i = 0; i < made->count; i++) free(made->memory[i]);
    *made = (attention){0};
}

void attention_share(attention *made)
{
    const rill_linear_attention_args *a = &made->forward;
    rill_linear_attention_backward_args *b = &made->backward;
    b->q = a->q, b->k = a->k, b->v = a->v;
    b->gate = a->gate, b->beta = a->beta, b->S_init = a->S_init, b->offsets = a->offsets;
    b->gate_is_log = a->gate_is_log, b->reverse = a->reverse, b->scale = a->scale;
    if (a->gate.dtype == RILL_ABSENT) b->dgate = (rill_tensor){0};
    if (a->beta.dtype == RILL_ABSENT) b->dbeta = (rill_tensor){0};
    if (a->S_init.dtype == RILL_ABSENT) b->dS_init = (rill_tensor){0};
}

/* Room for an args struct of any operator. */
typedef union room {
    long double align;
    char bytes[4096];
} room;

/* The same call on one of the judge's contexts, with outputs of its own, by row of the operator's tensors. */
static bool judge(rill_backend backend, const op *row, const void *args, rill_tensor outputs[OP_MAX_TENSORS])
{
    rill_context *context = context_open(backend);
    room own;
    memcpy(own.bytes, args, row->args_size);
    for (int i = 0; i < row->tensor_count; i++) {
        rill_tensor *t = op_args_tensor(&row->tensors[i], &own);
        outputs[i] = (rill_tensor){0};
        if (!op_is_output(&row->tensors[i]) || t->dtype == RILL_ABSENT) continue;
        outputs[i] = *t = view_alloc_like(t, backend == RILL_BACKEND_REFERENCE ? RILL_F64 : t->dtype);
    }
    rill_status status = row->run(context, &own);
    if (status != RILL_OK) printf("the judge refuses: %s\n", rill_last_error(context));
    rill_context_destroy(context);
    return status == RILL_OK;
}

/* The host's offsets of a call, or NULL; and its sequences. */
static const int64_t *offsets_of(const op *row, const void *args, int64_t *sequences)
{
    room own;
    memcpy(own.bytes, args, row->args_size);
    const rill_tensor *offsets = op_args_tensor(op_tensor_find(row, "offsets"), &own);
    *sequences = offsets->dtype == RILL_ABSENT ? 0 : offsets->shape[0] - 1;
    return offsets->dtype == RILL_ABSENT ? NULL : offsets->data;
}

static bool compare(const op *row, const void *args, const rill_tensor *ref, const rill_tensor *loop)
{
    int64_t sequences;
    const int64_t *offsets = offsets_of(row, args, &sequences);
    rill_dtype activations = ((const rill_tensor *)((const char *)args + row->tensors[0].offset))->dtype;
    bool good = true;
    for (int i = 0; i < row->tensor_count; i++) {
        if (!ref[i].data) continue;
        const rill_tensor *out = (const rill_tensor *)((const char *)args + row->tensors[i].offset);
        measure m = measure_compare(&row->tensors[i], out, &(measure_against){&ref[i], &ref[i], &loop[i]}, offsets,
                                    sequences, measure_tolerance(activations, op_is_backward(row)));
        if (!m.passed)
            printf("%s %s: %s is off, error over bound %.3g, relative %.3g, %lld special values differ\n", row->name,
                   rill_dtype_name(activations), row->tensors[i].name, m.worst, m.relative_error,
                   (long long)m.special_mismatches);
        good = good && m.passed;
    }
    return good;
}

bool call_agrees(rill_context *context, const op *row, const void *args, const void *judged)
{
    rill_status status = row->run(context, args);
    if (status != RILL_OK) printf("%s: %s\n", row->name, rill_last_error(context));
    return status == RILL_OK && call_is_right(row, args, judged);
}

bool call_is_right(const op *row, const void *args, const void *judged)
{
    rill_tensor ref[OP_MAX_TENSORS] = {{0}}, loop[OP_MAX_TENSORS] = {{0}};
    bool good = judge(RILL_BACKEND_REFERENCE, row, judged ? judged : args, ref) &&
                judge(RILL_BACKEND_LOOP, row, judged ? judged : args, loop) && compare(row, args, ref, loop);
    for (int i = 0; i < OP_MAX_TENSORS; i++) {
        free(ref[i].data);
        free(loop[i].data);
    }
    return good;
}

bool attention_agrees(rill_context *context, const attention *made, const char *what)
{
    bool good = call_agrees(context, op_find("linear_attention"), &made->forward, NULL) &&
                call_agrees(context, op_find("linear_attention_backward"), &made->backward, NULL);
    if (!good) printf("^ %s\n", what);
    return good;
}

bool views_near(const rill_tensor *a, const rill_tensor *b, double tolerance)
{
    int64_t index[RILL_MAX_RANK] = {0};
    double error = 0, size = 0;
    if (view_count(a) == 0) return true;
    do {
        double left = view_load(a, index), right = view_load(b, index);
        error += (left - right) * (left - right);
        size += right * right;
    } while (view_next(a, index));
    return sqrt(error) <= tolerance * sqrt(size);
}
