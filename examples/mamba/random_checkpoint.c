/*
 * random_checkpoint FOLDER [WIDTH LAYERS VOCAB]: a checkpoint with random weights, for measuring; as large as
 * mamba-130m when nothing is said: 768, 24, 50280.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"

enum { STATES = 16, TAPS = 4 };

typedef enum kind { UNIFORM, ONES, STEP_BIAS, RATES } kind;

/* The header grows as tensors are named; a second round with `data` set writes their numbers in the same order. */
typedef struct writer {
    FILE *data;
    char *header;
    size_t used, offset;
    uint64_t seed;
} writer;

static double uniform(writer *to)
{
    to->seed = to->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(to->seed >> 11) * 0x1p-53;
}

static float number(writer *to, kind what, int64_t rows, int64_t columns, int64_t k)
{
    switch (what) {
    case ONES:
        return 1;
    case RATES:
        return logf((float)(k % columns + 1));
    case STEP_BIAS: { /* softplus of it is .001 to .1 */
        const double step = exp(uniform(to) * log(100) + log(.001));
        return (float)(step + log(-expm1(-step)));
    }
    default:
        return (float)((2 * uniform(to) - 1) / sqrt((double)(columns > 1 ? columns : rows)));
    }
}

static void put(writer *to, const char *name, kind what, const char *shape, int64_t rows, int64_t columns)
{
    const size_t bytes = (size_t)(rows * columns) * 4;
    if (!to->data)
        to->used += (size_t)sprintf(to->header + to->used,
                                    "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                    to->used > 1 ? "," : "", name, shape, to->offset, to->offset + bytes);
    to->offset += bytes;
    for (int64_t k = 0; to->data && k < rows * columns; k++) {
        const float value = number(to, what, rows, columns, k);
        fwrite(&value, sizeof value, 1, to->data);
    }
}

static void put_matrix(writer *to, const char *name, kind what, int64_t rows, int64_t columns)
{
    char shape[64];
    snprintf(shape, sizeof shape, "[%lld,%lld]", (long long)rows, (long long)columns);
    put(to, name, what, shape, rows, columns);
}

static void put_vector(writer *to, const char *name, kind what, int64_t size)
{
    char shape[64];
    snprintf(shape, sizeof shape, "[%lld]", (long long)size);
    put(to, name, what, shape, size, 1);
}

static void put_layer(writer *to, int64_t index, int64_t width)
{
    const int64_t channels = 2 * width, rank = (width + 15) / 16;
    char name[128], shape[64];
    const int stem = snprintf(name, sizeof name, "backbone.layers.%lld.", (long long)index);
#define NAMED(part) (strcpy(name + stem, part), name)
    snprintf(shape, sizeof shape, "[%lld,1,%d]", (long long)channels, TAPS);
    put_vector(to, NAMED("norm.weight"), ONES, width);
    put_matrix(to, NAMED("mixer.in_proj.weight"), UNIFORM, 2 * channels, width);
    put(to, NAMED("mixer.conv1d.weight"), UNIFORM, shape, channels, TAPS);
    put_vector(to, NAMED("mixer.conv1d.bias"), UNIFORM, channels);
    put_matrix(to, NAMED("mixer.x_proj.weight"), UNIFORM, rank + 2 * STATES, channels);
    put_matrix(to, NAMED("mixer.dt_proj.weight"), UNIFORM, channels, rank);
    put_vector(to, NAMED("mixer.dt_proj.bias"), STEP_BIAS, channels);
    put_matrix(to, NAMED("mixer.A_log"), RATES, channels, STATES);
    put_vector(to, NAMED("mixer.D"), ONES, channels);
    put_matrix(to, NAMED("mixer.out_proj.weight"), UNIFORM, width, channels);
#undef NAMED
}

static void put_all(writer *to, int64_t width, int64_t layers, int64_t vocab)
{
    put_matrix(to, "backbone.embeddings.weight", UNIFORM, vocab, width);
    for (int64_t k = 0; k < layers; k++) put_layer(to, k, width);
    put_vector(to, "backbone.norm_f.weight", ONES, width);
}

static FILE *create(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) fail("%s: %s", path, strerror(errno));
    return file;
}

static void finish(FILE *file, const char *name)
{
    const int bad = ferror(file);
    if (fclose(file) != 0 || bad) fail("%s cannot be written", name);
}

static int64_t size_of(const char *word)
{
    char *end;
    const long long size = strtoll(word, &end, 10);
    if (end == word || *end || size < 1 || size > 1 << 20) fail("%s: expected a whole number from 1 to 2^20", word);
    return size;
}

int main(int count, char **words)
{
    if ((count != 2 && count != 5) || words[1][0] == '-')
        fail("usage: random_checkpoint FOLDER [WIDTH LAYERS VOCAB]");
    const int64_t width = count > 2 ? size_of(words[2]) : 768, layers = count > 2 ? size_of(words[3]) : 24;
    const int64_t vocab = count > 2 ? size_of(words[4]) : 50280;
    if (mkdir(words[1], 0777) != 0 && errno != EEXIST) fail("%s: %s", words[1], strerror(errno));
    FILE *file = create(words[1], "config.json");
    fprintf(file,
            "{\"model_type\": \"mamba\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld, "
            "\"state_size\": %d, \"conv_kernel\": %d, \"expand\": 2, \"time_step_rank\": \"auto\"}\n",
            (long long)vocab, (long long)width, (long long)layers, STATES, TAPS);
    finish(file, "config.json");
    writer to = {.header = take((size_t)layers * 2000 + 1000, 1), .used = 1, .seed = 1};
    to.header[0] = '{';
    put_all(&to, width, layers, vocab);
    to.header[to.used++] = '}';
    file = create(words[1], "model.safetensors");
    for (int k = 0; k < 8; k++) fputc((int)(to.used >> 8 * k & 0xff), file);
    fwrite(to.header, 1, to.used, file);
    to.data = file;
    put_all(&to, width, layers, vocab);
    finish(file, "model.safetensors");
    free(to.header);
    return 0;
}
