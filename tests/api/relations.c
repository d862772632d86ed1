/* Arguments that are wrong only beside each other: offsets, groups, overlaps, limits, reserved fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calling.h"
#include "strided.h"

static rill_context *context;

static rill_tensor *tensor_in(any_args *args, const op *row, const char *name)
{
    return op_args_tensor(op_tensor_find(row, name), args);
}

/* Of the operators that the context has. */
static const op *const *next_op(const op *const *row)
{
    while (*row && !op_available(*row, context)) row++;
    return row;
}

static const char *lead_name(const op *row)
{
    return row->tensors[0].name;
}

static const char *state_name(const op *row)
{
    int i = 0;
    while (op_tensor_axis(&row->tensors[i], "sequences") < 0) i++;
    return row->tensors[i].name;
}

/* All states out of the call: they have as many rows as there are sequences. */
static void drop_states(const op *row, any_args *args)
{
    for (int i = 0; i < row->tensor_count; i++)
        if (op_tensor_axis(&row->tensors[i], "sequences") >= 0)
            *op_args_tensor(&row->tensors[i], args) = (rill_tensor){0};
}

typedef struct offsets_row {
    int64_t value[4];
    const char *message;
} offsets_row;

static void offsets(void **unused)
{
    static const offsets_row rows[] = {
        {{1, 1, 2, 3}, "offsets: element 0 is 1, expected 0"},
        {{-1, 1, 2, 3}, "offsets: element 0 is -1, expected 0"},
        {{0, 2, 1, 3}, "offsets: element 2 is 1, expected at least 2 (the one before)"},
        {{0, 1, 2, 2}, "offsets: element 3 is 2, expected 3 (length of %s)"},
        {{0, 1, 2, 4}, "offsets: element 3 is 4, expected 3 (length of %s)"},
        {{0, 1, INT64_MAX, INT64_MIN},
         "offsets: element 3 is -9223372036854775808, expected at least "
         "9223372036854775807 (the one before)"},
    };
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1)) {
        valid_call valid = call_valid(*row, RILL_F32, true);
        any_args broken = valid.args;
        drop_states(*row, &broken);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(rows[i].value, RILL_I64, 4);
            char message[128];
            snprintf(message, sizeof message, rows[i].message, lead_name(*row));
            assert_refused(context, &valid, &broken, RILL_INVALID_OFFSETS, "%s", message);
        }
        static const int64_t backwards[] = {3, 9, 1, 9, 0}, all_empty[] = {0, 0, 3, 3};
        rill_tensor strided =
            rill_tensor_view(RILL_HOST, &backwards[4], RILL_I64, 1, (int64_t[]){3}, (int64_t[]){-2});
        *tensor_in(&broken, *row, "offsets") = strided;
        assert_accepted(context, *row, &broken);
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(all_empty, RILL_I64, 4);
        assert_accepted(context, *row, &broken);
        call_done(&valid);
    }
}

static void offsets_shapes(void **unused)
{
    static const int64_t values[] = {0, 1, 2, 3};
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1)) {
        valid_call valid = call_valid(*row, RILL_F32, true), rows = call_valid(*row, RILL_F32, false);
        any_args broken = valid.args;
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 0);
        assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE, "offsets: axis 0 is 0, expected at least 1");
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 4);
        assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE,
                       "%s: axis 0 is 2, expected 3 (sequences of offsets)", state_name(*row));
        broken = rows.args;
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 4);
        assert_refused(context, &rows, &broken, RILL_INVALID_SHAPE, "%s: axis 0 is 2, expected 1 (offsets is given)",
                       lead_name(*row));
        call_done(&valid);
        call_done(&rows);
    }
}

static void limits(void **unused)
{
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1)) {
        if (!op_option_find(*row, "delta_min")) continue;
        valid_call valid = call_valid(*row, RILL_F32, false);
        any_args broken = valid.args;
        double *low = (double *)(broken.bytes + op_option_find(*row, "delta_min")->offset);
        double *high = (double *)(broken.bytes + op_option_find(*row, "delta_max")->offset);
        *low = 0.5, *high = 0.25;
        assert_refused(context, &valid, &broken, RILL_INVALID_OPTION,
                       "delta_max: found 0.25, expected at least 0.5 (delta_min)");
        *low = 0, *high = -1;
        assert_refused(context, &valid, &broken, RILL_INVALID_OPTION,
                       "delta_max: found -1, expected at least 0 (delta_min)");
        *low = NAN, *high = 1;
        assert_refused(context, &valid, &broken, RILL_INVALID_OPTION, "delta_min: found nan, expected a number");
        *low = 0, *high = NAN;
        assert_refused(context, &valid, &broken, RILL_INVALID_OPTION, "delta_max: found nan, expected a number");
        *low = 0.5, *high = 0.5;
        assert_accepted(context, *row, &broken);
        *low = -INFINITY, *high = INFINITY;
        assert_accepted(context, *row, &broken);
        *low = 0.5, *high = 0; /* no upper limit */
        assert_accepted(context, *row, &broken);
        call_done(&valid);
    }
}

/* The last field of every args struct. */
static void reserved_fields(void **unused)
{
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1)) {
        valid_call valid = call_valid(*row, RILL_F32, false);
        for (int k = 0; k < 8; k++) {
            any_args broken = valid.args;
            *(uint64_t *)(broken.bytes + (*row)->args_size - (size_t)(8 - k) * 8) = 7;
            assert_refused(context, &valid, &broken, RILL_INVALID_OPTION, "reserved: element %d is 7, expected 0", k);
        }
        call_done(&valid);
    }
}

/* The call with so many groups. */
static any_args with_groups(const valid_call *valid, int64_t count)
{
    any_args args = valid->args;
    for (int i = 0; i < valid->row->tensor_count; i++) {
        int axis = op_tensor_axis(&valid->row->tensors[i], "groups");
        rill_tensor *t = op_args_tensor(&valid->row->tensors[i], &args);
        int64_t shape[] = {t->shape[0], t->shape[1], count, t->shape[3]};
        if (axis >= 0) *t = rill_tensor_view(RILL_HOST, t->data, t->dtype, 4, shape, NULL);
    }
    return args;
}

static void groups(void **unused)
{
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1)) {
        if (!op_tensor_find(*row, "B")) continue;
        valid_call valid = call_valid(*row, RILL_F32, false);
        any_args args = with_groups(&valid, 3);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "B: axis 2 is 3, expected a divisor of 4 (channels of x)");
        args = with_groups(&valid, 0);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE, "B: axis 2 is 0, expected at least 1 (groups)");
        args = with_groups(&valid, 8);
        assert_refused(context, &valid, &args, RILL_INVALID_SHAPE,
                       "B: axis 2 is 8, expected a divisor of 4 (channels of x)");
        args = with_groups(&valid, 4);
        assert_accepted(context, *row, &args);
        call_done(&valid);
    }
}

/* DESIGN's own example. */
static void weight_of_another_width(void **unused)
{
    static float memory[128 * 128];
    (void)unused;
    valid_call valid = call_valid(op_find("selective_layer"), RILL_F32, false);
    any_args broken = {0};
    rill_selective_layer_args *args = (rill_selective_layer_args *)&broken;
    args->x = rill_tensor_3d(memory, RILL_F32, 1, 1, 128);
    args->W_delta = rill_tensor_2d(memory, RILL_F32, 128, 128);
    args->W_B = rill_tensor_2d(memory, RILL_F32, 16, 100);
    args->W_C = args->A_log = args->W_B;
    args->y = rill_tensor_3d(memory, RILL_F32, 1, 1, 128);
    assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE, "W_B: axis 1 is 100, expected 128 (channels of x)");
    call_done(&valid);
}

/* The memory of one tensor for another, of the same shape. */
typedef struct alias {
    const char *op, *output, *other;
    bool may; /* be the same view */
} alias;

static const alias alias_table[] = {
    {"scan", "h", "b", true},
    {"scan", "h", "a", false},
    {"scan", "h_final", "h_init", true},
    {"scan_backward", "da", "a", false},
    {"scan_backward", "da", "h", false},
    {"scan_backward", "da", "dh", false},
    {"scan_backward", "db", "a", false},
    {"scan_backward", "db", "h", false},
    {"scan_backward", "db", "dh", false},
    {"scan_backward", "db", "da", false},
    {"scan_backward", "dh_init", "h_init", false},
    {"scan_backward", "dh_init", "dh_final", false},
    {"selective_scan", "y", "x", true},
    {"selective_scan", "y", "z", false},
    {"selective_scan", "h_final", "h_init", true},
    {"selective_layer", "y", "x", false},
    {"selective_layer", "y", "z", false},
    {"selective_layer", "h_final", "h_init", true},
    {"selective_scan_backward", "dx", "x", false},
    {"selective_scan_backward", "dx", "dy", false},
    {"selective_scan_backward", "ddelta", "delta", false},
    {"selective_scan_backward", "ddelta", "dx", false},
    {"selective_scan_backward", "dA", "A", false},
    {"selective_scan_backward", "dC", "dB", false},
    {"selective_scan_backward", "ddelta_bias", "dD", false},
    {"selective_scan_backward", "dz", "z", false},
    {"selective_scan_backward", "dh_init", "h_init", false},
    {"selective_scan_backward", "dh_init", "dh_final", false},
    {"selective_layer_backward", "dx", "dy", false},
    {"selective_layer_backward", "dW_delta", "W_delta", false},
    {"selective_layer_backward", "dW_delta_down", "W_delta_down", false},
    {"selective_layer_backward", "dW_C", "dW_B", false},
    {"selective_layer_backward", "dA_log", "A_log", false},
    {"selective_layer_backward", "dD", "db_delta", false},
    {"selective_layer_backward", "dh_init", "dh_final", false},
    {"linear_attention", "y", "v", false},
    {"linear_attention", "S_final", "S_init", true},
    {"linear_attention_backward", "dq", "q", false},
    {"linear_attention_backward", "dq", "k", false},
    {"linear_attention_backward", "dk", "dq", false},
    {"linear_attention_backward", "dv", "v", false},
    {"linear_attention_backward", "dv", "dy", false},
    {"linear_attention_backward", "dgate", "gate", false},
    {"linear_attention_backward", "dbeta", "dgate", false},
    {"linear_attention_backward", "dS_init", "S_init", false},
    {"linear_attention_backward", "dS_init", "dS_final", false},
};

static void aliases(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof alias_table / sizeof alias_table[0]; i++) {
        const alias *a = &alias_table[i];
        if (!op_available(op_find(a->op), context)) continue;
        valid_call valid = call_valid(op_find(a->op), RILL_F32, false);
        any_args args = valid.args;
        rill_tensor *output = tensor_in(&args, valid.row, a->output), *other = tensor_in(&args, valid.row, a->other);
        *output = *other;
        if (a->may)
            assert_accepted(context, valid.row, &args);
        else
            assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "%s: overlaps %s, expected disjoint memory",
                           a->output, a->other);
        output->data = (float *)output->data + 1; /* shifted by one element: not the same view */
        assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "%s: overlaps %s, expected disjoint memory%s",
                       a->output, a->other, a->may ? " or the same view" : "");
        call_done(&valid);
    }
}

/* An input and an output are every other element of one buffer. */
static void interleaved(void **unused)
{
    static float pair[2 * 2 * 4 * 5 * 7];
    static const alias rows[] = {
        {"scan", "h", "b", true},
        {"scan", "h_final", "h_init", true},
        {"scan_backward", "db", "dh", false},
        {"scan_backward", "dh_init", "dh_final", false},
        {"selective_scan", "y", "x", true},
        {"selective_scan", "h_final", "h_init", true},
        {"selective_layer", "y", "x", false},
        {"selective_layer", "h_final", "h_init", true},
        {"selective_scan_backward", "ddelta", "delta", false},
        {"selective_scan_backward", "dh_init", "dh_final", false},
        {"selective_layer_backward", "dx", "dy", false},
        {"selective_layer_backward", "dW_B", "W_B", false},
        {"linear_attention", "y", "v", false},
        {"linear_attention", "S_final", "S_init", true},
        {"linear_attention_backward", "dk", "k", false},
        {"linear_attention_backward", "dS_init", "dS_final", false},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!op_available(op_find(rows[i].op), context)) continue;
        valid_call valid = call_valid(op_find(rows[i].op), RILL_F32, false);
        any_args args = valid.args;
        rill_tensor *output = tensor_in(&args, valid.row, rows[i].output);
        rill_tensor *input = tensor_in(&args, valid.row, rows[i].other);
        int64_t elements = view_count(input);
        for (int k = 0; k < input->rank; k++) input->stride[k] *= 2, output->stride[k] *= 2;
        input->data = pair;
        output->data = pair + 1;
        for (int64_t k = 0; k < 2 * elements; k++) pair[k] = k % 2 ? -7 : 1;
        assert_accepted(context, valid.row, &args);
        for (int64_t k = 0; k < 2 * elements; k += 2) assert_true(pair[k] == 1);
        for (int64_t k = 1; k < 2 * elements; k += 2) assert_true(pair[k] != -7);
        output->data = pair + 2; /* on top of the input, one element further */
        assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "%s: overlaps %s, expected disjoint memory%s",
                       rows[i].output, rows[i].other, rows[i].may ? " or the same view" : "");
        call_done(&valid);
    }
}

/* Sizes of 0 are sizes like others. */
static void nothing_to_do(void **unused)
{
    static const char *const axes[] = {"batch", "length", "channels", "states", "heads", "keys", "values"};
    (void)unused;
    for (const op *const *row = next_op(op_table); *row; row = next_op(row + 1))
        for (int a = 0; a < 7; a++) {
            valid_call valid = call_valid(*row, RILL_F32, false);
            any_args args = valid.args;
            for (int i = 0; i < (*row)->tensor_count; i++) {
                rill_tensor *t = op_args_tensor(&(*row)->tensors[i], &args);
                for (int k = 0; t->dtype && k < (*row)->tensors[i].rank; k++) {
                    const char *axis = (*row)->tensors[i].axes[k];
                    bool follows = a == 0 && strcmp(axis, "sequences") == 0;
                    if (!follows && strcmp(axis, axes[a]) != 0) continue;
                    t->shape[k] = 0;
                    t->data = NULL; /* which it may be, without elements */
                }
            }
            assert_accepted(context, *row, &args);
            call_done(&valid);
        }
}

static int run_group(const char *backend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets),       cmocka_unit_test(offsets_shapes),
        cmocka_unit_test(limits),        cmocka_unit_test(reserved_fields),
        cmocka_unit_test(groups),        cmocka_unit_test(weight_of_another_width),
        cmocka_unit_test(aliases),       cmocka_unit_test(interleaved),
        cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}

int main(void)
{
    return run_on_host_backends(&context, run_group);
}
