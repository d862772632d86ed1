/*
 * Every size that HARD_INPUTS names for scan (row 12): lengths beside powers of two with a few channels, channel
 * counts up to more than a grid has rows, and crowds of sequences; each as a drawn call, guards, strides and all,
 * against the judge.
 *
 *     sizes [--only TARGET] [--seed N]
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "words.h"

static const int64_t shapes[][3] = {
    /* batch, length, channels */
    {1, 0, 3},     {1, 1, 3},      {1, 33, 3},    {1, 513, 3},   {1, 1025, 3},   {1, 1537, 3},   {1, 65537, 3},
    {1, 65537, 1}, {1, 262147, 1}, {1, 33, 1},    {3, 33, 3},    {1, 33, 65537}, {2, 1, 70001},  {70001, 1, 1},
    {70001, 3, 2}, {2, 5000, 70},  {4000, 5, 20}, {1, 4357, 28}, {2, 8451, 20},  {1, 53001, 64},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0], FOR_ALL = SHAPES - 1 /* the last is long for a GPU only */ };

/* Few large cases, several small ones; the types go round. */
static bool check_shape(const judges *j, const venue *t, const op *row, uint64_t seed, size_t which)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F32, RILL_F16};
    const int64_t *shape = shapes[which];
    bool good = true;
    for (uint64_t k = 0; k < (shape[0] * shape[1] * shape[2] < 20000 ? 5 : 2) && good; k++) {
        draw_limits limits = {
            .cost = 1e9, .packed = k == 3 ? 1 : -1, .op = row, .activations = types[(which + k) % 5]};
        limits.complex = k == 1;
        op_size_set(&limits.pinned, "batch", shape[0]);
        op_size_set(&limits.pinned, "length", shape[1]);
        op_size_set(&limits.pinned, "channels", shape[2]);
        test_case c = case_draw(seed, which * 5 + k, &limits);
        rill_context *context = venue_open(t, 2, false);
        judged right;
        good = judge_case(j, &c, &right) && check_case(context, t, &c, &right);
        if (!good) {
            printf("FAILED on %s: ", t->name);
            case_print(&c);
        }
        judged_free(&right);
        rill_context_destroy(context);
    }
    return good;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 2);
    int failed = 0, tested = 0;
    judges j = judges_open();
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) ? venue_open(t, 1, false) : NULL;
        rill_context_destroy(probe);
        if (!probe) continue;
        tested++;
        const size_t most = t->backend == RILL_BACKEND_CUDA ? SHAPES : FOR_ALL;
        for (const op *const *row = op_table; *row; row++)
            for (size_t i = 0; i < most && plausible_find((*row)->name)->cheap_steps; i++)
                failed += !check_shape(&j, t, *row, given.seed, i);
    }
    judges_close(&j);
    printf("%d backends, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
