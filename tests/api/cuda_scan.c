/* scan and its gradients on device tensors: the caller's stream, graphs, offsets that are wrong, the caller's errors.
 */
#include "cuda_group.h"

/* Sizes that are walked in different ways: few steps, many channels, split time. */
static const int64_t shapes[][3] = {{2, 33, 24}, {700, 3, 2}, {40, 600, 64}, {1, 20000, 3}, {2, 9000, 1}};

enum { SHAPES = sizeof shapes / sizeof shapes[0], TENSORS = 8 };

/* a, b (and dh), h, da, db by time; h_init, h_final (and dh_init) by state. */
typedef struct on_device {
    int64_t batch, length, channels, elements, states;
    void *memory[TENSORS];
    rill_scan_args forward;
    rill_scan_backward_args backward;
} on_device;

enum { A, B, H, DA, DB, H_INIT, H_FINAL, DH_INIT };

static bool is_state(int tensor)
{
    return tensor >= H_INIT;
}

static rill_tensor device_view(const on_device *d, int tensor)
{
    if (is_state(tensor)) return rill_tensor_2d_on(RILL_CUDA, d->memory[tensor], RILL_F32, d->batch, d->channels);
    return rill_tensor_3d_on(RILL_CUDA, d->memory[tensor], RILL_F32, d->batch, d->length, d->channels);
}

static int64_t count_of(const on_device *d, int tensor)
{
    return is_state(tensor) ? d->states : d->elements;
}

static void fill(const on_device *d, int tensor, float scale)
{
    int64_t count = count_of(d, tensor);
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = scale * (float)(i * 37 % 101 - 50) / 64;
    rill_tensor to = rill_tensor_1d_on(RILL_CUDA, d->memory[tensor], RILL_F32, count);
    rill_tensor from = rill_tensor_1d(values, RILL_F32, count);
    assert_int_equal(rill_copy(context, &to, &from), RILL_OK);
    assert_int_equal(rill_synchronize(context), RILL_OK);
    free(values);
}

static on_device device_make(const int64_t *shape)
{
    on_device d = {.batch = shape[0], .length = shape[1], .channels = shape[2]};
    d.states = d.batch * d.channels;
    d.elements = d.states * d.length;
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(rill_alloc(context, (size_t)count_of(&d, i) * 4, &d.memory[i]), RILL_OK);
        fill(&d, i, 1);
    }
    d.forward.a = d.backward.a = device_view(&d, A);
    d.forward.b = d.backward.dh = device_view(&d, B);
    d.forward.h = d.backward.h = device_view(&d, H);
    d.forward.h_init = d.backward.h_init = d.backward.dh_final = device_view(&d, H_INIT);
    d.forward.h_final = device_view(&d, H_FINAL);
    d.backward.da = device_view(&d, DA);
    d.backward.db = device_view(&d, DB);
    d.backward.dh_init = device_view(&d, DH_INIT);
    return d;
}

static void device_free(on_device *d)
{
    for (int i = 0; i < TENSORS; i++) assert_int_equal(rill_free(context, d->memory[i]), RILL_OK);
}

static void run(const on_device *d)
{
    rill_status status = rill_scan(context, &d->forward);
    if (status == RILL_OK) status = rill_scan_backward(context, &d->backward);
    if (status != RILL_OK) fail_msg("%s: %s", rill_status_name(status), rill_last_error(context));
}

/* All outputs, one after the other. */
static float *read_back(const on_device *d)
{
    static const int outputs[] = {H, DA, DB, H_FINAL, DH_INIT};
    float *values = malloc((size_t)(3 * d->elements + 2 * d->states) * sizeof *values), *at = values;
    assert_non_null(values);
    for (int i = 0; i < 5; i++) {
        int64_t count = count_of(d, outputs[i]);
        rill_tensor from = rill_tensor_1d_on(RILL_CUDA, d->memory[outputs[i]], RILL_F32, count);
        rill_tensor to = rill_tensor_1d(at, RILL_F32, count);
        assert_int_equal(rill_copy(context, &to, &from), RILL_OK);
        at += count;
    }
    return values;
}

static bool same_outputs(const on_device *d, const float *values)
{
    float *now = read_back(d);
    bool same = memcmp(values, now, (size_t)(3 * d->elements + 2 * d->states) * sizeof *values) == 0;
    free(now);
    return same;
}

static void clear_outputs(const on_device *d, cudaStream_t stream)
{
    static const int outputs[] = {H, DA, DB, H_FINAL, DH_INIT};
    for (int i = 0; i < 5; i++)
        assert_int_equal(cudaMemsetAsync(d->memory[outputs[i]], 0xff, (size_t)count_of(d, outputs[i]) * 4, stream),
                         cudaSuccess);
}

static void streams(void **unused)
{
    cudaStream_t mine;
    rill_cuda_stream own;
    (void)unused;
    assert_int_equal(rill_cuda_get_stream(context, &own), RILL_OK);
    assert_int_equal(cudaStreamCreate(&mine), cudaSuccess);
    for (int i = 0; i < SHAPES; i++) {
        on_device d = device_make(shapes[i]);
        run(&d);
        float *first = read_back(&d);
        const rill_cuda_stream others[] = {mine, NULL, own};
        for (int k = 0; k < 3; k++) {
            assert_int_equal(rill_cuda_set_stream(context, others[k]), RILL_OK);
            clear_outputs(&d, (cudaStream_t)others[k]);
            run(&d);
            assert_true(same_outputs(&d, first));
        }
        free(first);
        device_free(&d);
    }
    assert_int_equal(cudaStreamDestroy(mine), cudaSuccess);
}

/* A call of a shape seen before can be captured, and its replays compute from what the memory then holds. */
static void graphs(void **unused)
{
    cudaStream_t mine;
    (void)unused;
    assert_int_equal(cudaStreamCreate(&mine), cudaSuccess);
    assert_int_equal(rill_cuda_set_stream(context, mine), RILL_OK);
    for (int i = 0; i < SHAPES; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        on_device d = device_make(shapes[i]);
        run(&d);
        float *first = read_back(&d);
        assert_int_equal(cudaStreamBeginCapture(mine, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        run(&d);
        assert_int_equal(cudaStreamEndCapture(mine, &graph), cudaSuccess);
        assert_int_equal(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
        for (int k = 0; k < 3; k++) {
            clear_outputs(&d, mine);
            assert_int_equal(cudaGraphLaunch(replay, mine), cudaSuccess);
            assert_true(same_outputs(&d, first));
        }
        fill(&d, B, -0.5f);
        fill(&d, A, 0.75f);
        assert_int_equal(cudaGraphLaunch(replay, mine), cudaSuccess);
        float *other = read_back(&d);
        clear_outputs(&d, mine);
        run(&d);
        assert_true(same_outputs(&d, other));
        assert_false(same_outputs(&d, first));
        cudaGraphExecDestroy(replay);
        cudaGraphDestroy(graph);
        free(first);
        free(other);
        device_free(&d);
    }
    rill_context_destroy(context); /* before its stream */
    assert_int_equal(cudaStreamDestroy(mine), cudaSuccess);
    context = NULL;
}

/* Offsets on the device are not checked, and bad ones reach no memory that is not theirs. */
static void bad_offsets(void **unused)
{
    static const int64_t bad[][4] = {
        {5, 2, 40, 1}, {-7, INT64_MIN, INT64_MAX, 33}, {0, 20000, 0, 20000}, {0, 1 << 30, 5, -1}};
    static const int64_t packed_shapes[][3] = {{1, 33, 24}, {1, 20000, 3}, {1, 3000, 64}};
    void *memory, *states[3];
    (void)unused;
    assert_int_equal(rill_alloc(context, sizeof bad[0], &memory), RILL_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(rill_alloc(context, 3 * 64 * sizeof(float), &states[i]), RILL_OK);
    for (size_t i = 0; i < 3 * sizeof bad / sizeof bad[0]; i++) {
        on_device d = device_make(packed_shapes[i % 3]);
        rill_tensor host = rill_tensor_1d(bad[i / 3], RILL_I64, 4);
        d.forward.offsets = d.backward.offsets = rill_tensor_1d_on(RILL_CUDA, memory, RILL_I64, 4);
        assert_int_equal(rill_copy(context, &d.forward.offsets, &host), RILL_OK);
        d.forward.h_init = d.backward.h_init = d.backward.dh_final =
            rill_tensor_2d_on(RILL_CUDA, states[0], RILL_F32, 3, d.channels);
        d.forward.h_final = rill_tensor_2d_on(RILL_CUDA, states[1], RILL_F32, 3, d.channels);
        d.backward.dh_init = rill_tensor_2d_on(RILL_CUDA, states[2], RILL_F32, 3, d.channels);
        run(&d);
        assert_int_equal(rill_synchronize(context), RILL_OK);
        device_free(&d);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(rill_free(context, states[i]), RILL_OK);
    assert_int_equal(rill_free(context, memory), RILL_OK);
}

/* The caller's pending error is still there afterwards, and none of ours is. */
static void pending_errors(void **unused)
{
    (void)unused;
    for (int i = 0; i < SHAPES; i++) {
        on_device d = device_make(shapes[i]);
        cudaGetLastError();
        cudaError_t mine = cudaSetDevice(12345);
        assert_int_not_equal(mine, cudaSuccess);
        run(&d);
        assert_int_equal(rill_synchronize(context), RILL_OK);
        assert_int_equal(cudaGetLastError(), mine);
        run(&d);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        device_free(&d);
    }
}

static void mixed_places(void **unused)
{
    static float memory[2 * 33 * 24];
    (void)unused;
    on_device d = device_make(shapes[0]);
    rill_scan_args args = d.forward;
    args.b = rill_tensor_3d(memory, RILL_F32, 2, 33, 24);
    assert_int_equal(rill_scan(context, &args), RILL_INVALID_DEVICE);
    assert_string_equal(rill_last_error(context), "b: device is host, expected cuda (device of a)");
    rill_scan_backward_args back = d.backward;
    back.da = args.b;
    assert_int_equal(rill_scan_backward(context, &back), RILL_INVALID_DEVICE);
    assert_string_equal(rill_last_error(context), "da: device is host, expected cuda (device of a)");
    run(&d);
    device_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(streams), EACH(graphs), EACH(bad_offsets), EACH(pending_errors), EACH(mixed_places),
    };
    rill_status status = rill_context_create(&(rill_options){.backend = RILL_BACKEND_CUDA}, &context);
    if (status == RILL_UNSUPPORTED) {
        printf("%s\n", rill_last_error(NULL));
        return 77;
    }
    rill_context_destroy(context);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
