#include "inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "measure.h"

static const double largest_bytes = 1e12; /* bytes; beyond it products of sizes could overflow */

static uint64_t random_bits(uint64_t stream, int64_t i)
{
    uint64_t bits = stream + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* A value in place i of a stream: four uniforms added up, which is near enough to normal. */
static double draw(uint64_t stream, int64_t i, const op_draw *how, bool logarithm)
{
    uint64_t bits = random_bits(stream, i);
    double sum = (double)(bits & 0xffff) + (double)(bits >> 16 & 0xffff);
    sum += (double)(bits >> 32 & 0xffff) + (double)(bits >> 48);
    double value = how->mean + how->deviation * (sum + 2.0 - 4 * 32768.0) * (1.7320508075688772 / 65536.0);
    if (how->form == OP_MINUS_EXP) return -exp(value);
    if (how->form == OP_FRACTION) value = fmin(fmax(value, 0.01), 0.99);
    return logarithm ? log(value) : value;
}

static void store(void *memory, rill_dtype dtype, int64_t i, double value)
{
    if (dtype == RILL_F64)
        ((double *)memory)[i] = value;
    else if (dtype == RILL_F32)
        ((float *)memory)[i] = (float)value;
    else if (dtype == RILL_BF16)
        ((uint16_t *)memory)[i] = rl_bf16_from_float((float)value);
    else
        ((uint16_t *)memory)[i] = rl_f16_from_float((float)value);
}

/* A complex value: the real one, turned by some angle. */
static void store_turned(void *memory, rill_dtype dtype, int64_t i, double value, uint64_t stream)
{
    double angle = 0x1p-61 * 3.14159265358979323846 * (double)(random_bits(~stream, i) >> 2);
    rill_dtype part = dtype == RILL_C64 ? RILL_F32 : RILL_F64;
    store(memory, part, 2 * i, value * cos(angle));
    store(memory, part, 2 * i + 1, value * sin(angle));
}

static bool holds_logarithm(const bench_problem *problem, const op_tensor *tensor)
{
    const op *row = problem->operation;
    const op_option *option = row->logarithm.option ? op_option_find(row, row->logarithm.option) : NULL;
    return option && problem->option[option - row->options] != 0.0 &&
           strcmp(row->logarithm.tensor, tensor->name) == 0;
}

static void fill(const bench_problem *problem, const op_tensor *tensor, const rill_tensor *view, int64_t count,
                 uint64_t stream)
{
    if (count == 0) return;
    if (op_is_output(tensor)) {
        memset(view->data, 0xff, (size_t)count * rill_dtype_size(view->dtype)); /* NaN */
        return;
    }
    if (tensor->kind == OP_OFFSETS) return;
    op_draw how = tensor->draw;
    if (tensor->kind == OP_WEIGHT) how.deviation /= sqrt((double)view->shape[view->rank - 1]);
    bool complex_numbers = op_type_is_complex(view->dtype), logarithm = holds_logarithm(problem, tensor);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        if (complex_numbers)
            store_turned(view->data, view->dtype, i, draw(stream, i, &how, logarithm), stream);
        else
            store(view->data, view->dtype, i, draw(stream, i, &how, logarithm));
    }
}

/* Sequences of nearly equal lengths. */
static void fill_offsets(const bench_problem *problem, const rill_tensor *view)
{
    int64_t sequences = view->shape[0] - 1, length = op_size(&problem->sizes, "length");
    for (int64_t s = 0; s <= sequences; s++)
        ((int64_t *)view->data)[s] = sequences ? (int64_t)((double)length * (double)s / (double)sequences) : 0;
}

static bool is_over_time(const op_tensor *tensor)
{
    static const char *const axes[] = {"batch", "length", "channels"};
    for (int axis = 0; axis < 3; axis++)
        if (tensor->rank != 3 || strcmp(tensor->axes[axis], axes[axis]) != 0) return false;
    return true;
}

static rill_tensor shaped(const bench_problem *problem, const op_tensor *tensor, int64_t *count)
{
    int64_t shape[RILL_MAX_RANK] = {0};
    *count = 1;
    for (int axis = 0; axis < tensor->rank; axis++) {
        shape[axis] = op_size(&problem->sizes, tensor->axes[axis]);
        *count *= shape[axis];
    }
    rill_dtype dtype = op_default_type(tensor->kind, problem->dtype);
    int64_t turned[3] = {shape[1] * shape[2], 1, shape[1]};
    bool turn = problem->time_contiguous && is_over_time(tensor);
    return rill_tensor_view(RILL_HOST, NULL, dtype, tensor->rank, shape, turn ? turned : NULL);
}

static bool refused(const bench_call *made, failure *why)
{
    return failure_set(why, "%s", rill_last_error(made->context));
}

/* The elements as they lie in memory, whatever their order. */
static rill_tensor in_a_row(const rill_tensor *view, int64_t count)
{
    return rill_tensor_view(view->device, view->data, view->dtype, 1, &count, NULL);
}

/* Fills a tensor in the context's memory, through the host's where that is another. */
static bool place(const bench_call *made, int row, uint64_t stream, void **memory, rill_tensor *view, failure *why)
{
    const op_tensor *tensor = &made->problem->operation->tensors[row];
    bool device = rill_context_backend(made->context) == RILL_BACKEND_CUDA;
    int64_t count;
    *view = shaped(made->problem, tensor, &count);
    size_t bytes = (size_t)count * rill_dtype_size(view->dtype);
    if (rill_alloc(made->context, bytes, memory) != RILL_OK) return refused(made, why);
    rill_tensor host = *view;
    host.data = device ? malloc(bytes ? bytes : 1) : *memory;
    if (device && !host.data) return failure_set(why, "out of memory");
    fill(made->problem, tensor, &host, count, stream);
    if (tensor->kind == OP_OFFSETS) fill_offsets(made->problem, &host);
    view->data = *memory;
    bool good = true;
    if (device) {
        view->device = RILL_CUDA;
        rill_tensor from = in_a_row(&host, count), to = in_a_row(view, count);
        good = rill_copy(made->context, &to, &from) == RILL_OK ? true : refused(made, why);
        free(host.data);
    }
    return good;
}

static bool add_states(bench_call *made, failure *why)
{
    const op *row = made->problem->operation;
    const op_tensor *init = op_tensor_find(row, row->state.input);
    rill_tensor view;
    for (int i = 0; i < BENCH_ROTATING; i++)
        if (!place(made, (int)(init - row->tensors), (uint64_t)(100 + i) << 40, &made->states[i], &view, why))
            return false;
    return true;
}

/* The output lies over the input, whose values are kept elsewhere. */
static bool overlay(bench_call *made, failure *why)
{
    const op *row = made->problem->operation;
    const op_tensor *output = op_tensor_find(row, row->overlay.output);
    const op_tensor *input = op_tensor_find(row, row->overlay.input);
    int kept = (int)(output - row->tensors), stream = (int)(input - row->tensors);
    int64_t count;
    shaped(made->problem, input, &count);
    if (!place(made, stream, (uint64_t)(stream + 1) << 40, &made->memory[kept], &made->kept, why)) return false;
    made->kept = in_a_row(&made->kept, count);
    made->spoilt = in_a_row(op_args_tensor(input, made->args), count);
    *op_args_tensor(output, made->args) = *op_args_tensor(input, made->args);
    return true;
}

/* What is made on its own: all that is given, but for an output that lies over an input. */
static bool is_placed(const bench_problem *problem, int row)
{
    const op_tensor *tensor = &problem->operation->tensors[row];
    return problem->given[row] &&
           !(problem->in_place && strcmp(tensor->name, problem->operation->overlay.output) == 0);
}

static bool open_all(bench_call *made, failure *why)
{
    const op *row = made->problem->operation;
    for (int i = 0; i < row->tensor_count; i++)
        if (is_placed(made->problem, i) && !place(made, i, (uint64_t)(i + 1) << 40, &made->memory[i],
                                                  op_args_tensor(&row->tensors[i], made->args), why))
            return false;
    for (int i = 0; i < row->option_count; i++) {
        void *field = (char *)made->args + row->options[i].offset;
        if (row->options[i].type == OP_BOOL)
            *(bool *)field = made->problem->option[i] != 0.0;
        else
            *(double *)field = made->problem->option[i];
    }
    if (made->problem->in_place && !overlay(made, why)) return false;
    return made->problem->mode == BENCH_DECODE ? add_states(made, why) : true;
}

bool bench_call_open(bench_call *made, const bench_problem *problem, rill_context *context, failure *why)
{
    *made = (bench_call){.problem = problem, .context = context, .args = calloc(1, problem->operation->args_size)};
    bool good = made->args ? true : failure_set(why, "out of memory");
    if (good && open_all(made, why)) return true;
    bench_call_close(made);
    return false;
}

void bench_call_close(bench_call *made)
{
    rill_synchronize(made->context);
    for (int i = 0; i < OP_MAX_TENSORS; i++) rill_free(made->context, made->memory[i]);
    for (int i = 0; i < BENCH_ROTATING; i++) rill_free(made->context, made->states[i]);
    free(made->args);
    *made = (bench_call){0};
}

static bool restore(void *data, failure *why)
{
    const bench_call *made = data;
    return rill_copy(made->context, &made->spoilt, &made->kept) == RILL_OK ? true : refused(made, why);
}

static bool run(void *data, failure *why)
{
    bench_call *made = data;
    const op *row = made->problem->operation;
    if (made->problem->mode == BENCH_DECODE) {
        void *state = made->states[made->next];
        made->next = (made->next + 1) % BENCH_ROTATING;
        op_args_tensor(op_tensor_find(row, row->state.input), made->args)->data = state;
        op_args_tensor(op_tensor_find(row, row->state.output), made->args)->data = state;
    }
    return row->run(made->context, made->args) == RILL_OK ? true : refused(made, why);
}

bool bench_call_check(const bench_problem *problem, rill_context *context, failure *why)
{
    bench_problem empty = *problem;
    bench_call made;
    if (bench_find_floor(problem, &(bench_ceilings){0}).bytes > largest_bytes)
        return failure_set(why, "the tensors would take more than a terabyte");
    op_size_set(&empty.sizes, "length", 0);
    if (empty.mode == BENCH_DECODE) empty.mode = BENCH_EAGER; /* without the rotating states */
    if (!bench_call_open(&made, &empty, context, why)) return false;
    bool good = run(&made, why);
    bench_call_close(&made);
    return good;
}

bench_work bench_call_work(bench_call *made)
{
    return (bench_work){run, made->problem->in_place ? restore : NULL, made};
}

bool bench_call_sound(bench_call *made, failure *why)
{
    enum { SAMPLES = 1009 };
    const op *row = made->problem->operation;
    for (int i = 0; i < row->tensor_count; i++) {
        if (!op_is_output(&row->tensors[i]) || !made->problem->given[i]) continue;
        const rill_tensor *view = op_args_tensor(&row->tensors[i], made->args);
        int64_t count = 1;
        for (int axis = 0; axis < view->rank; axis++) count *= view->shape[axis];
        if (count == 0) continue;
        double room[2 * SAMPLES];
        int64_t samples = count < SAMPLES ? count : SAMPLES, stride = count / samples;
        rill_tensor to = rill_tensor_1d(room, view->dtype, samples);
        rill_tensor from = rill_tensor_view(view->device, view->data, view->dtype, 1, &samples, &stride);
        if (rill_copy(made->context, &to, &from) != RILL_OK) return refused(made, why);
        for (int64_t k = 0; k < samples; k++)
            if (isnan(measure_load(&to, &k))) return failure_set(why, "%s holds NaN", row->tensors[i].name);
    }
    return true;
}
