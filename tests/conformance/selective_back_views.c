/*
 * Row 12, of gradients: odd row strides, a time axis of stride 2, [batch, channels, length] memory, and a batch
 * stride beyond 2^31 elements (sparse mappings, which cost no memory): each as the contiguous copy.
 */
#include "hard_selective_back.h"

#include <sys/mman.h>

#include "attention_calls.h"
#include "buffer.h"
#include "rng.h"
#include "strided.h"

enum { INPUTS = 5, VIEWS = 9 };

static void fill_random(const rill_tensor *tensor, rng *r, double center, double spread)
{
    int64_t index[RILL_MAX_RANK] = {0};
    do view_store(tensor, index, center + spread * (2 * rng_unit(r) - 1));
    while (view_next(tensor, index));
}

static hard_back make_random(rill_dtype dtype, hard_sizes sizes)
{
    rng r = rng_make(12, 1);
    hard_back back = hard_back_make(dtype, sizes);
    fill_random(&back.args.x, &r, 0.2, 1);
    fill_random(&back.args.delta, &r, 0.5, 0.4);
    fill_random(&back.args.A, &r, -1, 0.9);
    fill_random(&back.args.B, &r, 0.2, 1);
    fill_random(&back.args.C, &r, 0.2, 1);
    fill_random(&back.args.h_init, &r, 0, 1);
    fill_random(&back.args.dy, &r, 0.2, 1);
    return back;
}

/* The views by time, inputs first. */
static void list_views(rill_selective_scan_backward_args *a, rill_tensor *views[VIEWS])
{
    rill_tensor *const list[] = {&a->x, &a->delta, &a->dy, &a->B, &a->C, &a->dx, &a->ddelta, &a->dB, &a->dC};
    for (int i = 0; i < VIEWS; i++) views[i] = list[i];
}

static void check(const rill_selective_scan_backward_args *strided, const hard_back *right)
{
    assert_true(call_agrees(context, op_find("selective_scan_backward"), strided, &right->args));
}

static void check_layout(rill_dtype dtype, hard_sizes sizes, layout how)
{
    hard_back back = make_random(dtype, sizes);
    rill_selective_scan_backward_args strided = back.args;
    rill_tensor *views[VIEWS];
    buffer buffers[VIEWS];
    list_views(&strided, views);
    for (int i = 0; i < VIEWS; i++) {
        layout of_rank = how;
        if (views[i]->rank == 4 && how.order[1] == 2)
            of_rank.order[1] = 2, of_rank.order[2] = 3, of_rank.order[3] = 1;
        buffers[i] = buffer_make(dtype, views[i]->rank, views[i]->shape, &of_rank);
        view_copy(&buffers[i].view, views[i]);
        *views[i] = buffers[i].view;
    }
    check(&strided, &back);
    for (int i = INPUTS; i < VIEWS; i++) assert_int_equal(buffer_guard_changed(&buffers[i]), -1);
    for (int i = 0; i < VIEWS; i++) buffer_free(&buffers[i]);
    hard_back_free(&back);
}

static void odd_rows(void **unused)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16};
    (void)unused;
    for (int i = 0; i < 3; i++)
        for (int64_t pad = 1; pad <= 2; pad++) {
            layout how = layout_contiguous();
            how.pad[2] = pad;
            check_layout(types[i], (hard_sizes){2, 40, 128, 16, 1}, how);
        }
}

static void other_orders(void **unused)
{
    (void)unused;
    layout how = layout_contiguous();
    how.pad[2] = 24; /* rows of 24 channels, every other one used */
    check_layout(RILL_F32, (hard_sizes){3, 33, 24, 5, 1}, how);
    how = layout_contiguous();
    how.order[1] = 2, how.order[2] = 1;
    check_layout(RILL_F32, (hard_sizes){2, 65, 33, 16, 1}, how);
    check_layout(RILL_F16, (hard_sizes){1, 257, 8, 4, 2}, how);
    how.step = 2;
    check_layout(RILL_F64, (hard_sizes){3, 33, 24, 5, 1}, how);
}

static void far_batches(void **unused)
{
    (void)unused;
    hard_back back = make_random(RILL_F32, (hard_sizes){2, 21, 17, 5, 1});
    rill_selective_scan_backward_args far = back.args;
    rill_tensor *views[VIEWS];
    size_t bytes[VIEWS];
    list_views(&far, views);
    for (int i = 0; i < VIEWS; i++) {
        rill_tensor near_view = *views[i];
        views[i]->stride[0] = ((int64_t)1 << 31) + 8;
        bytes[i] = (size_t)(views[i]->stride[0] + view_count(views[i]) / 2) * sizeof(float);
        views[i]->data =
            mmap(NULL, bytes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(views[i]->data != MAP_FAILED);
        view_copy(views[i], &near_view);
    }
    check(&far, &back);
    for (int i = 0; i < VIEWS; i++) munmap(views[i]->data, bytes[i]);
    hard_back_free(&back);
}

int run_view_tests(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(odd_rows), cmocka_unit_test(other_orders),
                                       cmocka_unit_test(far_batches)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
