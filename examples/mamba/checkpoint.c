#include "checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "fail.h"
#include "shard.h"

struct checkpoint {
    char *folder;
    config sizes;
    json_t *map; /* the file of each tensor; NULL: all are in one */
    shard *shards;
};

typedef struct entry {
    const char *path, *name, *dtype;
    const unsigned char *data;
    size_t bytes, count;
    const json_t *shape;
} entry;

static char *joined(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = take(size, 1);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static char *copy_of(const char *text)
{
    return strcpy(take(strlen(text) + 1, 1), text);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static json_t *read_json(const char *path)
{
    json_error_t error;
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %s", path, strerror(errno));
    json_t *root = json_loadf(file, 0, &error);
    if (ferror(file)) fail("%s: cannot be read", path); /* a folder */
    if (!root) fail("%s: line %d: %s", path, error.line, error.text);
    fclose(file);
    return root;
}

/* Keeps it among the open ones. */
static shard *open_shard(checkpoint *opened, const char *path)
{
    shard *file = shard_open(path);
    file->next = opened->shards;
    return opened->shards = file;
}

static shard *shard_at(checkpoint *opened, const char *path)
{
    for (shard *file = opened->shards; file; file = file->next)
        if (strcmp(file->path, path) == 0) return file;
    return open_shard(opened, path);
}

/* The file that should hold a tensor; NULL: none. */
static shard *shard_of(checkpoint *opened, const char *name)
{
    if (!opened->map) return opened->shards;
    const char *file = json_string_value(json_object_get(opened->map, name));
    if (!file) return NULL;
    if (strchr(file, '/')) fail("%s: the index names the file %s, expected one of the folder", opened->folder, file);
    char *path = joined(opened->folder, file);
    shard *found = shard_at(opened, path);
    free(path);
    return found;
}

static size_t dtype_size(const char *dtype)
{
    if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0) return 4;
    if (strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0) return 2;
    return 0;
}

static size_t elements_of(const entry *found)
{
    size_t count = 1, k;
    json_t *size;
    json_array_foreach(found->shape, k, size)
    {
        const json_int_t n = json_integer_value(size);
        if (!json_is_integer(size) || n < 0 || (n > 0 && count > SIZE_MAX / 8 / (size_t)n))
            fail("%s: %s: its shape is no list of sizes", found->path, found->name);
        count *= (size_t)n;
    }
    return count;
}

static entry find(checkpoint *opened, const char *name)
{
    const shard *file = shard_of(opened, name);
    const json_t *about = file ? json_object_get(file->header, name) : NULL;
    if (!about) fail("%s: no tensor %s", file ? file->path : opened->folder, name);
    entry found = {.path = file->path, .name = name, .shape = json_object_get(about, "shape")};
    found.dtype = json_string_value(json_object_get(about, "dtype"));
    if (!found.dtype || !json_is_array(found.shape)) fail("%s: %s: dtype or shape is missing", found.path, name);
    const json_t *offsets = json_object_get(about, "data_offsets"); /* the file's opening has checked them */
    const json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    const json_int_t end = json_integer_value(json_array_get(offsets, 1));
    if (dtype_size(found.dtype) == 0)
        fail("%s: %s: type %s, expected F32, BF16 or F16", found.path, name, found.dtype);
    found.data = file->data + begin;
    found.bytes = (size_t)(end - begin);
    found.count = elements_of(&found);
    if (found.bytes != found.count * dtype_size(found.dtype))
        fail("%s: %s: %zu bytes, and its shape and type take %zu", found.path, name, found.bytes,
             found.count * dtype_size(found.dtype));
    return found;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float half_as_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    /* As a float32 the exponent is too small by 112, which a product mends, for subnormal numbers as well. */
    return float_of(sign | rest << 13) * 0x1p112f;
}

static float element(const entry *found, size_t k)
{
    uint32_t word = 0;
    if (strcmp(found->dtype, "F32") == 0) {
        memcpy(&word, found->data + 4 * k, 4);
        return float_of(word);
    }
    const uint16_t half = (uint16_t)(found->data[2 * k] | found->data[2 * k + 1] << 8);
    return strcmp(found->dtype, "BF16") == 0 ? float_of((uint32_t)half << 16) : half_as_float(half);
}

static void expect_shape(const entry *found, int rank, const int64_t *shape)
{
    bool is_right = json_array_size(found->shape) == (size_t)rank;
    for (int k = 0; k < rank && is_right; k++)
        is_right = json_integer_value(json_array_get(found->shape, (size_t)k)) == shape[k];
    if (is_right) return;
    char *text = json_dumps(found->shape, JSON_COMPACT), expected[80] = "";
    for (int k = 0; k < rank; k++)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), k ? ",%lld" : "%lld",
                 (long long)shape[k]);
    fail("%s: %s: shape %s, expected [%s]", found->path, found->name, text ? text : "?", expected);
}

float *checkpoint_floats(checkpoint *opened, const char *name, int rank, const int64_t *shape)
{
    const entry found = find(opened, name);
    expect_shape(&found, rank, shape);
    if (strcmp(found.dtype, "I32") == 0) fail("%s: %s: type I32, expected F32, BF16 or F16", found.path, name);
    float *values = take(found.count, sizeof *values);
    for (size_t k = 0; k < found.count; k++) values[k] = element(&found, k);
    return values;
}

const int32_t *checkpoint_ints(checkpoint *opened, const char *name, int64_t *count)
{
    const entry found = find(opened, name);
    if (strcmp(found.dtype, "I32") != 0 || json_array_size(found.shape) != 1 || (uintptr_t)found.data % 4 != 0)
        fail("%s: %s: expected a list of I32", found.path, name);
    *count = (int64_t)found.count;
    return (const int32_t *)(const void *)found.data;
}

bool checkpoint_has(checkpoint *opened, const char *name)
{
    const shard *file = shard_of(opened, name);
    return file && json_object_get(file->header, name);
}

const config *checkpoint_config(const checkpoint *opened)
{
    return &opened->sizes;
}

checkpoint *checkpoint_open_file(const char *path)
{
    checkpoint *opened = take(1, sizeof *opened);
    opened->folder = copy_of(path);
    open_shard(opened, path);
    return opened;
}

static json_t *read_map(const char *path)
{
    json_t *root = read_json(path), *map = json_incref(json_object_get(root, "weight_map")), *file;
    const char *name;
    if (!json_is_object(map)) fail("%s: weight_map is missing", path);
    json_object_foreach(map, name, file)
    {
        if (!json_is_string(file)) fail("%s: weight_map: %s: not the name of a file", path, name);
    }
    json_decref(root);
    return map;
}

/* One file goes before an index, as transformers has it. */
static void open_weights(checkpoint *opened)
{
    char *single = joined(opened->folder, "model.safetensors");
    char *index = joined(opened->folder, "model.safetensors.index.json");
    if (exists(single))
        open_shard(opened, single);
    else if (exists(index))
        opened->map = read_map(index);
    else
        fail("%s: neither model.safetensors nor model.safetensors.index.json is there", opened->folder);
    free(index);
    free(single);
}

checkpoint *checkpoint_open(const char *folder)
{
    checkpoint *opened = take(1, sizeof *opened);
    opened->folder = copy_of(folder);
    char *path = joined(folder, "config.json");
    json_t *root = read_json(path);
    opened->sizes = config_read(root, path);
    json_decref(root);
    free(path);
    open_weights(opened);
    return opened;
}

void checkpoint_close(checkpoint *opened)
{
    for (shard *file = opened->shards, *next; file; file = next) {
        next = file->next;
        shard_close(file);
    }
    json_decref(opened->map);
    free(opened->folder);
    free(opened);
}
