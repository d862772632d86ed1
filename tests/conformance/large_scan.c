/*
 * Scans of many elements (HARD_INPUTS, rows 13 and 14): one channel of 1e8 steps, one of more than 2^31, tensors of
 * more than 2^31 elements, and a batch stride beyond 2^31.  Wrong integers show at the end, so that is where values
 * are checked; of 1e8 steps, all are.
 *
 *     large_scan [--only TARGET]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "large.h"
#include "measure.h"
#include "rng.h"
#include "strided.h"
#include "venues.h"

enum { CHUNK = 1 << 20 };

static const venue *where;
static rill_context *context;

static double value_at(rill_tensor view, int64_t i0, int64_t i1, int64_t i2)
{
    const int64_t index[] = {i0, i1, i2};
    for (int axis = 0; axis < view.rank; axis++) view = view_narrow(view, axis, index[axis], 1);
    rill_tensor host = view_alloc_like(&view, view.dtype);
    large_put(&host, &view);
    double value = view_load(&host, (int64_t[RILL_MAX_RANK]){0});
    free(host.data);
    return value;
}

static void expect_at(rill_tensor view, int64_t i0, int64_t i1, int64_t i2, double right)
{
    double found = value_at(view, i0, i1, i2);
    if (found != right)
        fail_msg("[%lld, %lld, %lld] is %.9g, expected %.9g", (long long)i0, (long long)i1, (long long)i2, found,
                 right);
}

static void expect_ok(rill_status status)
{
    if (status == RILL_OK) status = rill_synchronize(context);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

/* Row 13.  Decays near 1 and inputs, each from its place. */
static double decay_of(int64_t t)
{
    return 0.9 + (double)(rng_mix((uint64_t)t) >> 40) * 0x1p-24 * 0.0999;
}

static double input_of(int64_t t)
{
    return (double)(rng_mix((uint64_t)t + 0x12345678u) >> 40) * 0x1p-23 - 0.7;
}

static void fill(const large *to, double (*value)(int64_t t))
{
    int64_t length = to->view.shape[0];
    double *chunk = malloc(CHUNK * sizeof *chunk);
    assert_non_null(chunk);
    for (int64_t begin = 0; begin < length; begin += CHUNK) {
        int64_t count = length - begin < CHUNK ? length - begin : CHUNK;
        for (int64_t i = 0; i < count; i++) chunk[i] = value(begin + i);
        rill_tensor from = rill_tensor_1d(chunk, RILL_F64, count), part = view_narrow(to->view, 0, begin, count);
        large_put(&part, &from);
    }
    free(chunk);
}

/* The recurrence as a loop, forward over t or back with the decay of the step behind; constant: that decay instead.
 */
typedef struct walk {
    bool back;
    double constant;
    double loop;
    long double ref, error, size, rounding;
} walk;

static void walk_step(walk *w, int64_t t, double found)
{
    double a = w->constant != 0 ? w->constant : decay_of(w->back ? t + 1 : t), b = input_of(t);
    w->loop = a * w->loop;
    w->loop = w->loop + b;
    w->ref = a * w->ref + b;
    long double off = found - w->ref, lost = w->loop - w->ref;
    w->error += off * off;
    w->size += w->ref * w->ref;
    w->rounding += lost * lost;
}

static void check_walk(const large *out, walk w)
{
    int64_t length = out->view.shape[0], chunks = (length + CHUNK - 1) / CHUNK;
    rill_tensor host = view_alloc(RILL_F64, 1, (int64_t[]){CHUNK});
    const double *found = host.data;
    for (int64_t c = 0; c < chunks; c++) {
        int64_t begin = (w.back ? chunks - 1 - c : c) * CHUNK;
        int64_t count = length - begin < CHUNK ? length - begin : CHUNK;
        rill_tensor part = view_narrow(out->view, 0, begin, count), to = view_narrow(host, 0, 0, count);
        large_put(&to, &part);
        for (int64_t i = 0; i < count; i++) {
            int64_t at = w.back ? count - 1 - i : i;
            walk_step(&w, begin + at, found[at]);
        }
    }
    free(host.data);
    double tolerance = measure_tolerance(RILL_F64, w.back);
    if (!(sqrtl(w.error) <= tolerance * sqrtl(w.size) + 3 * sqrtl(w.rounding)))
        fail_msg("relative error %.3g, the loop's %.3g", (double)sqrtl(w.error / w.size),
                 (double)sqrtl(w.rounding / w.size));
}

/* 1e8, or as many steps as so many arrays of them fit. */
static int64_t long_length(int arrays)
{
    size_t room = where->device_tensors ? SIZE_MAX : large_memory() / 2;
    int64_t fits = (int64_t)(room / 8 / (size_t)arrays);
    if (fits < 100000000) printf("for want of memory: %lld steps\n", (long long)fits);
    return fits < 100000000 ? fits : 100000000;
}

static void long_channel(void **unused)
{
    (void)unused;
    int64_t length = long_length(3);
    large a = large_make(RILL_F64, length, false), b = large_make(RILL_F64, length, false);
    large h = large_make(RILL_F64, length, false);
    fill(&a, decay_of);
    fill(&b, input_of);
    rill_scan_args args = {.a = large_shaped(&a, 1, length, 1), .b = large_shaped(&b, 1, length, 1)};
    args.h = large_shaped(&h, 1, length, 1);
    expect_ok(rill_scan(context, &args));
    check_walk(&h, (walk){0});
    rill_scan_backward_args back = {.a = args.a, .dh = args.b, .db = args.h};
    expect_ok(rill_scan_backward(context, &back));
    check_walk(&h, (walk){.back = true});
    large_free(&h);
    large_free(&b);
    large_free(&a);
}

static void long_channel_in_place(void **unused)
{
    (void)unused;
    int64_t length = long_length(1);
    large a = large_constant(RILL_F64, 0.99, 1, length, 1), b = large_make(RILL_F64, length, false);
    fill(&b, input_of);
    rill_tensor view = large_shaped(&b, 1, length, 1);
    expect_ok(rill_scan(context, &(rill_scan_args){.a = a.view, .b = view, .h = view}));
    check_walk(&b, (walk){.constant = 0.99});
    large_free(&b);
    large_free(&a);
}

/* bfloat16 of a number above 0 with at most 24 bits. */
static double to_bf16(double value)
{
    double memory = 0;
    rill_tensor one = rill_tensor_view(RILL_HOST, &memory, RILL_BF16, 0, NULL, NULL);
    view_store(&one, NULL, value);
    return view_load(&one, NULL);
}

/* h counts steps in units of 1/1024, exactly; it is checked around element 2^31 and at the end. */
static void count_steps(int64_t batch, int64_t length, int64_t channels, bool time_last)
{
    const int64_t elements = batch * length * channels;
    large a = large_constant(RILL_BF16, 1, batch, length, channels);
    large b = large_constant(RILL_BF16, 0x1p-10, batch, length, channels);
    large h = large_make(RILL_BF16, elements, false), final = large_make(RILL_F32, batch * channels, false);
    rill_scan_args args = {.a = a.view, .b = b.view, .h = large_shaped(&h, batch, length, channels)};
    if (time_last) args.h.stride[1] = 1, args.h.stride[2] = length;
    args.h_final = rill_tensor_2d_on(final.view.device, final.view.data, RILL_F32, batch, channels);
    expect_ok(rill_scan(context, &args));
    rill_tensor finals = view_alloc(RILL_F32, 2, args.h_final.shape);
    large_put(&finals, &args.h_final);
    for (int64_t i = 0; i < batch * channels; i++)
        if (((const float *)finals.data)[i] != (float)length / 1024)
            fail_msg("final %lld is %.9g", (long long)i, ((const float *)finals.data)[i]);
    const int64_t places[] = {
        0, 1, ((int64_t)1 << 31) - 1, (int64_t)1 << 31, ((int64_t)1 << 31) + 1, elements - 2, elements - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && h.real; i++) {
        int64_t t = time_last ? places[i] % length : places[i] / channels % length;
        expect_at(h.view, places[i], 0, 0, to_bf16((double)(t + 1) / 1024));
    }
    free(finals.data);
    large_free(&h);
    large_free(&final);
    large_free(&a);
    large_free(&b);
}

/* Row 14: more than 2^31 elements. */
static void many_elements(void **unused)
{
    (void)unused;
    count_steps(1, 66000, 33000, false);
    count_steps(1, 66000, 33000, true);
    count_steps(66000, 11, 3000, false);
}

/* One channel of 2^31 + 5 steps: its sign changes every step. */
static void more_steps_than_an_int(void **unused)
{
    const int64_t length = ((int64_t)1 << 31) + 5;
    (void)unused;
    large a = large_constant(RILL_BF16, -1, 1, length, 1), b = large_constant(RILL_BF16, 0, 1, length, 1);
    large h = large_make(RILL_BF16, length, false), init = large_constant(RILL_F32, 1, 1, 1, 1);
    large final = large_constant(RILL_F32, 7, 1, 1, 1);
    rill_scan_args args = {.a = a.view, .b = b.view, .h = large_shaped(&h, 1, length, 1)};
    args.h_init = rill_tensor_2d_on(init.view.device, init.view.data, RILL_F32, 1, 1);
    args.h_final = rill_tensor_2d_on(final.view.device, final.view.data, RILL_F32, 1, 1);
    expect_ok(rill_scan(context, &args));
    expect_at(args.h_final, 0, 0, 0, -1);
    for (int64_t t = length - 3; t < length; t++) expect_at(args.h, 0, t, 0, t % 2 ? 1 : -1);
    expect_at(args.h, 0, 0, 0, -1);
    expect_at(args.h, 0, (int64_t)1 << 31, 0, -1);
    large_free(&final);
    large_free(&init);
    large_free(&h);
    large_free(&b);
    large_free(&a);
}

/* The last of two packed sequences is three steps that begin behind 2^31; and the gradients of one long sequence. */
static void steps_behind_an_int(void **unused)
{
    const int64_t length = ((int64_t)1 << 31) + 5, offsets[] = {0, length - 3, length};
    (void)unused;
    large a = large_constant(RILL_BF16, 0.5, 1, length, 1), ones = large_constant(RILL_BF16, 1, 1, length, 1);
    large h = large_make(RILL_BF16, length, false), final = large_make(RILL_F32, 2, false);
    large cuts = large_make(RILL_I64, 3, false);
    rill_tensor host = rill_tensor_1d(offsets, RILL_I64, 3);
    large_put(&cuts.view, &host);
    rill_scan_args args = {.a = a.view, .b = ones.view, .h = large_shaped(&h, 1, length, 1), .offsets = cuts.view};
    args.h_final = rill_tensor_2d_on(final.view.device, final.view.data, RILL_F32, 2, 1);
    expect_ok(rill_scan(context, &args));
    expect_at(args.h_final, 0, 0, 0, 2);
    expect_at(args.h_final, 1, 0, 0, 1.75);
    for (int64_t i = 0; i < 4 && h.real; i++)
        expect_at(args.h, 0, length - 4 + i, 0, i ? 2 - exp2(1 - (double)i) : 2);

    rill_scan_backward_args back = {.a = a.view, .dh = ones.view, .db = args.h};
    back.h_init = back.dh_init = args.h_final;
    back.h_init = rill_tensor_2d_on(final.view.device, (char *) final.view.data + 4, RILL_F32, 1, 1);
    back.dh_init = rill_tensor_2d_on(final.view.device, final.view.data, RILL_F32, 1, 1);
    expect_ok(rill_scan_backward(context, &back));
    expect_at(back.dh_init, 0, 0, 0, 1);
    for (int64_t i = 0; i < 4 && h.real; i++) expect_at(args.h, 0, length - 1 - i, 0, 2 - exp2(-(double)i));
    for (int64_t i = 0; i < 3 && h.real; i++) expect_at(args.h, 0, i ? (int64_t)1 << 31 >> i : 0, 0, 2);
    large_free(&cuts);
    large_free(&final);
    large_free(&h);
    large_free(&ones);
    large_free(&a);
}

/* A view [2, 21, 17] whose batches lie 2^31 + 8 elements apart, filled with small numbers if asked to. */
static large far_make(rill_dtype dtype, bool filled, uint64_t seed)
{
    const int64_t far = ((int64_t)1 << 31) + 8;
    large made = large_make(dtype, far + 21 * 17, true);
    made.view =
        rill_tensor_view(made.view.device, made.view.data, dtype, 3, (int64_t[]){2, 21, 17}, (int64_t[]){far, 17, 1});
    rng r = rng_make(seed, 0);
    rill_tensor host = view_alloc(dtype, 3, made.view.shape);
    int64_t index[RILL_MAX_RANK] = {0};
    do view_store(&host, index, rng_unit(&r));
    while (view_next(&host, index));
    if (filled) large_put(&made.view, &host);
    free(host.data);
    return made;
}

/* Walks both batches of the far views, forward or back, and compares. */
static void check_far(const rill_tensor *a, const rill_tensor *b, const rill_tensor *out, bool back)
{
    rill_tensor host[3];
    const rill_tensor *device[] = {a, b, out};
    double tolerance = measure_tolerance(out->dtype, back);
    for (int i = 0; i < 3; i++) {
        host[i] = view_alloc(out->dtype, 3, out->shape);
        large_put(&host[i], device[i]);
    }
    for (int64_t n = 0; n < 2; n++)
        for (int64_t d = 0; d < 17; d++) {
            double state = 0;
            for (int64_t i = 0; i < 21; i++) {
                int64_t t = back ? 20 - i : i, decay = back ? t + 1 : t;
                state *= decay < 21 ? view_load(&host[0], (int64_t[]){n, decay, d}) : 0;
                state += view_load(&host[1], (int64_t[]){n, t, d});
                double found = view_load(&host[2], (int64_t[]){n, t, d});
                if (!(fabs(found - state) <= tolerance * state))
                    fail_msg("[%d, %d, %d] is %.9g, expected %.9g", (int)n, (int)t, (int)d, found, state);
            }
        }
    for (int i = 0; i < 3; i++) free(host[i].data);
}

static void far_batches(void **unused)
{
    static const rill_dtype types[] = {RILL_F32, RILL_BF16};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        large a = far_make(types[i], true, 1), b = far_make(types[i], true, 2), h = far_make(types[i], false, 3);
        expect_ok(rill_scan(context, &(rill_scan_args){.a = a.view, .b = b.view, .h = h.view}));
        check_far(&a.view, &b.view, &h.view, false);
        expect_ok(rill_scan_backward(context, &(rill_scan_backward_args){.a = a.view, .dh = b.view, .db = h.view}));
        check_far(&a.view, &b.view, &h.view, true);
        large_free(&a);
        large_free(&b);
        large_free(&h);
    }
}

/* Of instruction sets, which share their sources, the widest here walks the largest tensors. */
static bool is_widest(void)
{
    if (where->backend != RILL_BACKEND_CPU) return true;
    for (const venue *v = where + 1; v->backend == RILL_BACKEND_CPU; v++) {
        rill_context *wider = venue_open(v, 1, false);
        rill_context_destroy(wider);
        if (wider) return false;
    }
    return true;
}

static int run_on_venue(void)
{
    const struct CMUnitTest long_ones[] = {
        cmocka_unit_test(long_channel),
        cmocka_unit_test(long_channel_in_place),
        cmocka_unit_test(far_batches),
    };
    const struct CMUnitTest large_ones[] = {
        cmocka_unit_test(many_elements),
        cmocka_unit_test(more_steps_than_an_int),
        cmocka_unit_test(steps_behind_an_int),
    };
    int failed = cmocka_run_group_tests_name(where->name, long_ones, NULL, NULL);
    if (is_widest()) failed += cmocka_run_group_tests_name(where->name, large_ones, NULL, NULL);
    return failed;
}

int main(int count, char **words)
{
    const char *only = count > 2 && strcmp(words[1], "--only") == 0 ? words[2] : NULL;
    int failed = 0, tested = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (where = venue_table; where->name; where++) {
        if (where->backend == RILL_BACKEND_LOOP || !venue_selected(where, only)) continue;
        context = venue_open(where, 2, false);
        if (!context) continue;
        large_on(where, context);
        failed += run_on_venue();
        rill_context_destroy(context);
        tested++;
    }
    return tested == 0 ? 77 : failed != 0;
}
