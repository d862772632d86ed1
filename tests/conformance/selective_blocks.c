/*
 * The selective scan at numbers of channels that, among an H200's multiprocessors, call for blocks of each shape;
 * with 16 states, softplus without limits and tensors that lie in order, as the kernels of whole work want it.
 *
 *     selective_blocks [--seed N] [--only TARGET]
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "run.h"
#include "words.h"

enum { SIZES = 4, TYPES = 3, DRAWS = 2 };

/* batch, length, channels, states: the fine shape, the middle one, the usual one for two blocks and for three */
/* clang-format off */
static const int64_t sizes[SIZES][4] = {
    {1, 70, 1056, 16}, {1, 70, 2112, 16}, {1, 70, 4096, 16}, {3, 40, 4224, 16},
};
/* clang-format on */

static test_case draw(uint64_t seed, int size, rill_dtype type, int number)
{
    draw_limits limits = {
        .cost = 1e9, .plain = true, .packed = -1, .op = op_find("selective_scan"), .activations = type};
    const char *names[] = {"batch", "length", "channels", "states"};
    for (int i = 0; i < 4; i++) op_size_set(&limits.pinned, names[i], sizes[size][i]);
    op_size_set(&limits.pinned, "groups", 1);
    test_case c = case_draw(seed, (uint64_t)(size + SIZES * (type + TYPES * number)), &limits);
    c.reproducible = false;
    for (int i = 0; i < c.op->option_count; i++)
        c.options[i] = c.op->options + i == op_option_find(c.op, "delta_softplus");
    return c;
}

int main(int count, char **words)
{
    static const rill_dtype types[TYPES] = {RILL_F32, RILL_BF16, RILL_F16};
    law_words given = law_words_read(count, words, 6);
    judges j = judges_open();
    int failed = 0, tested = 0;
    for (int k = 0; k < SIZES * TYPES * DRAWS; k++) {
        const test_case c = draw(given.seed, k % SIZES, types[k / SIZES % TYPES], k / SIZES / TYPES);
        failed += !check_everywhere(&j, given.only, &c, &tested);
    }
    judges_close(&j);
    printf("%d calls, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
