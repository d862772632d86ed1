/* Views, and memory moved between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <rill/rill.h>

#include "strided.h"
#include "venues.h"

static rill_context *context;

static void types(void **unused)
{
    static const struct {
        rill_dtype dtype;
        size_t size;
        const char *name;
    } rows[] = {{RILL_ABSENT, 0, "absent"}, {RILL_F64, 8, "f64"},     {RILL_F32, 4, "f32"},    {RILL_BF16, 2, "bf16"},
                {RILL_F16, 2, "f16"},       {RILL_C64, 8, "c64"},     {RILL_C128, 16, "c128"}, {RILL_I64, 8, "i64"},
                {(rill_dtype)8, 0, "?"},    {(rill_dtype)-1, 0, "?"}, {(rill_dtype)99, 0, "?"}};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(rill_dtype_size(rows[i].dtype), rows[i].size);
        assert_string_equal(rill_dtype_name(rows[i].dtype), rows[i].name);
    }
}

static void check_contiguous(rill_tensor t, rill_device device, int rank, const void *data)
{
    static const int64_t shape[] = {3, 4, 5, 6};
    int64_t stride = 1;
    assert_ptr_equal(t.data, data);
    assert_int_equal(t.dtype, RILL_F16);
    assert_int_equal(t.device, device);
    assert_int_equal(t.rank, rank);
    assert_int_equal(t.reserved, 0);
    for (int k = rank - 1; k >= 0; k--) {
        assert_int_equal(t.shape[k], shape[k]);
        assert_int_equal(t.stride[k], stride);
        stride *= shape[k];
    }
}

static void constructors(void **unused)
{
    static const char data[2];
    const rill_dtype f16 = RILL_F16;
    (void)unused;
    check_contiguous(rill_tensor_1d(data, f16, 3), RILL_HOST, 1, data);
    check_contiguous(rill_tensor_2d(data, f16, 3, 4), RILL_HOST, 2, data);
    check_contiguous(rill_tensor_3d(data, f16, 3, 4, 5), RILL_HOST, 3, data);
    check_contiguous(rill_tensor_4d(data, f16, 3, 4, 5, 6), RILL_HOST, 4, data);
    check_contiguous(rill_tensor_1d_on(RILL_CUDA, data, f16, 3), RILL_CUDA, 1, data);
    check_contiguous(rill_tensor_2d_on(RILL_CUDA, data, f16, 3, 4), RILL_CUDA, 2, data);
    check_contiguous(rill_tensor_3d_on(RILL_CUDA, data, f16, 3, 4, 5), RILL_CUDA, 3, data);
    check_contiguous(rill_tensor_4d_on(RILL_HOST, data, f16, 3, 4, 5, 6), RILL_HOST, 4, data);
    check_contiguous(rill_tensor_view(RILL_HOST, data, f16, 3, (int64_t[]){3, 4, 5}, NULL), RILL_HOST, 3, data);
    rill_tensor strided = rill_tensor_view(RILL_CUDA, data, f16, 2, (int64_t[]){3, 4}, (int64_t[]){-7, 0});
    assert_int_equal(strided.stride[0], -7);
    assert_int_equal(strided.stride[1], 0);
    assert_int_equal(rill_tensor_view(RILL_HOST, data, f16, 0, NULL, NULL).rank, 0);
    assert_int_equal(rill_tensor_view(RILL_HOST, data, f16, 7, NULL, NULL).rank, 7);
    assert_int_equal(rill_tensor_view(RILL_HOST, data, f16, -1, NULL, NULL).rank, -1);
    assert_int_equal(rill_tensor_view(RILL_HOST, data, f16, 2, NULL, NULL).rank, -1);
}

static void memory(void **unused)
{
    static const size_t sizes[] = {1, 255, 256, 1 << 20};
    void *block = &block;
    (void)unused;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rill_alloc(context, sizes[i], &block), RILL_OK);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 256, 0);
        memset(block, 1, sizes[i]);
        assert_int_equal(rill_free(context, block), RILL_OK);
    }
    assert_int_equal(rill_alloc(context, 0, &block), RILL_OK);
    assert_null(block);
    assert_int_equal(rill_free(context, NULL), RILL_OK);
    assert_int_equal(rill_alloc(context, 1, NULL), RILL_INVALID_NULL);
    assert_string_equal(rill_last_error(context), "memory: NULL, expected where to put the address");
    block = &block;
    assert_int_equal(rill_alloc(context, SIZE_MAX - 10, &block), RILL_OUT_OF_MEMORY);
    assert_null(block);
    assert_int_equal(rill_alloc(context, (size_t)1 << 60, &block), RILL_OUT_OF_MEMORY);
    assert_null(block);
}

/* A view of 3 x 4 x 5 elements inside `memory`, in one of several layouts. */
static rill_tensor laid_out(char *bytes, rill_dtype dtype, int how)
{
    static const int64_t shape[] = {3, 4, 5};
    static const int64_t strides[][3] = {{20, 5, 1},  {1, 3, 12},  {40, 10, 2},
                                         {-20, 5, 1}, {23, -5, 1}, {-1, -3, -12}};
    rill_tensor view = rill_tensor_view(RILL_HOST, bytes, dtype, 3, shape, strides[how]);
    int64_t lowest = 0;
    for (int k = 0; k < 3; k++)
        if (view.stride[k] < 0) lowest -= view.stride[k] * (shape[k] - 1);
    view.data = bytes + lowest * (int64_t)rill_dtype_size(dtype);
    return view;
}

static void copies(void **unused)
{
    static const rill_dtype dtypes[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16, RILL_I64, RILL_C64, RILL_C128};
    (void)unused;
    for (int d = 0; d < 7; d++)
        for (int how = 0; how < 36; how++) {
            _Alignas(16) char from[4096], to[4096];
            for (int i = 0; i < 4096; i++) from[i] = (char)(i * 7 + i / 256), to[i] = 0x5a;
            rill_tensor source = laid_out(from, dtypes[d], how / 6), destination = laid_out(to, dtypes[d], how % 6);
            assert_int_equal(rill_copy(context, &destination, &source), RILL_OK);
            assert_true(view_same(&destination, &source, NULL));
            int changed = 0, size = (int)rill_dtype_size(dtypes[d]);
            for (int i = 0; i < 4096 / size; i++) {
                char still[16];
                memset(still, 0x5a, sizeof still);
                changed += memcmp(to + i * size, still, (size_t)size) != 0;
            }
            assert_true(changed <= 60);
        }
}

static void broadcast_copies(void **unused)
{
    float one = 2.5f, many[12] = {0};
    (void)unused;
    rill_tensor source = rill_tensor_view(RILL_HOST, &one, RILL_F32, 2, (int64_t[]){3, 4}, (int64_t[]){0, 0});
    rill_tensor destination = rill_tensor_2d(many, RILL_F32, 3, 4);
    assert_int_equal(rill_copy(context, &destination, &source), RILL_OK);
    for (int i = 0; i < 12; i++) assert_true(many[i] == 2.5f);
    rill_tensor nothing = rill_tensor_2d(NULL, RILL_F32, 0, 4);
    assert_int_equal(rill_copy(context, &nothing, &nothing), RILL_OK);
    rill_tensor scalar = rill_tensor_view(RILL_HOST, &one, RILL_F32, 0, NULL, NULL), first = scalar;
    first.data = many;
    one = 9;
    assert_int_equal(rill_copy(context, &first, &scalar), RILL_OK);
    assert_true(many[0] == 9);
}

/* c64 and c128 at 8 bytes: c128 needs no more, c64 no less. */
static void complex_copies(void **unused)
{
    double room[12] = {0}, from[12], expected[12] = {0};
    (void)unused;
    for (int k = 0; k < 12; k++) from[k] = k + 0.5;
    for (int to = 0; to < 2; to++)
        for (int at = 0; at < 2; at++) {
            rill_tensor target = rill_tensor_1d(room + to, RILL_C128, 5);
            rill_tensor source = rill_tensor_1d(from + at, RILL_C128, 5);
            memset(room, 0, sizeof room);
            memset(expected, 0, sizeof expected);
            memcpy(expected + to, from + at, 5 * 16);
            assert_int_equal(rill_copy(context, &target, &source), RILL_OK);
            assert_memory_equal(room, expected, sizeof room);
        }
}

static void refuse(const rill_tensor *destination, const rill_tensor *source, rill_status status, const char *message)
{
    assert_int_equal(rill_copy(context, destination, source), status);
    assert_string_equal(rill_last_error(context), message);
}

static void bad_copies(void **unused)
{
    _Alignas(16) float a[64] = {0}, b[64] = {0};
    rill_tensor to = rill_tensor_2d(a, RILL_F32, 3, 4), from = rill_tensor_2d(b, RILL_F32, 3, 4), t, odd;
    (void)unused;
    refuse(NULL, &from, RILL_INVALID_NULL, "destination: NULL, expected a tensor");
    refuse(&to, NULL, RILL_INVALID_NULL, "source: NULL, expected a tensor");
    t = from, t.dtype = RILL_ABSENT;
    refuse(&to, &t, RILL_INVALID_DTYPE, "source: dtype is absent, expected one of rill_dtype");
    t = from, t.dtype = RILL_I64;
    refuse(&to, &t, RILL_INVALID_DTYPE, "source: dtype is i64, expected f32 (dtype of destination)");
    t = from, t.device = (rill_device)5;
    assert_int_equal(rill_copy(context, &to, &t), RILL_INVALID_DEVICE);
    t = from, t.rank = 1;
    refuse(&to, &t, RILL_INVALID_SHAPE, "source: rank is 1, expected 2 (rank of destination)");
    t = from, t.rank = 9;
    refuse(&to, &t, RILL_INVALID_SHAPE, "source: rank is 9, expected 0 to 6");
    t = from, t.shape[1] = 5;
    refuse(&to, &t, RILL_INVALID_SHAPE, "source: axis 1 is 5, expected 4 (axis of destination)");
    t = from, t.data = NULL;
    refuse(&to, &t, RILL_INVALID_NULL, "source: data is NULL, expected [3, 4] f32");
    t = to, t.stride[0] = 0;
    refuse(&t, &from, RILL_INVALID_OVERLAP,
           "destination: overlaps itself, found strides that meet, expected distinct elements");
    t = to, t.stride[0] = 2; /* rows that share their ends */
    refuse(&t, &from, RILL_INVALID_OVERLAP,
           "destination: overlaps itself, found strides that meet, expected distinct elements");
    refuse(&to, &to, RILL_INVALID_OVERLAP, "destination: overlaps source, expected disjoint memory");
    t = to, t.data = a + 11;
    refuse(&t, &to, RILL_INVALID_OVERLAP, "destination: overlaps source, expected disjoint memory");
    t.data = a + 12;
    assert_int_equal(rill_copy(context, &t, &to), RILL_OK);
    t = to, t.data = (char *)a + 2;
    refuse(&t, &from, RILL_INVALID_STRIDE, "destination: data is aligned to 2 bytes, expected 4");
    static const rill_dtype complex_types[] = {RILL_C64, RILL_C128};
    for (int i = 0; i < 2; i++) {
        t = rill_tensor_1d(a, complex_types[i], 2);
        odd = rill_tensor_1d((char *)b + 4, complex_types[i], 2);
        refuse(&t, &odd, RILL_INVALID_STRIDE, "source: data is aligned to 4 bytes, expected 8");
    }
    t = to, t.stride[0] = t.stride[1] = 2, t.stride[0] = 8; /* every other element: the odd ones are free */
    odd = t;
    odd.data = a + 1;
    assert_int_equal(rill_copy(context, &odd, &t), RILL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),          cmocka_unit_test(constructors),     cmocka_unit_test(memory),
        cmocka_unit_test(copies),         cmocka_unit_test(broadcast_copies), cmocka_unit_test(bad_copies),
        cmocka_unit_test(complex_copies),
    };
    static const rill_backend backends[] = {RILL_BACKEND_CPU, RILL_BACKEND_REFERENCE, RILL_BACKEND_LOOP};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        context = context_open(backends[i]);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        rill_context_destroy(context);
    }
    return failed != 0;
}
