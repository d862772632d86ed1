/* Arguments that are wrong only beside each other: offsets, groups, overlaps, limits, reserved fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calling.h"
#include "strided.h"

static rill_context *context;

static rill_tensor *tensor_in(any_args *args, const op *row, const char *name)
{
    return op_args_tensor(op_tensor_find(row, name), args);
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
        {{0, 1, 2, 2}, "offsets: element 3 is 2, expected 3 (length of x)"},
        {{0, 1, 2, 4}, "offsets: element 3 is 4, expected 3 (length of x)"},
        {{0, 1, INT64_MAX, INT64_MIN},
         "offsets: element 3 is -9223372036854775808, expected at least "
         "9223372036854775807 (the one before)"},
    };
    (void)unused;
    for (const op *const *row = op_table; *row; row++) {
        valid_call valid = call_valid(*row, RILL_F32, true);
        any_args broken = valid.args;
        *tensor_in(&broken, *row, "h_init") = *tensor_in(&broken, *row, "h_final") = (rill_tensor){0};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(rows[i].value, RILL_I64, 4);
            assert_refused(context, &valid, &broken, RILL_INVALID_OFFSETS, "%s", rows[i].message);
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
    for (const op *const *row = op_table; *row; row++) {
        valid_call valid = call_valid(*row, RILL_F32, true), rows = call_valid(*row, RILL_F32, false);
        any_args broken = valid.args;
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 0);
        assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE, "offsets: axis 0 is 0, expected at least 1");
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 4);
        assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE,
                       "h_init: axis 0 is 2, expected 3 (sequences of offsets)");
        broken = rows.args;
        *tensor_in(&broken, *row, "offsets") = rill_tensor_1d(values, RILL_I64, 4);
        assert_refused(context, &rows, &broken, RILL_INVALID_SHAPE, "x: axis 0 is 2, expected 1 (offsets is given)");
        call_done(&valid);
        call_done(&rows);
    }
}

static void limits(void **unused)
{
    (void)unused;
    for (const op *const *row = op_table; *row; row++) {
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

static void reserved_fields(void **unused)
{
    (void)unused;
    valid_call scan = call_valid(op_find("selective_scan"), RILL_F32, false);
    valid_call layer = call_valid(op_find("selective_layer"), RILL_F32, false);
    for (int k = 0; k < 8; k++) {
        any_args broken = scan.args;
        ((rill_selective_scan_args *)&broken)->reserved[k] = 7;
        assert_refused(context, &scan, &broken, RILL_INVALID_OPTION, "reserved: element %d is 7, expected 0", k);
        broken = layer.args;
        ((rill_selective_layer_args *)&broken)->reserved[k] = 7;
        assert_refused(context, &layer, &broken, RILL_INVALID_OPTION, "reserved: element %d is 7, expected 0", k);
    }
    call_done(&scan);
    call_done(&layer);
}

static void groups(void **unused)
{
    static float memory[64];
    (void)unused;
    valid_call valid = call_valid(op_find("selective_scan"), RILL_F32, false);
    any_args broken = valid.args;
    rill_selective_scan_args *args = (rill_selective_scan_args *)&broken;
    args->B = args->C =
        rill_tensor_view(RILL_HOST, memory, RILL_F32, 4, (int64_t[]){2, 3, 3, 5}, (int64_t[]){0, 0, 0, 1});
    assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE,
                   "B: axis 2 is 3, expected a divisor of 4 (channels of x)");
    args->B.shape[2] = args->C.shape[2] = 0;
    assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE, "B: axis 2 is 0, expected at least 1 (groups)");
    args->B.shape[2] = args->C.shape[2] = 8;
    assert_refused(context, &valid, &broken, RILL_INVALID_SHAPE,
                   "B: axis 2 is 8, expected a divisor of 4 (channels of x)");
    args->B.shape[2] = args->C.shape[2] = 4;
    assert_accepted(context, valid.row, &broken);
    call_done(&valid);
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
static void aliases(void **unused)
{
    (void)unused;
    for (const op *const *row = op_table; *row; row++) {
        valid_call valid = call_valid(*row, RILL_F32, false);
        bool may = strcmp((*row)->name, "selective_scan") == 0;
        any_args args = valid.args;
        *tensor_in(&args, *row, "h_final") = *tensor_in(&args, *row, "h_init");
        assert_accepted(context, *row, &args);
        *tensor_in(&args, *row, "y") = *tensor_in(&args, *row, "x");
        if (may)
            assert_accepted(context, *row, &args);
        else
            assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "y: overlaps x, expected disjoint memory");
        args = valid.args;
        *tensor_in(&args, *row, "y") = *tensor_in(&args, *row, "z");
        assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "y: overlaps z, expected disjoint memory");
        args = valid.args;
        *tensor_in(&args, *row, "h_final") = *tensor_in(&args, *row, "h_init");
        *(float **)&tensor_in(&args, *row, "h_final")->data += 1; /* shifted by one element: not the same view */
        assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP,
                       "h_final: overlaps h_init, expected disjoint memory or the same view");
        call_done(&valid);
    }
}

/* y and x are every other element of one buffer; so are the states. */
static void interleaved(void **unused)
{
    static float pair[2 * 3 * 4 * 2], states[2 * 4 * 5 * 2];
    (void)unused;
    for (const op *const *row = op_table; *row; row++) {
        valid_call valid = call_valid(*row, RILL_F32, false);
        any_args args = valid.args;
        rill_tensor *x = tensor_in(&args, *row, "x"), *y = tensor_in(&args, *row, "y");
        rill_tensor *init = tensor_in(&args, *row, "h_init"), *final = tensor_in(&args, *row, "h_final");
        rill_tensor *views[] = {x, y, init, final};
        for (int i = 0; i < 4; i++) {
            views[i]->data = (i < 2 ? pair : states) + i % 2;
            for (int k = 0; k < 3; k++) views[i]->stride[k] *= 2;
        }
        for (int i = 0; i < 48; i++) pair[i] = i % 2 ? -7 : 1;
        assert_accepted(context, *row, &args);
        for (int i = 0; i < 48; i += 2) assert_true(pair[i] == 1);
        for (int i = 1; i < 48; i += 2) assert_true(pair[i] != -7);
        y->data = pair;
        y->shape[2] = 4;
        y->data = (float *)y->data + 2; /* on top of x, one element further */
        assert_refused(context, &valid, &args, RILL_INVALID_OVERLAP, "y: overlaps x, expected disjoint memory%s",
                       strcmp((*row)->name, "selective_scan") == 0 ? " or the same view" : "");
        call_done(&valid);
    }
}

/* Sizes of 0 are sizes like others. */
static void nothing_to_do(void **unused)
{
    static const char *const axes[] = {"batch", "length", "channels", "states"};
    (void)unused;
    for (const op *const *row = op_table; *row; row++)
        for (int a = 0; a < 4; a++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets),       cmocka_unit_test(offsets_shapes),
        cmocka_unit_test(limits),        cmocka_unit_test(reserved_fields),
        cmocka_unit_test(groups),        cmocka_unit_test(weight_of_another_width),
        cmocka_unit_test(aliases),       cmocka_unit_test(interleaved),
        cmocka_unit_test(nothing_to_do),
    };
    static const rill_backend backends[] = {RILL_BACKEND_CPU, RILL_BACKEND_REFERENCE, RILL_BACKEND_LOOP};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        if (rill_context_create(&(rill_options){.backend = backends[i], .threads = 2}, &context) != RILL_OK) {
            fprintf(stderr, "%s\n", rill_last_error(NULL));
            return 1;
        }
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        rill_context_destroy(context);
    }
    return failed != 0;
}
