/* Arguments of linear attention that are wrong only beside each other: heads, scale; and the answer of a backend that
 * lacks an operator. */
#include <math.h>
#include <stdio.h>

#include "available.h"
#include "calling.h"

static rill_context *context;

static const char *const directions[] = {"linear_attention", "linear_attention_backward"};

/* Every tensor by query heads gets so many of them. */
static any_args with_query_heads(const valid_call *valid, int64_t count)
{
    any_args args = valid->args;
    for (int i = 0; i < valid->row->tensor_count; i++) {
        int axis = op_tensor_axis(&valid->row->tensors[i], "query_heads");
        rill_tensor *t = op_args_tensor(&valid->row->tensors[i], &args);
        if (axis < 0) continue;
        int64_t shape[] = {t->shape[0], t->shape[1], count, t->shape[3]};
        *t = rill_tensor_view(RILL_HOST, t->data, t->dtype, 4, shape, NULL);
    }
    return args;
}

static void query_heads(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        if (!op_available(op_find(directions[i]), context)) continue;
        valid_call valid = call_valid(op_find(directions[i]), RILL_F32, false);
        any_args args = with_query_heads(&valid, 3);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "q: axis 2 is 3, expected a divisor of 4 (heads of v)");
        args = with_query_heads(&valid, 8);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "q: axis 2 is 8, expected a divisor of 4 (heads of v)");
        args = with_query_heads(&valid, 0);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "q: axis 2 is 0, expected at least 1 (query_heads)");
        for (int64_t count = 1; count <= 4; count *= 2) {
            args = with_query_heads(&valid, count);
            assert_accepted(context, valid.row, &args);
        }
        call_done(&valid);
    }
}

static void scales(void **unused)
{
    static const double good[] = {0, 1, -0.25, 1e300, INFINITY};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        if (!op_available(op_find(directions[i]), context)) continue;
        valid_call valid = call_valid(op_find(directions[i]), RILL_F32, true);
        any_args args = valid.args;
        double *scale = (double *)(args.bytes + op_option_find(op_find(directions[i]), "scale")->offset);
        *scale = NAN;
        assert_refused(context, &valid, &args, RILL_INVALID_OPTION, "scale: found nan, expected a number");
        for (int k = 0; k < 5; k++) {
            *scale = good[k];
            assert_accepted(context, valid.row, &args);
        }
        call_done(&valid);
    }
}

/* A state nobody asked for, of more bytes than there are. */
static void endless_states(void **unused)
{
    static float one;
    const int64_t huge = (int64_t)1 << 60, none[] = {0, 0, 0, 0};
    (void)unused;
    if (!op_available(op_find("linear_attention"), context)) return;
    valid_call valid = call_valid(op_find("linear_attention"), RILL_F32, false);
    any_args args = {0};
    rill_linear_attention_args *a = (rill_linear_attention_args *)&args;
    a->q = a->k = rill_tensor_view(RILL_HOST, &one, RILL_F32, 4, (int64_t[]){1, 1, 1, huge}, none);
    a->v = rill_tensor_4d(valid.memory[0], RILL_F32, 1, 1, 1, 8);
    a->y = rill_tensor_4d(valid.memory[1], RILL_F32, 1, 1, 1, 8);
    assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                   "q: axis 3 is 1152921504606846976, expected states [heads, keys, values] below 2^63 bytes");
    call_done(&valid);
}

/* One answer to every call, whatever its arguments, and a context that goes on. */
static void lacking(void **unused)
{
    rill_info info;
    (void)unused;
    assert_int_equal(rill_context_info(context, &info), RILL_OK);
    for (const op *const *row = op_table; *row; row++) {
        if (op_available(*row, context)) continue;
        valid_call valid = call_valid(*row, RILL_F32, true), other = call_valid(op_table[0], RILL_F32, true);
        char message[128];
        snprintf(message, sizeof message, "%s: the %s backend does not have it", (*row)->name, info.backend_name);
        assert_int_equal((*row)->run(context, &valid.args), RILL_UNSUPPORTED);
        assert_string_equal(rill_last_error(context), message);
        op_args_tensor(&(*row)->tensors[0], &valid.args)->rank = 2; /* what is wrong is told first */
        assert_int_equal((*row)->run(context, &valid.args), RILL_INVALID_SHAPE);
        assert_accepted(context, other.row, &other.args);
        call_done(&valid);
        call_done(&other);
    }
}

static int run_group(const char *backend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_heads),
        cmocka_unit_test(scales),
        cmocka_unit_test(endless_states),
        cmocka_unit_test(lacking),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}

int main(void)
{
    return run_on_host_backends(&context, run_group);
}
