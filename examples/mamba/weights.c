#include "weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "fail.h"

static float *put(compute *on, float *values, int64_t count)
{
    float *placed = memory_take(on, (size_t)count * sizeof *placed);
    memory_put(on, placed, values, RILL_F32, count);
    free(values);
    return placed;
}

static float *load(compute *on, checkpoint *from, const char *name, int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int k = 0; k < rank; k++) count *= shape[k];
    return put(on, checkpoint_floats(from, name, rank, shape), count);
}

/* Tensors of block `index`, whose names go on after backbone.layers.N. */
typedef struct loader {
    compute *on;
    checkpoint *from;
    int64_t index;
} loader;

static const char *name_of(const loader *at, const char *part, char (*room)[128])
{
    snprintf(*room, sizeof *room, "backbone.layers.%lld.%s", (long long)at->index, part);
    return *room;
}

static float *vector(const loader *at, const char *part, int64_t size)
{
    char room[128];
    return load(at->on, at->from, name_of(at, part, &room), 1, &size);
}

/* A bias that the configuration promises, or NULL; a file that has one all the same was made for another one. */
static float *bias(const loader *at, const char *part, int64_t size, bool is_promised, const char *option)
{
    char room[128];
    if (is_promised) return vector(at, part, size);
    if (checkpoint_has(at->from, name_of(at, part, &room)))
        fail("config.json: %s is false, expected true (there is a tensor %s)", option, room);
    return NULL;
}

static float *matrix(const loader *at, const char *part, int64_t rows, int64_t columns)
{
    char room[128];
    return load(at->on, at->from, name_of(at, part, &room), 2, (int64_t[]){rows, columns});
}

/* [channels, 1, taps] in the file; here [taps, channels], so that neighbours are computed side by side. */
static float *convolution(const loader *at, int64_t channels, int64_t taps)
{
    char room[128];
    const int64_t shape[] = {channels, 1, taps};
    float *given = checkpoint_floats(at->from, name_of(at, "mixer.conv1d.weight", &room), 3, shape);
    float *turned = take((size_t)(channels * taps), sizeof *turned);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t k = 0; k < taps; k++) turned[k * channels + c] = given[c * taps + k];
    free(given);
    return put(at->on, turned, channels * taps);
}

static layer load_layer(const loader *at, const config *sizes)
{
    const int64_t channels = sizes->channels, width = sizes->width, states = sizes->states, rank = sizes->rank;
    layer loaded = {
        .norm = vector(at, "norm.weight", width),
        .in = matrix(at, "mixer.in_proj.weight", 2 * channels, width),
        .conv = convolution(at, channels, sizes->taps),
        .down = matrix(at, "mixer.x_proj.weight", rank + 2 * states, channels),
        .delta = matrix(at, "mixer.dt_proj.weight", channels, rank),
        .delta_bias = vector(at, "mixer.dt_proj.bias", channels),
        .A_log = matrix(at, "mixer.A_log", channels, states),
        .D = vector(at, "mixer.D", channels),
        .out = matrix(at, "mixer.out_proj.weight", width, channels),
    };
    loaded.B = loaded.down + rank * channels;
    loaded.C = loaded.B + states * channels;
    loaded.conv_bias = bias(at, "mixer.conv1d.bias", channels, sizes->has_conv_bias, "use_conv_bias");
    loaded.in_bias = bias(at, "mixer.in_proj.bias", 2 * channels, sizes->has_bias, "use_bias");
    loaded.out_bias = bias(at, "mixer.out_proj.bias", width, sizes->has_bias, "use_bias");
    return loaded;
}

weights weights_load(compute *on, checkpoint *from)
{
    weights loaded = {.sizes = *checkpoint_config(from)};
    const int64_t table[] = {loaded.sizes.vocab, loaded.sizes.width};
    const bool is_singular = checkpoint_has(from, "backbone.embedding.weight"); /* as older files call it */
    const char *name = is_singular ? "backbone.embedding.weight" : "backbone.embeddings.weight";
    loaded.embedding = load(on, from, name, 2, table);
    loaded.layers = take((size_t)loaded.sizes.layers, sizeof *loaded.layers);
    for (loader at = {on, from, 0}; at.index < loaded.sizes.layers; at.index++)
        loaded.layers[at.index] = load_layer(&at, &loaded.sizes);
    loaded.norm = load(on, from, "backbone.norm_f.weight", 1, &table[1]);
    loaded.head = loaded.sizes.is_tied ? loaded.embedding : load(on, from, "lm_head.weight", 2, table);
    return loaded;
}

static void release(compute *on, float *memory)
{
    check(on, rill_free(on->rill, memory));
}

void weights_free(compute *on, weights *loaded)
{
    for (int64_t k = 0; k < loaded->sizes.layers; k++) {
        const layer *of = &loaded->layers[k];
        float *all[] = {of->norm,  of->in,         of->in_bias, of->conv, of->conv_bias, of->down,
                        of->delta, of->delta_bias, of->A_log,   of->D,    of->out,       of->out_bias};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) release(on, all[i]);
    }
    if (loaded->head != loaded->embedding) release(on, loaded->head);
    release(on, loaded->norm);
    release(on, loaded->embedding);
    free(loaded->layers);
}
