#include "model.h"

#include <stdlib.h>

#include "fail.h"
#include "weights.h"

struct model {
    compute *on;
    weights of;
    int64_t texts, block;
    float **windows, **states;             /* of each layer: [texts, taps - 1, channels], [texts, channels, states] */
    int64_t *tokens, *targets;             /* [block] */
    float *hidden, *normed, *wide, *x, *y; /* [block, width] twice, [block, 2 channels], [block, channels] twice */
    float *logits, *bits;                  /* [block or texts, vocab], [block] */
    size_t bytes;
    recording *step;
    bool is_warm, records;
};

static float *floats(compute *on, int64_t count)
{
    return memory_take(on, (size_t)count * sizeof(float));
}

model *model_create(compute *on, checkpoint *from, int64_t texts, int64_t block, bool scores)
{
    model *made = take(1, sizeof *made);
    *made = (model){.on = on, .of = weights_load(on, from), .texts = texts, .block = block, .records = true};
    const config *sizes = &made->of.sizes;
    const size_t layers = (size_t)sizes->layers;
    made->windows = take(layers, sizeof *made->windows);
    made->states = take(layers, sizeof *made->states);
    for (size_t k = 0; k < layers; k++) {
        made->windows[k] = floats(on, texts * (sizes->taps - 1) * sizes->channels);
        made->states[k] = floats(on, texts * sizes->channels * sizes->states);
    }
    made->bytes = on->allocated;
    made->tokens = memory_take(on, (size_t)block * sizeof *made->tokens);
    made->targets = memory_take(on, (size_t)block * sizeof *made->targets);
    made->hidden = floats(on, block * sizes->width);
    made->normed = floats(on, block * sizes->width);
    made->wide = floats(on, block * 2 * sizes->channels);
    made->x = floats(on, block * sizes->channels);
    made->y = floats(on, block * sizes->channels);
    made->logits = floats(on, (scores ? block : texts) * sizes->vocab);
    made->bits = floats(on, block);
    return made;
}

void model_destroy(model *made)
{
    compute *on = made->on;
    if (made->step) on->does->forget(on, made->step);
    void *all[] = {made->tokens, made->targets, made->hidden, made->normed, made->wide,
                   made->x,      made->y,       made->logits, made->bits};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) check(on, rill_free(on->rill, all[k]));
    for (int64_t k = 0; k < made->of.sizes.layers; k++) {
        check(on, rill_free(on->rill, made->windows[k]));
        check(on, rill_free(on->rill, made->states[k]));
    }
    weights_free(on, &made->of);
    free(made->windows);
    free(made->states);
    free(made);
}

size_t model_bytes(const model *made)
{
    return made->bytes;
}

void model_forget(model *made)
{
    const config *sizes = &made->of.sizes;
    const int64_t window = made->texts * (sizes->taps - 1) * sizes->channels;
    const int64_t state = made->texts * sizes->channels * sizes->states;
    float *zeros = take((size_t)(window > state ? window : state), sizeof *zeros);
    for (int64_t k = 0; k < sizes->layers; k++) {
        memory_put(made->on, made->windows[k], zeros, RILL_F32, window);
        memory_put(made->on, made->states[k], zeros, RILL_F32, state);
    }
    free(zeros);
}

/* x -> y, gated by z: the second half of `wide`. */
static void run_selective_layer(model *made, const layer *of, float *states, int64_t count, int64_t length)
{
    compute *on = made->on;
    const config *sizes = &made->of.sizes;
    const rill_device at = on->device;
    const int64_t channels = sizes->channels, row = 2 * channels;
    const rill_tensor h = rill_tensor_3d_on(at, states, RILL_F32, count, channels, sizes->states);
    const rill_selective_layer_args call = {
        .x = rill_tensor_3d_on(at, made->x, RILL_F32, count, length, channels),
        .W_delta = rill_tensor_2d_on(at, of->delta, RILL_F32, channels, sizes->rank),
        .W_delta_down = rill_tensor_2d_on(at, of->down, RILL_F32, sizes->rank, channels),
        .W_B = rill_tensor_2d_on(at, of->B, RILL_F32, sizes->states, channels),
        .W_C = rill_tensor_2d_on(at, of->C, RILL_F32, sizes->states, channels),
        .A_log = rill_tensor_2d_on(at, of->A_log, RILL_F32, channels, sizes->states),
        .b_delta = rill_tensor_1d_on(at, of->delta_bias, RILL_F32, channels),
        .D = rill_tensor_1d_on(at, of->D, RILL_F32, channels),
        .z = rill_tensor_view(at, made->wide + channels, RILL_F32, 3, (int64_t[]){count, length, channels},
                              (int64_t[]){length * row, row, 1}),
        .y = rill_tensor_3d_on(at, made->y, RILL_F32, count, length, channels),
        .h_init = h,
        .h_final = h,
    };
    const double start = seconds();
    check(on, rill_selective_layer(on->rill, &call));
    on->rill_seconds += seconds() - start;
}

/* Tokens that have been put into place, through all layers: `hidden` is what the last one leaves. */
static void run(model *made, int64_t first, int64_t count, int64_t length)
{
    compute *on = made->on;
    const methods *does = on->does;
    const config *sizes = &made->of.sizes;
    const int64_t rows = count * length, width = sizes->width, channels = sizes->channels;
    does->embed(on, made->hidden, made->of.embedding, made->tokens, rows, width);
    for (int64_t k = 0; k < sizes->layers; k++) {
        const layer *of = &made->of.layers[k];
        float *window = made->windows[k] + first * (sizes->taps - 1) * channels;
        does->normalize(on, made->normed, made->hidden, width, of->norm, rows, width, sizes->epsilon);
        if (of->in_bias) does->add_bias(on, made->wide, of->in_bias, rows, 2 * channels, false);
        does->multiply(on, made->wide, made->normed, of->in, rows, 2 * channels, width, of->in_bias != NULL);
        does->convolve(on, made->x, made->wide, 2 * channels, of->conv, of->conv_bias, window, count, length,
                       channels, sizes->taps);
        run_selective_layer(made, of, made->states[k] + first * channels * sizes->states, count, length);
        if (of->out_bias) does->add_bias(on, made->hidden, of->out_bias, rows, width, true);
        does->multiply(on, made->hidden, made->y, of->out, rows, width, channels, true);
    }
}

/* Logits of every `stride`-th row, the last one of each stride. */
static void run_head(model *made, int64_t rows, int64_t stride)
{
    compute *on = made->on;
    const int64_t width = made->of.sizes.width;
    on->does->normalize(on, made->normed, made->hidden + (stride - 1) * width, stride * width, made->of.norm, rows,
                        width, made->of.sizes.epsilon);
    on->does->multiply(on, made->logits, made->normed, made->of.head, rows, made->of.sizes.vocab, width, false);
}

static void put_tokens(model *made, int64_t *to, const int64_t *tokens, int64_t count)
{
    if (count > made->block)
        fail("a block of %lld tokens, expected at most %lld", (long long)count, (long long)made->block);
    for (int64_t k = 0; k < count; k++)
        if (tokens[k] < 0 || tokens[k] >= made->of.sizes.vocab)
            fail("token %lld, expected 0 to %lld", (long long)tokens[k], (long long)made->of.sizes.vocab - 1);
    memory_put(made->on, to, tokens, RILL_I64, count);
}

void model_read(model *made, const int64_t *tokens, int64_t first, int64_t count, int64_t length, float *logits)
{
    put_tokens(made, made->tokens, tokens, count * length);
    run(made, first, count, length);
    if (!logits) return;
    run_head(made, count, length);
    memory_get(made->on, logits, made->logits, RILL_F32, count * made->of.sizes.vocab);
}

static void step(void *argument)
{
    model *made = argument;
    run(made, 0, made->texts, 1);
    run_head(made, made->texts, 1);
}

/* The first step is an ordinary one: rill and the products take the memory that they need. */
void model_step(model *made, const int64_t *tokens, float *logits)
{
    compute *on = made->on;
    put_tokens(made, made->tokens, tokens, made->texts);
    if (made->step)
        on->does->replay(on, made->step);
    else if (made->is_warm && made->records)
        made->step = on->does->record(on, step, made);
    else
        step(made);
    made->is_warm = true;
    memory_get(on, logits, made->logits, RILL_F32, made->texts * made->of.sizes.vocab);
}

int64_t model_recorded(const model *made)
{
    return made->step ? made->on->does->parts(made->step) : 0;
}

void model_use_recording(model *made, bool use)
{
    made->records = use;
}

void model_logits(model *made, const int64_t *tokens, int64_t length, float *logits)
{
    put_tokens(made, made->tokens, tokens, length);
    run(made, 0, 1, length);
    run_head(made, length, 1);
    memory_get(made->on, logits, made->logits, RILL_F32, length * made->of.sizes.vocab);
}

void model_score(model *made, const int64_t *tokens, const int64_t *targets, int64_t length, float *bits)
{
    compute *on = made->on;
    put_tokens(made, made->tokens, tokens, length);
    put_tokens(made, made->targets, targets, length);
    run(made, 0, 1, length);
    run_head(made, length, 1);
    on->does->surprise(on, made->bits, made->logits, made->targets, length, made->of.sizes.vocab);
    memory_get(on, bits, made->bits, RILL_F32, length);
}
