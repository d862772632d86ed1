/* A cuda context as a guest: streams, graphs, memory on the device, the caller's own errors. */
#include "cuda_group.h"

enum { LENGTH = 33, CHANNELS = 24, STATES = 16, STEPS = LENGTH * CHANNELS };

/* One layer's tensors on the device; inputs are copies of `host`. */
typedef struct on_device {
    rill_selective_layer_args args;
    void *memory[6];
    float *host_x;
} on_device;

static void *to_device(const float *host, size_t count)
{
    void *memory;
    assert_int_equal(rill_alloc(context, count * sizeof *host, &memory), RILL_OK);
    rill_tensor to = rill_tensor_1d_on(RILL_CUDA, memory, RILL_F32, (int64_t)count);
    rill_tensor from = rill_tensor_1d(host, RILL_F32, (int64_t)count);
    assert_int_equal(rill_copy(context, &to, &from), RILL_OK);
    return memory;
}

static on_device device_make(void)
{
    static const size_t counts[6] = {
        STEPS, CHANNELS * CHANNELS, STATES * CHANNELS, STATES * CHANNELS, CHANNELS * STATES, STEPS};
    on_device d = {0};
    float *values = malloc(STEPS * sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < STEPS; i++) values[i] = (float)(i * 37 % 101 - 50) / 100;
    for (int i = 0; i < 6; i++) d.memory[i] = to_device(values, counts[i]);
    d.host_x = values;
    d.args.x = rill_tensor_3d_on(RILL_CUDA, d.memory[0], RILL_F32, 1, LENGTH, CHANNELS);
    d.args.W_delta = rill_tensor_2d_on(RILL_CUDA, d.memory[1], RILL_F32, CHANNELS, CHANNELS);
    d.args.W_B = rill_tensor_2d_on(RILL_CUDA, d.memory[2], RILL_F32, STATES, CHANNELS);
    d.args.W_C = rill_tensor_2d_on(RILL_CUDA, d.memory[3], RILL_F32, STATES, CHANNELS);
    d.args.A_log = rill_tensor_2d_on(RILL_CUDA, d.memory[4], RILL_F32, CHANNELS, STATES);
    d.args.y = rill_tensor_3d_on(RILL_CUDA, d.memory[5], RILL_F32, 1, LENGTH, CHANNELS);
    return d;
}

static void device_free(on_device *d)
{
    for (int i = 0; i < 6; i++) assert_int_equal(rill_free(context, d->memory[i]), RILL_OK);
    free(d->host_x);
}

static void read_back(const on_device *d, float *y)
{
    rill_tensor host = rill_tensor_3d(y, RILL_F32, 1, LENGTH, CHANNELS);
    assert_int_equal(rill_copy(context, &host, &d->args.y), RILL_OK);
}

static void run(const on_device *d)
{
    rill_status status = rill_selective_layer(context, &d->args);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

static void streams(void **unused)
{
    cudaStream_t mine;
    rill_cuda_stream own, found;
    float first[STEPS], second[STEPS], third[STEPS];
    (void)unused;
    on_device d = device_make();
    assert_int_equal(rill_cuda_get_stream(context, &own), RILL_OK);
    assert_non_null(own); /* never the legacy default stream unasked */
    run(&d);
    read_back(&d, first);
    assert_int_equal(cudaStreamCreate(&mine), cudaSuccess);
    assert_int_equal(rill_cuda_set_stream(context, mine), RILL_OK);
    assert_int_equal(rill_cuda_get_stream(context, &found), RILL_OK);
    assert_ptr_equal(found, mine);
    run(&d);
    read_back(&d, second);
    assert_int_equal(rill_cuda_set_stream(context, NULL), RILL_OK);
    run(&d);
    read_back(&d, third);
    assert_memory_equal(first, second, sizeof first);
    assert_memory_equal(first, third, sizeof first);
    assert_int_equal(rill_cuda_set_stream(context, own), RILL_OK);
    assert_int_equal(cudaStreamDestroy(mine), cudaSuccess);
    device_free(&d);
}

/* A call of a shape seen before can be captured, and its replays compute from what the memory then holds. */
static void graphs(void **unused)
{
    cudaStream_t mine;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    float first[STEPS], again[STEPS], other[STEPS];
    (void)unused;
    on_device d = device_make();
    assert_int_equal(cudaStreamCreate(&mine), cudaSuccess);
    assert_int_equal(rill_cuda_set_stream(context, mine), RILL_OK);
    run(&d);
    read_back(&d, first);
    assert_int_equal(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    run(&d);
    assert_int_equal(cudaStreamEndCapture(mine, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cudaMemsetAsync(d.memory[5], 0xff, STEPS * sizeof(float), mine), cudaSuccess);
        assert_int_equal(cudaGraphLaunch(replay, mine), cudaSuccess);
        read_back(&d, again);
        assert_memory_equal(first, again, sizeof first);
    }
    for (int i = 0; i < STEPS; i++) d.host_x[i] *= -0.5f;
    rill_tensor x = rill_tensor_3d(d.host_x, RILL_F32, 1, LENGTH, CHANNELS);
    assert_int_equal(rill_copy(context, &d.args.x, &x), RILL_OK);
    assert_int_equal(cudaGraphLaunch(replay, mine), cudaSuccess);
    read_back(&d, again);
    run(&d);
    read_back(&d, other);
    assert_memory_equal(again, other, sizeof again);
    assert_memory_not_equal(again, first, sizeof again);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    device_free(&d);
    rill_context_destroy(context); /* before its stream */
    assert_int_equal(cudaStreamDestroy(mine), cudaSuccess);
    context = NULL;
}

/* Growth while a stream is captured is refused, and the context stays usable. */
static void growth_in_a_capture(void **unused)
{
    cudaStream_t mine;
    cudaGraph_t graph = NULL;
    float first[STEPS], again[STEPS];
    (void)unused;
    on_device d = device_make();
    assert_int_equal(cudaStreamCreate(&mine), cudaSuccess);
    assert_int_equal(rill_cuda_set_stream(context, mine), RILL_OK);
    assert_int_equal(rill_synchronize(context), RILL_OK);
    assert_int_equal(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(rill_selective_layer(context, &d.args), RILL_OUT_OF_MEMORY);
    assert_non_null(strstr(rill_last_error(context), "captured"));
    assert_int_equal(cudaStreamEndCapture(mine, &graph), cudaSuccess);
    if (graph) cudaGraphDestroy(graph);
    run(&d);
    read_back(&d, first);
    run(&d);
    read_back(&d, again);
    assert_memory_equal(first, again, sizeof first);
    device_free(&d);
    rill_context_destroy(context);
    assert_int_equal(cudaStreamDestroy(mine), cudaSuccess);
    context = NULL;
}

/* The caller's pending error is still there afterwards, and none of ours is. */
static void pending_errors(void **unused)
{
    float y[STEPS];
    void *memory;
    (void)unused;
    on_device d = device_make();
    cudaGetLastError();
    cudaError_t mine = cudaSetDevice(12345);
    assert_int_not_equal(mine, cudaSuccess);
    run(&d);
    read_back(&d, y);
    assert_int_equal(cudaGetLastError(), mine);
    assert_int_equal(rill_alloc(context, (size_t)1 << 60, &memory), RILL_OUT_OF_MEMORY);
    assert_null(memory);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    run(&d);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    device_free(&d);
}

static void mixed_places(void **unused)
{
    static float memory[CHANNELS * CHANNELS];
    (void)unused;
    on_device d = device_make();
    rill_selective_layer_args args = d.args;
    args.W_delta = rill_tensor_2d(memory, RILL_F32, CHANNELS, CHANNELS);
    assert_int_equal(rill_selective_layer(context, &args), RILL_INVALID_DEVICE);
    assert_string_equal(rill_last_error(context), "W_delta: device is host, expected cuda (device of x)");
    args = d.args;
    args.y.device = (rill_device)9;
    assert_int_equal(rill_selective_layer(context, &args), RILL_INVALID_DEVICE);
    assert_string_equal(rill_last_error(context), "y: device is 9, expected host or cuda (the context is cuda)");
    run(&d);
    device_free(&d);
}

/* Offsets on the device are not checked, and bad ones reach no memory that is not theirs. */
static void bad_offsets(void **unused)
{
    static const int64_t bad[][4] = {
        {5, 2, 40, 1}, {-7, INT64_MIN, INT64_MAX, 33}, {0, 33, 0, 33}, {33, 33, 33, 33}, {0, 1000000, 5, -1}};
    void *memory;
    (void)unused;
    on_device d = device_make();
    assert_int_equal(rill_alloc(context, sizeof bad[0], &memory), RILL_OK);
    d.args.offsets = rill_tensor_1d_on(RILL_CUDA, memory, RILL_I64, 4);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rill_tensor host = rill_tensor_1d(bad[i], RILL_I64, 4);
        assert_int_equal(rill_copy(context, &d.args.offsets, &host), RILL_OK);
        run(&d);
        assert_int_equal(rill_synchronize(context), RILL_OK);
    }
    assert_int_equal(rill_free(context, memory), RILL_OK);
    device_free(&d);
}

/* Strided copies between the host and the device, and within it, keep every element in its place. */
static void copies(void **unused)
{
    static const int64_t shape[] = {3, 4, 5}, order[][3] = {{20, 5, 1}, {1, 3, 12}, {40, 10, 2}};
    float from[128], to[128];
    void *one, *two;
    (void)unused;
    assert_int_equal(rill_alloc(context, sizeof from, &one), RILL_OK);
    assert_int_equal(rill_alloc(context, sizeof from, &two), RILL_OK);
    for (int i = 0; i < 27; i++) {
        for (int k = 0; k < 128; k++) from[k] = (float)k, to[k] = -1;
        rill_tensor source = rill_tensor_view(RILL_HOST, from, RILL_F32, 3, shape, order[i / 9]);
        rill_tensor first = rill_tensor_view(RILL_CUDA, one, RILL_F32, 3, shape, order[i / 3 % 3]);
        rill_tensor second = rill_tensor_view(RILL_CUDA, two, RILL_F32, 3, shape, order[i % 3]);
        rill_tensor last = rill_tensor_view(RILL_HOST, to, RILL_F32, 3, shape, order[(i + 1) % 3]);
        assert_int_equal(rill_copy(context, &first, &source), RILL_OK);
        assert_int_equal(rill_copy(context, &second, &first), RILL_OK);
        assert_int_equal(rill_copy(context, &last, &second), RILL_OK);
        int written = 0;
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 4; b++)
                for (int c = 0; c < 5; c++) {
                    int64_t f = a * source.stride[0] + b * source.stride[1] + c * source.stride[2];
                    int64_t t = a * last.stride[0] + b * last.stride[1] + c * last.stride[2];
                    assert_true(to[t] == from[f]);
                }
        for (int k = 0; k < 128; k++) written += to[k] != -1;
        assert_int_equal(written, 60);
    }
    rill_free(context, one);
    rill_free(context, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(streams),     EACH(graphs), EACH(growth_in_a_capture), EACH(pending_errors), EACH(mixed_places),
        EACH(bad_offsets), EACH(copies),
    };
    rill_status status = rill_context_create(&(rill_options){.backend = RILL_BACKEND_CUDA}, &context);
    if (status == RILL_UNSUPPORTED) {
        printf("%s\n", rill_last_error(NULL));
        return 77;
    }
    rill_context_destroy(context);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
