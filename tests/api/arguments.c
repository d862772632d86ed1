/*
 * Every tensor of every operator, wrong in every way that a single tensor can be: absent, NULL, of another type, on
 * another device, of another rank or size, with strides that leave the address space, misaligned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calling.h"

static rill_context *context;
static const char *context_name;

/* The tensor whose size the message quotes: the one that fixes an axis for the whole call. */
static const char *binder_of(const op *row, const char *axis, bool packed)
{
    bool layer = op_tensor_find(row, "W_B") != NULL;
    if (strcmp(axis, "states") == 0) return layer ? "W_B" : "A";
    if (strcmp(axis, "groups") == 0) return "B";
    if (strcmp(axis, "rank") == 0) return "W_delta_down";
    if (strcmp(axis, "heads") == 0 || strcmp(axis, "values") == 0) return "v";
    return strcmp(axis, "sequences") == 0 && packed ? "offsets" : row->tensors[0].name;
}

typedef void visit(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor);

/* Calls visit with a fresh copy of a valid call, for each tensor of each operator that the context has. */
static void each_tensor(rill_dtype activations, bool packed, visit *check)
{
    for (const op *const *row = op_table; *row; row++) {
        if (op_type_is_complex(activations) && !(*row)->takes_complex) continue;
        if (!op_available(*row, context)) continue;
        valid_call valid = call_valid(*row, activations, packed);
        assert_accepted(context, *row, &valid.args);
        for (int i = 0; i < (*row)->tensor_count; i++) {
            const op_tensor *t = &(*row)->tensors[i];
            any_args broken = valid.args;
            if (op_args_tensor(t, &broken)->dtype != RILL_ABSENT)
                check(&valid, t, &broken, op_args_tensor(t, &broken));
        }
        call_done(&valid);
    }
}

static void check_absent(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    char text[128];
    tensor->dtype = RILL_ABSENT;
    assert_refused(context, valid, broken, RILL_INVALID_DTYPE,
                   "%s: dtype is absent but data is given, expected a dtype", t->name);
    *tensor = (rill_tensor){0};
    if (t->role == OP_INPUT || t->role == OP_OUTPUT)
        assert_refused(context, valid, broken, RILL_INVALID_NULL, "%s: not given, expected a tensor %s", t->name,
                       axes_text(t, text, sizeof text));
}

static void absent(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_absent);
}

static void check_null(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    char text[128] = "[";
    for (int k = 0; k < t->rank; k++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", k ? ", " : "",
                 (long long)tensor->shape[k]);
    tensor->data = NULL;
    assert_refused(context, valid, broken, RILL_INVALID_NULL, "%s: data is NULL, expected %s] %s", t->name, text,
                   rill_dtype_name(tensor->dtype));
}

static void null_data(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_null);
    each_tensor(RILL_BF16, false, check_null);
}

/* What a tensor's type may be beside these activations, as messages say it. */
static const char *types_text(op_kind kind, rill_dtype activations)
{
    bool half = activations == RILL_BF16 || activations == RILL_F16, wide = activations == RILL_F64;
    const char *lead = rill_dtype_name(activations);
    static char text[64];
    switch (kind) {
    case OP_GRADIENT:
        snprintf(text, sizeof text, half || wide ? "%s or f32" : "%s", lead);
        break;
    case OP_WEIGHT:
    case OP_GATE:
    case OP_RESULT_F32:
        snprintf(text, sizeof text, half ? "%s or f32" : "%s", lead);
        break;
    case OP_STATE:
        snprintf(text, sizeof text, half ? "f32 or %s" : "%s", lead);
        break;
    case OP_STATE_GRADIENT:
        snprintf(text, sizeof text, half ? "f32 or %s" : wide ? "%s or f32" : "%s", lead);
        break;
    case OP_PARAMETER:
        snprintf(text, sizeof text, "%s", half ? "f32" : lead);
        break;
    case OP_PARAMETER_GRADIENT:
        snprintf(text, sizeof text, wide ? "%s or f32" : "%s", half ? "f32" : lead);
        break;
    default:
        snprintf(text, sizeof text, "%s", lead);
        break;
    }
    return text;
}

/* Whether it is a result: an output, or in a backward call an output of the forward one. */
static bool is_result(const op *row, const op_tensor *t)
{
    for (const op *const *forward = op_table; *forward; forward++) {
        const op_tensor *same = (*forward)->backward == row ? op_tensor_find(*forward, t->name) : NULL;
        if (same && op_is_output(same)) return true;
    }
    return op_is_output(t);
}

/* Only a reference context takes gradients, results and states that are wider than all they come from. */
static bool may_be_wide(const op *row, const op_tensor *t)
{
    bool may = t->kind == OP_STATE || t->kind == OP_STATE_GRADIENT || t->kind == OP_GRADIENT ||
               t->kind == OP_PARAMETER_GRADIENT;
    return (may || is_result(row, t)) && strcmp(context_name, "reference") == 0;
}

static const char *all_types_text(const op *row, const op_tensor *t, rill_dtype activations)
{
    const char *wide = rill_dtype_name(op_type_is_complex(activations) ? RILL_C128 : RILL_F64);
    const char *types = types_text(t->kind, activations);
    static char text[72];
    const bool more = may_be_wide(row, t) && !strstr(types, wide);
    snprintf(text, sizeof text, "%s%s%s", types, more ? " or " : "", more ? wide : "");
    return text;
}

static void assert_dtype_refused(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor,
                                 rill_dtype wrong)
{
    const op_tensor *lead = &valid->row->tensors[0];
    rill_dtype activations = op_args_tensor(lead, &valid->args)->dtype;
    const char *found = rill_dtype_name(wrong);
    tensor->dtype = wrong;
    if (t->kind == OP_OFFSETS)
        assert_refused(context, valid, broken, RILL_INVALID_DTYPE, "%s: dtype is %s, expected i64", t->name, found);
    else if (t == lead)
        assert_refused(context, valid, broken, RILL_INVALID_DTYPE, "%s: dtype is %s, expected f64, f32, %s", t->name,
                       found, valid->row->takes_complex ? "bf16, f16, c64 or c128" : "bf16 or f16");
    else
        assert_refused(context, valid, broken, RILL_INVALID_DTYPE, "%s: dtype is %s, expected %s (%s is %s)", t->name,
                       found, all_types_text(valid->row, t, activations), lead->name, rill_dtype_name(activations));
}

static void check_dtype(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    assert_dtype_refused(valid, t, broken, tensor, t->kind == OP_OFFSETS ? RILL_F32 : RILL_I64);
}

/* Real beside complex, complex beside real, one complex type beside the other; the first tensor may change its type.
 */
static void check_complex_dtype(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    rill_dtype activations = op_args_tensor(&valid->row->tensors[0], &valid->args)->dtype;
    if (t == &valid->row->tensors[0] && valid->row->takes_complex) return;
    assert_dtype_refused(valid, t, broken, tensor, op_type_is_complex(activations) ? RILL_F32 : RILL_C64);
    assert_dtype_refused(valid, t, broken, tensor, activations == RILL_C128 ? RILL_C64 : RILL_F16);
}

static void check_wide_dtype(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    const bool may = may_be_wide(valid->row, t);
    if (t == &valid->row->tensors[0]) return;
    if (!may) assert_dtype_refused(valid, t, broken, tensor, RILL_F64);
    tensor->dtype = RILL_F64;
    if (may) assert_accepted(context, valid->row, broken);
}

static void check_unknown_dtype(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    char start[64];
    tensor->dtype = (rill_dtype)99;
    snprintf(start, sizeof start, "%s: dtype is 99, expected ", t->name);
    assert_int_equal(valid->row->run(context, broken), RILL_INVALID_DTYPE);
    assert_memory_equal(rill_last_error(context), start, strlen(start));
}

static void dtypes(void **unused)
{
    (void)unused;
    each_tensor(RILL_F64, true, check_dtype);
    each_tensor(RILL_F32, true, check_dtype);
    each_tensor(RILL_BF16, true, check_dtype);
    each_tensor(RILL_F16, false, check_dtype);
    each_tensor(RILL_F32, true, check_unknown_dtype);
    each_tensor(RILL_C64, true, check_dtype);
    each_tensor(RILL_C128, false, check_dtype);
    each_tensor(RILL_F32, false, check_wide_dtype);
    each_tensor(RILL_C64, true, check_complex_dtype);
    each_tensor(RILL_C128, true, check_complex_dtype);
}

static void check_device(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    tensor->device = RILL_CUDA;
    assert_refused(context, valid, broken, RILL_INVALID_DEVICE,
                   "%s: device is cuda, expected host (the context is %s)", t->name, context_name);
    tensor->device = (rill_device)7;
    assert_refused(context, valid, broken, RILL_INVALID_DEVICE, "%s: device is 7, expected host (the context is %s)",
                   t->name, context_name);
}

static void devices(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_device);
}

static void check_rank(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    static const int ranks[] = {-1, 0, 7, 1 << 30};
    char text[128];
    axes_text(t, text, sizeof text);
    for (int i = 0; i < 6; i++) {
        tensor->rank = i < 4 ? ranks[i] : t->rank + (i == 4 ? -1 : 1);
        assert_refused(context, valid, broken, RILL_INVALID_SHAPE, "%s: rank is %d, expected %d %s", t->name,
                       (int)tensor->rank, t->rank, text);
    }
}

static void ranks(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_rank);
}

static void check_axis(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor, int k)
{
    bool packed = op_size(&valid->sizes, "batch") == 1;
    const char *axis = t->axes[k], *binder = binder_of(valid->row, axis, packed);
    int64_t right = tensor->shape[k];
    tensor->shape[k] = right - 1;
    if (strcmp(binder, t->name) != 0 && t->kind != OP_OFFSETS)
        assert_refused(context, valid, broken, RILL_INVALID_SHAPE, "%s: axis %d is %lld, expected %lld (%s of %s)",
                       t->name, k, (long long)right - 1, (long long)right,
                       strcmp(axis, "sequences") == 0 && !packed ? "batch" : axis, binder);
    tensor->shape[k] = -1;
    assert_refused(context, valid, broken, RILL_INVALID_SHAPE, "%s: axis %d is -1, expected 0 or more", t->name, k);
    tensor->shape[k] = INT64_MAX;
    assert_int_not_equal(valid->row->run(context, broken), RILL_OK);
    assert_memory_equal(rill_last_error(context), t->name, strlen(t->name));
    tensor->shape[k] = right;
}

static void check_axes(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    for (int k = 0; k < t->rank; k++) check_axis(valid, t, broken, tensor, k);
}

static void axes(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_axes);
    each_tensor(RILL_F64, false, check_axes);
    each_tensor(RILL_C64, false, check_axes);
}

static void check_strides(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    static const int64_t far[] = {-((int64_t)1 << 62), (int64_t)1 << 62, INT64_MAX, INT64_MIN};
    for (int k = 0; k < t->rank; k++) {
        int64_t right = tensor->stride[k];
        if (tensor->shape[k] == 1) continue;
        for (int i = 0; i < 4; i++) {
            tensor->stride[k] = far[i];
            assert_refused(context, valid, broken, RILL_INVALID_STRIDE,
                           "%s: axis %d has size %lld and stride %lld, expected offsets below 2^63 bytes", t->name, k,
                           (long long)tensor->shape[k], (long long)tensor->stride[k]);
        }
        tensor->stride[k] = right;
    }
}

/* Every type to its size; of c128, which has 16 bytes, 8 are enough. */
static void check_alignment(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    char *right = tensor->data;
    int size = (int)rill_dtype_size(tensor->dtype), needed = size > 8 ? 8 : size;
    for (int found = 1; found < needed; found *= 2) {
        tensor->data = right + found;
        assert_refused(context, valid, broken, RILL_INVALID_STRIDE, "%s: data is aligned to %d bytes, expected %d",
                       t->name, found, needed);
    }
    if (t->kind == OP_OFFSETS) return; /* other offsets would lie there */
    tensor->data = right + needed;
    assert_accepted(context, valid->row, broken);
}

static void check_reserved(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    tensor->reserved = 3;
    assert_refused(context, valid, broken, RILL_INVALID_OPTION, "%s: reserved is 3, expected 0", t->name);
}

static void strides(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, true, check_strides);
    each_tensor(RILL_F64, false, check_strides);
    each_tensor(RILL_F32, true, check_alignment);
    each_tensor(RILL_F16, false, check_alignment);
    each_tensor(RILL_C64, true, check_alignment);
    each_tensor(RILL_C128, false, check_alignment);
    each_tensor(RILL_F32, true, check_reserved);
}

static void check_overlap(valid_call *valid, const op_tensor *t, any_args *broken, rill_tensor *tensor)
{
    const rill_tensor right = *tensor;
    if (!op_is_output(t)) return;
    for (int k = 0; k < t->rank; k++) {
        if (right.shape[k] == 1) continue;
        tensor->stride[k] = 0;
        assert_refused(context, valid, broken, RILL_INVALID_OVERLAP,
                       "%s: overlaps itself, found strides that meet, expected distinct elements", t->name);
        *tensor = right;
    }
    for (int i = 0; i < valid->row->tensor_count; i++) {
        const op_tensor *other = &valid->row->tensors[i];
        if (other == t || op_args_tensor(other, broken)->dtype == RILL_ABSENT) continue;
        tensor->data = op_args_tensor(other, broken)->data;
        tensor->stride[t->rank - 1] = -tensor->stride[t->rank - 1]; /* not the same view, if of the same shape */
        tensor->data =
            (char *)tensor->data + (tensor->shape[t->rank - 1] - 1) * (int64_t)rill_dtype_size(tensor->dtype);
        assert_int_equal(valid->row->run(context, broken), RILL_INVALID_OVERLAP);
        const char *message = rill_last_error(context);
        assert_true(strstr(message, t->name) != NULL && strstr(message, other->name) != NULL);
        assert_true(strstr(message, " overlaps ") && strstr(message, ", expected disjoint memory"));
        *tensor = right;
    }
}

static void overlaps(void **unused)
{
    (void)unused;
    each_tensor(RILL_F32, false, check_overlap);
    each_tensor(RILL_F32, true, check_overlap);
    each_tensor(RILL_C128, true, check_overlap);
}

/* NULL instead of a context or of the args. */
static void no_context(void **unused)
{
    (void)unused;
    for (const op *const *row = op_table; *row; row++) {
        valid_call valid = call_valid(*row, RILL_F32, false);
        assert_int_equal((*row)->run(NULL, &valid.args), RILL_INVALID_NULL);
        assert_int_equal((*row)->run(context, NULL), RILL_INVALID_NULL);
        char message[64];
        snprintf(message, sizeof message, "args: NULL, expected rill_%s_args", (*row)->name);
        assert_string_equal(rill_last_error(context), message);
        if (op_available(*row, context)) assert_accepted(context, *row, &valid.args);
        call_done(&valid);
    }
}

static int run_group(const char *backend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent),  cmocka_unit_test(null_data), cmocka_unit_test(dtypes),
        cmocka_unit_test(devices), cmocka_unit_test(ranks),     cmocka_unit_test(axes),
        cmocka_unit_test(strides), cmocka_unit_test(overlaps),  cmocka_unit_test(no_context),
    };
    context_name = backend;
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}

int main(void)
{
    return run_on_host_backends(&context, run_group);
}
