/* The exact decision about overlaps against marking bytes one by one, on small random views. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "overlap.h"
#include "rng.h"
#include "strided.h"

enum { ROOM = 8192, MIDDLE = ROOM / 2, TRIALS = 60000 };

static _Alignas(16) char room[ROOM];
static unsigned char marks[ROOM];

static rill_tensor draw_view(rng *r, bool loose)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_C128, RILL_I64};
    int64_t shape[RILL_MAX_RANK], stride[RILL_MAX_RANK];
    int rank = 1 + (int)rng_below(r, 4);
    rill_dtype dtype = types[rng_below(r, loose ? 5 : 1)];
    for (int k = 0; k < rank; k++) {
        shape[k] = rng_chance(r, 0.02) ? 0 : 1 + rng_below(r, rank > 2 ? 3 : 6);
        stride[k] = rng_below(r, 25) - 12;
    }
    /* Half of the views are orderly, as callers' are: nested, padded, perhaps turned around. */
    int64_t run = 1 + rng_below(r, 3);
    for (int k = rank - 1; k >= 0 && rng_chance(r, 0.5); k--) {
        stride[k] = rng_chance(r, 0.3) ? -run : run;
        run = run * (shape[k] > 0 ? shape[k] : 1) + rng_below(r, 2);
    }
    int64_t size = (int64_t)rill_dtype_size(dtype);
    return rill_tensor_view(RILL_HOST, room + MIDDLE + (rng_below(r, 40) - 20) * size, dtype, rank, shape, stride);
}

/* Adds one to each byte of each element; returns the most that any byte has got. */
static int mark(const rill_tensor *view)
{
    int64_t index[RILL_MAX_RANK] = {0};
    int64_t size = (int64_t)rill_dtype_size(view->dtype);
    int most = 0;
    if (view_count(view) == 0) return 0;
    do {
        int64_t at = (char *)view->data - room + view_offset(view, index) * size;
        for (int64_t byte = at; byte < at + size; byte++)
            if (++marks[byte] > most) most = marks[byte];
    } while (view_next(view, index));
    return most;
}

static void print_view(const rill_tensor *view)
{
    printf("%s at %d:", rill_dtype_name(view->dtype), (int)((char *)view->data - room));
    for (int k = 0; k < view->rank; k++) printf(" %d*%d", (int)view->shape[k], (int)view->stride[k]);
    printf("\n");
}

static void itself(void **unused)
{
    int overlapping = 0;
    (void)unused;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        rng r = rng_make(5, trial);
        rill_tensor view = draw_view(&r, true);
        memset(marks, 0, sizeof marks);
        bool right = mark(&view) > 1;
        overlapping += right;
        if (rl_overlaps_itself(&view) == right) continue;
        print_view(&view);
        fail_msg("trial %d: overlaps itself: %d", (int)trial, right);
    }
    assert_in_range(overlapping, TRIALS / 10, TRIALS * 9 / 10);
}

static void each_other(void **unused)
{
    int overlapping = 0;
    (void)unused;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        rng r = rng_make(6, trial);
        bool loose = rng_chance(&r, 0.5);
        rill_tensor first = draw_view(&r, loose), second = draw_view(&r, loose);
        memset(marks, 0, sizeof marks);
        mark(&first);
        for (int i = 0; i < ROOM; i++) marks[i] = marks[i] != 0;
        static unsigned char once[ROOM];
        memcpy(once, marks, ROOM);
        memset(marks, 0, sizeof marks);
        mark(&second);
        bool right = false;
        for (int i = 0; i < ROOM; i++) right |= once[i] && marks[i];
        overlapping += right;
        if (rl_overlap(&first, &second) == right && rl_overlap(&second, &first) == right) continue;
        print_view(&first);
        print_view(&second);
        fail_msg("trial %d: they overlap: %d", (int)trial, right);
    }
    assert_in_range(overlapping, TRIALS / 10, TRIALS * 9 / 10);
}

/* Large orderly views are decided exactly too: halves of rows, columns, interleaved elements. */
static void large(void **unused)
{
    const int64_t n = 1 << 20;
    int64_t shape[] = {n, 64, 16}, wide[] = {256 * 16, 2 * 16, 1};
    (void)unused;
    rill_tensor left = rill_tensor_view(RILL_HOST, (void *)0x10000, RILL_F32, 3, shape, wide);
    rill_tensor right = left;
    right.data = (void *)(0x10000 + 16 * 4); /* the other 16 of each 32 */
    assert_false(rl_overlap(&left, &right));
    assert_false(rl_overlaps_itself(&left));
    right.data = (void *)(0x10000 + 15 * 4);
    assert_true(rl_overlap(&left, &right));
    right.data = (void *)(0x10000 + 16 * 4);
    right.stride[2] = -1; /* walks down into left's first row */
    assert_true(rl_overlap(&left, &right));
    rill_tensor same = left;
    assert_true(rl_same_view(&left, &same));
    same.stride[1]++;
    assert_false(rl_same_view(&left, &same));
    same = left;
    left.shape[1] = same.shape[1] = 1;
    same.stride[1] = 12345; /* of an axis with one element: never used */
    assert_true(rl_same_view(&left, &same));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(itself),
        cmocka_unit_test(each_other),
        cmocka_unit_test(large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
