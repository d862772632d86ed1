/* Contexts: what they can be made of, what they say of themselves, how they fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include <rill/cuda.h>
#include <rill/rill.h>

static void status_names(void **unused)
{
    static const struct {
        rill_status status;
        const char *name;
    } rows[] = {
        {RILL_OK, "RILL_OK"},
        {RILL_INVALID_NULL, "RILL_INVALID_NULL"},
        {RILL_INVALID_DTYPE, "RILL_INVALID_DTYPE"},
        {RILL_INVALID_SHAPE, "RILL_INVALID_SHAPE"},
        {RILL_INVALID_STRIDE, "RILL_INVALID_STRIDE"},
        {RILL_INVALID_OVERLAP, "RILL_INVALID_OVERLAP"},
        {RILL_INVALID_DEVICE, "RILL_INVALID_DEVICE"},
        {RILL_INVALID_OFFSETS, "RILL_INVALID_OFFSETS"},
        {RILL_INVALID_OPTION, "RILL_INVALID_OPTION"},
        {RILL_UNSUPPORTED, "RILL_UNSUPPORTED"},
        {RILL_OUT_OF_MEMORY, "RILL_OUT_OF_MEMORY"},
        {RILL_DEVICE_ERROR, "RILL_DEVICE_ERROR"},
        {RILL_INTERNAL, "RILL_INTERNAL"},
        {(rill_status)12345, "unknown status"},
        {(rill_status)-1, "unknown status"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(rill_status_name(rows[i].status), rows[i].name);
}

static void chosen_by_name(void **unused)
{
    static const struct {
        rill_backend backend;
        const char *name;
    } rows[] = {{RILL_BACKEND_CPU, "cpu"}, {RILL_BACKEND_REFERENCE, "reference"}, {RILL_BACKEND_LOOP, "loop"}};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        rill_context *context;
        rill_info info;
        assert_int_equal(rill_context_create(&(rill_options){.backend = rows[i].backend}, &context), RILL_OK);
        assert_int_equal(rill_context_backend(context), rows[i].backend);
        assert_int_equal(rill_context_info(context, &info), RILL_OK);
        assert_int_equal(info.backend, rows[i].backend);
        assert_string_equal(info.backend_name, rows[i].name);
        assert_non_null(info.isa);
        assert_non_null(info.blas);
        assert_string_equal(info.device, "");
        assert_int_equal(info.device_sms, 0);
        assert_int_equal(info.workspace, 0);
        assert_string_equal(rill_last_error(context), "");
        assert_int_equal(rill_synchronize(context), RILL_OK);
        rill_context_destroy(context);
    }
}

static void threads_are_the_callers(void **unused)
{
    (void)unused;
    for (int threads = 0; threads <= 3; threads++) {
        rill_context *context;
        rill_info info;
        rill_options options = {.backend = RILL_BACKEND_CPU, .threads = threads};
        assert_int_equal(rill_context_create(&options, &context), RILL_OK);
        assert_int_equal(rill_context_info(context, &info), RILL_OK);
        if (threads > 0) assert_int_equal(info.threads, threads);
        assert_true(info.threads >= 1);
        rill_context_destroy(context);
    }
}

/* AUTO takes what it says it takes, and never fails on a machine without a GPU. */
static void automatic(void **unused)
{
    rill_context *context, *cuda;
    (void)unused;
    assert_int_equal(rill_context_create(NULL, &context), RILL_OK);
    rill_backend taken = rill_context_backend(context);
    rill_status status = rill_context_create(&(rill_options){.backend = RILL_BACKEND_CUDA}, &cuda);
    assert_int_equal(taken, status == RILL_OK ? RILL_BACKEND_CUDA : RILL_BACKEND_CPU);
    rill_context_destroy(context);
    if (status == RILL_OK) {
        rill_info info;
        assert_int_equal(rill_context_info(cuda, &info), RILL_OK);
        assert_string_not_equal(info.device, "");
        assert_true(info.device_sms > 0);
        rill_context_destroy(cuda);
    } else {
        assert_int_equal(status, RILL_UNSUPPORTED);
        assert_null(cuda);
        assert_true(strlen(rill_last_error(NULL)) > 10);
    }
}

static void instruction_sets(void **unused)
{
    static const char *const names[] = {NULL, "baseline", "avx2", "avx512"};
    (void)unused;
    for (int isa = RILL_ISA_BASELINE; isa <= RILL_ISA_AVX512; isa++) {
        rill_context *context;
        rill_info info;
        rill_options options = {.backend = RILL_BACKEND_CPU, .isa = (rill_isa)isa};
        rill_status status = rill_context_create(&options, &context);
        if (isa == RILL_ISA_BASELINE) assert_int_equal(status, RILL_OK);
        if (status == RILL_OK) {
            assert_int_equal(rill_context_info(context, &info), RILL_OK);
            assert_string_equal(info.isa, names[isa]);
        } else {
            assert_int_equal(status, RILL_UNSUPPORTED);
            assert_non_null(strstr(rill_last_error(NULL), names[isa]));
        }
        rill_context_destroy(context);
    }
}

static void refuse(const rill_options *options, const char *message)
{
    rill_context *context = (rill_context *)&context;
    assert_int_equal(rill_context_create(options, &context), RILL_INVALID_OPTION);
    assert_null(context);
    assert_string_equal(rill_last_error(NULL), message);
}

static void bad_options(void **unused)
{
    (void)unused;
    refuse(&(rill_options){.backend = (rill_backend)9}, "backend: found 9, expected 0 to 4");
    refuse(&(rill_options){.backend = (rill_backend)-1}, "backend: found -1, expected 0 to 4");
    refuse(&(rill_options){.threads = -1}, "threads: found -1, expected 0 to 1024");
    refuse(&(rill_options){.threads = 1025}, "threads: found 1025, expected 0 to 1024");
    refuse(&(rill_options){.device = -1}, "device: found -1, expected 0 or more");
    refuse(&(rill_options){.isa = (rill_isa)4}, "isa: found 4, expected 0 to 3");
    refuse(&(rill_options){.reserved = {0, 0, 5}}, "reserved: element 2 is 5, expected 0");
    assert_int_equal(rill_context_create(NULL, NULL), RILL_INVALID_NULL);
}

static void *other_thread(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)(rill_last_error(NULL)[0] == '\0');
}

/* The message of a failed creation belongs to the thread that tried. */
static void messages_by_thread(void **unused)
{
    pthread_t thread;
    void *empty;
    (void)unused;
    refuse(&(rill_options){.threads = -1}, "threads: found -1, expected 0 to 1024");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, &empty);
    assert_non_null(empty);
}

static void null_contexts(void **unused)
{
    rill_info info;
    void *memory;
    rill_cuda_stream stream;
    rill_tensor tensor = rill_tensor_1d(NULL, RILL_F32, 0);
    (void)unused;
    rill_context_destroy(NULL);
    assert_int_equal(rill_context_backend(NULL), RILL_BACKEND_AUTO);
    assert_int_equal(rill_context_info(NULL, &info), RILL_INVALID_NULL);
    assert_int_equal(rill_alloc(NULL, 1, &memory), RILL_INVALID_NULL);
    assert_int_equal(rill_free(NULL, NULL), RILL_INVALID_NULL);
    assert_int_equal(rill_copy(NULL, &tensor, &tensor), RILL_INVALID_NULL);
    assert_int_equal(rill_synchronize(NULL), RILL_INVALID_NULL);
    assert_int_equal(rill_cuda_set_stream(NULL, NULL), RILL_INVALID_NULL);
    assert_int_equal(rill_cuda_get_stream(NULL, &stream), RILL_INVALID_NULL);
}

/* cuda.h is there in every build, and says no where there is no stream. */
static void streams_without_a_gpu(void **unused)
{
    rill_context *context;
    rill_cuda_stream stream;
    (void)unused;
    assert_int_equal(rill_context_create(&(rill_options){.backend = RILL_BACKEND_CPU}, &context), RILL_OK);
    assert_int_equal(rill_cuda_set_stream(context, NULL), RILL_UNSUPPORTED);
    assert_string_equal(rill_last_error(context), "context: backend is cpu, expected cuda");
    assert_int_equal(rill_cuda_get_stream(context, &stream), RILL_UNSUPPORTED);
    assert_int_equal(rill_context_info(context, NULL), RILL_INVALID_NULL);
    rill_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_names),
        cmocka_unit_test(chosen_by_name),
        cmocka_unit_test(automatic),
        cmocka_unit_test(threads_are_the_callers),
        cmocka_unit_test(instruction_sets),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(messages_by_thread),
        cmocka_unit_test(null_contexts),
        cmocka_unit_test(streams_without_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
