/*
 * The gradients of the selective scan as most callers ask for them (16 states, softplus without limits, neither gate
 * nor offsets, tensors that lie in order), which have kernels of their own, with each one in turn left out.
 *
 *     selective_back_wanted [--seed N] [--only TARGET]
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "run.h"
#include "words.h"

enum { TYPES = 2 };

/* `left_out`: a tensor of the operator. */
static test_case draw(uint64_t seed, rill_dtype type, int left_out)
{
    static const char *const axes[] = {"batch", "length", "channels", "groups", "states"};
    static const int64_t sizes[] = {4, 200, 256, 1, 16};
    draw_limits limits = {
        .cost = 1e9, .plain = true, .packed = -1, .op = op_find("selective_scan_backward"), .activations = type};
    for (int i = 0; i < 5; i++) op_size_set(&limits.pinned, axes[i], sizes[i]);
    const uint64_t own = (uint64_t)(left_out * TYPES + (type == RILL_BF16)), all = OP_MAX_TENSORS * TYPES;
    test_case c = case_draw(seed, own, &limits);
    for (uint64_t turn = 1; c.time_last; turn++) c = case_draw(seed, own + turn * all, &limits);
    c.reproducible = false;
    for (int i = 0; i < c.op->option_count; i++)
        c.options[i] = c.op->options + i == op_option_find(c.op, "delta_softplus");
    for (int i = 0; i < c.op->tensor_count; i++) {
        const op_tensor *t = &c.op->tensors[i];
        if (op_is_output(t)) case_give(&c, i);
    }
    c.tensors[case_tensor_index(&c, "z")].given = c.tensors[case_tensor_index(&c, "dz")].given = false;
    c.tensors[case_tensor_index(&c, "dy")].given = true;
    c.tensors[left_out].given = false;
    return c;
}

int main(int count, char **words)
{
    static const rill_dtype types[TYPES] = {RILL_F32, RILL_BF16};
    const op *row = op_find("selective_scan_backward");
    law_words given = law_words_read(count, words, 8);
    judges j = judges_open();
    int failed = 0, tested = 0;
    for (int i = 0; i < row->tensor_count; i++)
        for (int k = 0; k < TYPES && op_is_output(&row->tensors[i]); k++) {
            const test_case c = draw(given.seed, types[k], i);
            failed += !check_everywhere(&j, given.only, &c, &tested);
        }
    judges_close(&j);
    printf("%d calls, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
