/* Gradients that are wanted need what they are computed from; those that are not, nothing. */
#include <stdio.h>
#include <string.h>

#include "available.h"
#include "calling.h"

static rill_context *context;

/* Of the operators of gradients that the context has. */
static const op *const *next_backward(const op *const *row)
{
    while (*row && (!op_is_backward(*row) || !op_available(*row, context))) row++;
    return row;
}

/* The input whose gradient an output is; NULL: not one of the call's. */
static const op_tensor *input_of(const op *row, const op_tensor *output)
{
    const op_tensor *input = op_is_output(output) ? op_tensor_find(row, output->name + 1) : NULL;
    return input && input->role == OP_OPTIONAL_INPUT ? input : NULL;
}

/* Every gradient of an input that may be absent, without it; then without both. */
static void without_their_inputs(void **unused)
{
    (void)unused;
    for (const op *const *row = next_backward(op_table); *row; row = next_backward(row + 1))
        for (int packed = 0; packed < 2; packed++) {
            valid_call valid = call_valid(*row, packed ? RILL_F16 : RILL_F64, packed);
            for (int i = 0; i < (*row)->tensor_count; i++) {
                const op_tensor *output = &(*row)->tensors[i], *input = input_of(*row, output);
                any_args args = valid.args;
                char axes[128];
                if (!input || strcmp(input->name, "W_delta_down") == 0) continue; /* see no_low_rank */
                *op_args_tensor(input, &args) = (rill_tensor){0};
                assert_refused(context, &valid, &args, RILL_INVALID_NULL,
                               "%s: not given, expected a tensor %s (%s is given)", input->name,
                               axes_text(input, axes, sizeof axes), output->name);
                *op_args_tensor(output, &args) = (rill_tensor){0};
                assert_accepted(context, *row, &args);
            }
            call_done(&valid);
        }
}

/* One gradient less each time, in the end none; with nothing to do the rest is still checked. */
static void one_less_each_time(void **unused)
{
    (void)unused;
    for (const op *const *row = next_backward(op_table); *row; row = next_backward(row + 1)) {
        valid_call valid = call_valid(*row, RILL_F32, true);
        const op_tensor *first = &(*row)->tensors[0];
        any_args args = valid.args;
        for (int i = 0; i < (*row)->tensor_count; i++) {
            if (!op_is_output(&(*row)->tensors[i])) continue;
            *op_args_tensor(&(*row)->tensors[i], &args) = (rill_tensor){0};
            assert_accepted(context, *row, &args);
        }
        char axes[128];
        op_args_tensor(first, &args)->rank--;
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE, "%s: rank is %d, expected %d %s", first->name,
                       first->rank - 1, first->rank, axes_text(first, axes, sizeof axes));
        call_done(&valid);
    }
}

/* What comes from above may be absent: each, and all of it. */
static void nothing_from_above(void **unused)
{
    (void)unused;
    for (const op *const *row = next_backward(op_table); *row; row = next_backward(row + 1)) {
        valid_call valid = call_valid(*row, RILL_BF16, false);
        any_args none = valid.args;
        for (int i = 0; i < (*row)->tensor_count; i++) {
            const op_tensor *t = &(*row)->tensors[i];
            any_args args = valid.args;
            if (op_is_output(t) || (t->kind != OP_GRADIENT && t->kind != OP_STATE_GRADIENT)) continue;
            *op_args_tensor(t, &args) = *op_args_tensor(t, &none) = (rill_tensor){0};
            assert_accepted(context, *row, &args);
        }
        assert_accepted(context, *row, &none);
        call_done(&valid);
    }
}

/* The layer's down projection, whose absence makes W_delta square. */
static void no_low_rank(void **unused)
{
    (void)unused;
    if (!op_available(op_find("selective_layer_backward"), context)) return;
    valid_call valid = call_valid(op_find("selective_layer_backward"), RILL_F32, false);
    any_args args = valid.args;
    rill_selective_layer_backward_args *a = (rill_selective_layer_backward_args *)&args;
    a->W_delta_down = (rill_tensor){0};
    a->W_delta = rill_tensor_2d(a->W_delta.data, RILL_F32, 4, 4);
    a->dW_delta = rill_tensor_2d(a->dW_delta.data, RILL_F32, 4, 4);
    a->dW_delta_down = rill_tensor_2d(a->dW_delta_down.data, RILL_F32, 4, 4);
    assert_refused(context, &valid, &args, RILL_INVALID_NULL,
                   "W_delta_down: not given, expected a tensor [rank, channels] (dW_delta_down is given)");
    a->dW_delta_down = (rill_tensor){0};
    assert_accepted(context, valid.row, &args);
    call_done(&valid);
}

static any_args without(const valid_call *valid, const char *const *names)
{
    any_args args = valid->args;
    for (; *names; names++) *op_args_tensor(op_tensor_find(valid->row, *names), &args) = (rill_tensor){0};
    return args;
}

/* Those of scan, of which da also needs h. */
static void gradients_of_scan(void **unused)
{
    (void)unused;
    for (int packed = 0; packed < 2; packed++) {
        valid_call valid = call_valid(op_find("scan_backward"), packed ? RILL_C64 : RILL_F32, packed);
        any_args args = without(&valid, (const char *const[]){"h", NULL});
        assert_refused(context, &valid, &args, RILL_INVALID_NULL,
                       "h: not given, expected a tensor [batch, length, channels] (da is given)");
        args = without(&valid, (const char *const[]){"h_init", NULL});
        assert_refused(context, &valid, &args, RILL_INVALID_NULL,
                       "h_init: not given, expected a tensor [sequences, channels] (dh_init is given)");
        args = without(&valid, (const char *const[]){"h", "da", NULL});
        assert_accepted(context, valid.row, &args);
        args = without(&valid, (const char *const[]){"h", "h_init", "da", "dh_init", "dh", NULL});
        assert_accepted(context, valid.row, &args);
        args = without(&valid, (const char *const[]){"dh", "dh_final", "h_init", "dh_init", NULL});
        assert_accepted(context, valid.row, &args);
        args = without(&valid, (const char *const[]){"da", "db", "dh_init", NULL});
        assert_accepted(context, valid.row, &args);
        args = without(&valid, (const char *const[]){"h", "h_init", "dh", "dh_final", "da", "db", "dh_init", NULL});
        assert_accepted(context, valid.row, &args);
        op_args_tensor(op_tensor_find(valid.row, "a"), &args)->rank = 2; /* with nothing to do, still checked */
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "a: rank is 2, expected 3 [batch, length, channels]");
        call_done(&valid);
    }
}

static int run_group(const char *backend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_their_inputs), cmocka_unit_test(one_less_each_time),
        cmocka_unit_test(nothing_from_above),   cmocka_unit_test(no_low_rank),
        cmocka_unit_test(gradients_of_scan),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}

int main(void)
{
    return run_on_host_backends(&context, run_group);
}
