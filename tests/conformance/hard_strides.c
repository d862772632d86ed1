/*
 * Selective scans on strided views equal those on contiguous copies: odd row strides, a time axis of stride 2,
 * [batch, channels, length] memory, and a batch stride beyond 2^31 elements (sparse mappings, which cost no memory).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "buffer.h"
#include "hard.h"
#include "rng.h"
#include "strided.h"
#include "venues.h"

enum { VIEWS = 5 };

static const venue *where;
static rill_context *context;

static void fill_random(const rill_tensor *tensor, rng *r, double center, double spread)
{
    int64_t index[RILL_MAX_RANK] = {0};
    do view_store(tensor, index, center + spread * (2 * rng_unit(r) - 1));
    while (view_next(tensor, index));
}

static hard_scan make_random(rill_dtype dtype, hard_sizes sizes)
{
    rng r = rng_make(12, 0);
    hard_scan scan = hard_make(dtype, sizes);
    fill_random(&scan.args.x, &r, 0, 1);
    fill_random(&scan.args.delta, &r, 0.5, 0.4);
    fill_random(&scan.args.A, &r, -1, 0.9);
    fill_random(&scan.args.B, &r, 0, 1);
    fill_random(&scan.args.C, &r, 0, 1);
    return scan;
}

static void run(const rill_selective_scan_args *args)
{
    rill_status status = rill_selective_scan(context, args);
    if (status == RILL_OK) status = rill_synchronize(context);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

/* The views by time, which the rows are about. */
static void list_views(rill_selective_scan_args *args, rill_tensor **views)
{
    rill_tensor *list[VIEWS] = {&args->x, &args->delta, &args->B, &args->C, &args->y};
    memcpy(views, list, sizeof list);
}

/* Both in the contiguous call's own order of additions or another: no two values differ by more than rounding. */
static void check_same(const rill_tensor *found, const rill_tensor *right)
{
    int64_t index[RILL_MAX_RANK] = {0};
    double size = 0, error = 0;
    do {
        double r = view_load(right, index), e = view_load(found, index) - r;
        size += r * r;
        error += e * e;
    } while (view_next(right, index));
    double tolerance = found->dtype == RILL_F64 ? 1e-13 : found->dtype == RILL_F32 ? 2e-6 : 4e-3;
    if (!(error <= tolerance * tolerance * size)) fail_msg("relative error squared %g", error / size);
}

static void check_layout(rill_dtype dtype, hard_sizes sizes, layout how)
{
    hard_scan scan = make_random(dtype, sizes);
    rill_selective_scan_args strided = scan.args;
    rill_tensor *views[VIEWS], right = view_alloc_like(&scan.args.y, dtype);
    buffer buffers[VIEWS];
    run(&scan.args);
    view_copy(&right, &scan.args.y);
    list_views(&strided, views);
    for (int i = 0; i < VIEWS; i++) {
        layout of_rank = how;
        if (views[i]->rank == 4 && how.order[1] == 2)
            memcpy(of_rank.order, (int[]){0, 2, 3, 1, 4, 5}, sizeof of_rank.order);
        buffers[i] = buffer_make(dtype, views[i]->rank, views[i]->shape, &of_rank);
        view_copy(&buffers[i].view, views[i]);
        *views[i] = buffers[i].view;
    }
    run(&strided);
    assert_int_equal(buffer_guard_changed(&buffers[VIEWS - 1]), -1);
    check_same(&buffers[VIEWS - 1].view, &right);
    for (int i = 0; i < VIEWS; i++) buffer_free(&buffers[i]);
    free(right.data);
    hard_free(&scan);
}

static void row_strides(void **unused)
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

static void stride_two_in_time(void **unused)
{
    (void)unused;
    layout how = layout_contiguous();
    how.pad[2] = 24; /* rows of 24 channels, every other one used */
    check_layout(RILL_F32, (hard_sizes){3, 33, 24, 5, 1}, how);
    how.order[1] = 2, how.order[2] = 1;
    how.pad[2] = 0;
    how.step = 2;
    check_layout(RILL_F32, (hard_sizes){3, 33, 24, 5, 1}, how);
}

static void channels_before_time(void **unused)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_F16};
    (void)unused;
    layout how = layout_contiguous();
    how.order[1] = 2, how.order[2] = 1;
    for (int i = 0; i < 3; i++) {
        check_layout(types[i], (hard_sizes){2, 65, 33, 16, 1}, how);
        check_layout(types[i], (hard_sizes){1, 257, 8, 4, 2}, how);
    }
}

/* A view of shape and type of `from` whose batch stride is 2^31 + 8, in fresh sparse memory. */
static rill_tensor far_view(const rill_tensor *from, size_t *bytes)
{
    rill_tensor view = *from;
    view.stride[0] = ((int64_t)1 << 31) + 8;
    int64_t span = (view.shape[0] - 1) * view.stride[0] + view_count(&view) / view.shape[0];
    *bytes = (size_t)span * rill_dtype_size(view.dtype);
    view.data = NULL;
    return view;
}

static void far_on_host(hard_scan *scan, rill_selective_scan_args *far)
{
    rill_tensor *near_views[VIEWS], *views[VIEWS];
    size_t bytes[VIEWS];
    list_views(&scan->args, near_views);
    list_views(far, views);
    for (int i = 0; i < VIEWS; i++) {
        *views[i] = far_view(near_views[i], &bytes[i]);
        views[i]->data =
            mmap(NULL, bytes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(views[i]->data != MAP_FAILED);
        view_copy(views[i], near_views[i]);
    }
    run(far);
    check_same(&far->y, &scan->args.y);
    for (int i = 0; i < VIEWS; i++) munmap(views[i]->data, bytes[i]);
}

/* A device copy of any view; false where there is no memory for it. */
static bool put_on_device(const rill_tensor *host, rill_tensor *device, size_t bytes)
{
    rill_status status = rill_alloc(context, bytes, &device->data);
    if (status == RILL_OUT_OF_MEMORY) return false;
    assert_int_equal(status, RILL_OK);
    device->device = RILL_CUDA;
    assert_int_equal(rill_copy(context, device, host), RILL_OK);
    return true;
}

static void far_on_device(hard_scan *scan, rill_selective_scan_args *far)
{
    rill_tensor *near_views[VIEWS], *views[VIEWS], y = view_alloc_like(&scan->args.y, scan->args.y.dtype);
    size_t bytes;
    bool fits = true;
    list_views(&scan->args, near_views);
    list_views(far, views);
    for (int i = 0; i < VIEWS && fits; i++) {
        *views[i] = far_view(near_views[i], &bytes);
        fits = put_on_device(near_views[i], views[i], bytes);
    }
    far->h_final = (rill_tensor){0};
    if (fits) fits = put_on_device(&scan->args.A, &far->A, (size_t)view_count(&far->A) * 4);
    if (fits) {
        run(far);
        assert_int_equal(rill_copy(context, &y, &far->y), RILL_OK);
        check_same(&y, &scan->args.y);
        rill_free(context, far->A.data);
    }
    for (int i = 0; i < VIEWS; i++)
        if (views[i]->device == RILL_CUDA) rill_free(context, views[i]->data);
    free(y.data);
    if (!fits) skip();
}

static void far_batches(void **unused)
{
    (void)unused;
    hard_scan scan = make_random(RILL_F32, (hard_sizes){2, 21, 17, 5, 1});
    rill_selective_scan_args far = scan.args;
    run(&scan.args);
    if (where->device_tensors)
        far_on_device(&scan, &far);
    else
        far_on_host(&scan, &far);
    hard_free(&scan);
}

int main(int count, char **words)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_strides),
        cmocka_unit_test(stride_two_in_time),
        cmocka_unit_test(channels_before_time),
        cmocka_unit_test(far_batches),
    };
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    int failed = 0, tested = 0;
    for (where = venue_table; where->name; where++) {
        if (!venue_selected(where, only)) continue;
        context = venue_open(where, 2, false);
        if (!context) continue;
        failed += cmocka_run_group_tests_name(where->name, tests, NULL, NULL);
        rill_context_destroy(context);
        tested++;
    }
    return tested == 0 ? 77 : failed != 0;
}
