/* The workspace grows with new shapes and then stays: a call of a shape seen before takes nothing new. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "available.h"
#include "calling.h"
#include "venues.h"

static rill_context *context;

static int64_t workspace(void)
{
    rill_info info;
    assert_int_equal(rill_context_info(context, &info), RILL_OK);
    return info.workspace;
}

/* Three kinds of calls of each operator, in one order and the other; from the second round on nothing grows. */
static void stays(void **unused)
{
    static const rill_dtype types[] = {RILL_F32, RILL_BF16, RILL_F64};
    valid_call calls[32];
    int count = 0;
    int64_t grown = 0;
    (void)unused;
    for (const op *const *row = op_table; *row; row++)
        for (int i = 0; i < 3 && op_available(*row, context); i++)
            calls[count++] = call_valid(*row, types[i], i == 1);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < count; i++) {
            int k = round % 2 ? count - 1 - i : i;
            int64_t before = workspace();
            assert_accepted(context, calls[k].row, &calls[k].args);
            int64_t after = workspace();
            assert_true(after >= before);
            assert_accepted(context, calls[k].row, &calls[k].args);
            assert_int_equal(workspace(), after);
        }
        if (round == 0) grown = workspace();
        assert_int_equal(workspace(), grown);
    }
    for (int i = 0; i < count; i++) call_done(&calls[i]);
}

/* Many contexts side by side, each with its own message and workspace. */
static void contexts_are_apart(void **unused)
{
    valid_call valid = call_valid(op_table[0], RILL_F32, false);
    any_args broken = valid.args;
    rill_context *other = context_open(rill_context_backend(context));
    (void)unused;
    op_args_tensor(&valid.row->tensors[0], &broken)->rank = 2;
    assert_int_not_equal(valid.row->run(other, &broken), RILL_OK);
    assert_string_not_equal(rill_last_error(other), "");
    assert_accepted(context, valid.row, &valid.args);
    assert_string_equal(rill_last_error(context), "");
    rill_context_destroy(other);
    call_done(&valid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_are_apart),
        cmocka_unit_test(stays),
    };
    int failed = 0;
    for (const venue *v = venue_table; v->name; v++) {
        if (v->device_tensors) continue;
        context = venue_open(v, 2, false);
        if (!context) continue;
        failed += cmocka_run_group_tests_name(v->name, tests, NULL, NULL);
        rill_context_destroy(context);
    }
    return failed != 0;
}
