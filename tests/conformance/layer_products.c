/*
 * The selective layer and its gradients at sizes that its products tell apart: a few rows, little work, and tiles, of
 * which some hold all their weights and some must not; in each type, with and without `reproducible`.
 *
 *     layer_products [--seed N] [--only TARGET]
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "run.h"
#include "words.h"

enum { SIZES = 7, TYPES = 4 };

/* batch, length, channels, states */
static const int64_t sizes[SIZES][4] = {
    {4, 3, 130, 16}, {2, 40, 96, 16},  {1, 300, 33, 5},    {1, 65, 520, 8},
    {2, 33, 200, 3}, {2, 515, 128, 4}, {1, 1100, 112, 16},
};

static test_case draw(uint64_t seed, int size, rill_dtype type, bool back, bool reproducible)
{
    draw_limits limits = {.cost = 1e9,
                          .plain = size % 2 == 0,
                          .packed = -1,
                          .op = op_find(back ? "selective_layer_backward" : "selective_layer"),
                          .activations = type};
    const char *names[] = {"batch", "length", "channels", "states"};
    for (int i = 0; i < 4; i++) op_size_set(&limits.pinned, names[i], sizes[size][i]);
    test_case c = case_draw(seed, (uint64_t)(size + SIZES * (type + back)), &limits);
    c.reproducible = reproducible;
    return c;
}

int main(int count, char **words)
{
    static const rill_dtype types[TYPES] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    law_words given = law_words_read(count, words, 4);
    judges j = judges_open();
    int failed = 0, tested = 0;
    for (int k = 0; k < SIZES * TYPES * 4; k++) {
        const test_case c =
            draw(given.seed, k % SIZES, types[k / SIZES % TYPES], k / SIZES / TYPES % 2, k / SIZES / TYPES / 2);
        failed += !check_everywhere(&j, given.only, &c, &tested);
    }
    judges_close(&j);
    printf("%d calls, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
