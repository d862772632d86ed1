#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "safetensors.h"
#include "safetensors_types.h"

enum { ALIGNMENT = 64, PREFIX = 8 };

/* Where a tensor's bytes lie in the data. */
typedef struct extent {
    uint64_t begin, end;
    const char *name;
} extent;

/* Names in messages are cut: a header may hold very long ones. */
#define NAME "tensor '%.64s': "

static bool read_all(int descriptor, void *buffer, size_t bytes, failure *why)
{
    char *at = buffer;
    while (bytes > 0) {
        ssize_t got = read(descriptor, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failure_set(why, "%s", strerror(errno));
        if (got == 0) return failure_set(why, "the file became shorter while it was read");
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static bool read_prefix(int descriptor, uint64_t size, uint64_t *header, failure *why)
{
    unsigned char bytes[PREFIX];
    if (size < PREFIX) return failure_set(why, "%" PRIu64 " bytes are too few for a safetensors file", size);
    if (!read_all(descriptor, bytes, PREFIX, why)) return false;
    *header = 0;
    for (int i = 0; i < PREFIX; i++) *header |= (uint64_t)bytes[i] << (8 * i);
    if (*header > size - PREFIX)
        return failure_set(why, "the header's length is %" PRIu64 ", beyond the file's %" PRIu64 " bytes", *header,
                           size);
    if (*header > SAFETENSORS_MAX_HEADER)
        return failure_set(why, "the header's length is %" PRIu64 ", more than the %d that are read", *header,
                           SAFETENSORS_MAX_HEADER);
    return true;
}

static bool read_header(int descriptor, uint64_t bytes, json_t **header, failure *why)
{
    char *text = malloc(bytes ? (size_t)bytes : 1);
    if (!text) return failure_set(why, "out of memory");
    bool read = read_all(descriptor, text, (size_t)bytes, why);
    if (read && (bytes == 0 || text[0] != '{')) read = failure_set(why, "the header is not a JSON object");
    if (read) {
        json_error_t error;
        *header = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
        if (!*header) read = failure_set(why, "bad JSON header at byte %d: %s", error.position, error.text);
    }
    free(text);
    return read;
}

static bool check_metadata(const json_t *header, failure *why)
{
    json_t *metadata = json_object_get(header, "__metadata__"), *value;
    const char *key;
    if (!metadata) return true;
    if (!json_is_object(metadata)) return failure_set(why, "__metadata__ is not a JSON object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) return failure_set(why, "__metadata__: '%.64s' is not a string", key);
    }
    return true;
}

/* Sizes whose product, zeros counted as 1, fits in 62 bits, so that no later product of them overflows. */
static bool read_shape(const char *name, const json_t *shape, rill_tensor *view, failure *why)
{
    if (!json_is_array(shape)) return failure_set(why, NAME "shape is not an array", name);
    if (json_array_size(shape) > RILL_MAX_RANK)
        return failure_set(why, NAME "%zu axes are more than %d", name, json_array_size(shape), RILL_MAX_RANK);
    view->rank = (int32_t)json_array_size(shape);
    int64_t product = 1;
    for (int axis = view->rank - 1; axis >= 0; axis--) {
        const json_t *size = json_array_get(shape, (size_t)axis);
        if (!json_is_integer(size)) return failure_set(why, NAME "axis %d is not an integer", name, axis);
        int64_t n = json_integer_value(size);
        if (n < 0) return failure_set(why, NAME "axis %d is negative (%" PRId64 ")", name, axis, n);
        view->shape[axis] = n;
        view->stride[axis] = product;
        if (n > 0 && __builtin_mul_overflow(product, n, &product)) product = INT64_MAX;
        if (product >= INT64_MAX / 16) return failure_set(why, NAME "the shape is too large", name);
    }
    return true;
}

static int64_t element_count(const rill_tensor *view)
{
    int64_t count = 1;
    for (int axis = 0; axis < view->rank; axis++) count *= view->shape[axis];
    return count;
}

static bool read_extent(const char *name, const json_t *offsets, uint64_t data_bytes, extent *where, failure *why)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return failure_set(why, NAME "data_offsets is not an array of two integers", name);
    json_int_t first = json_integer_value(begin), last = json_integer_value(end);
    if (first < 0 || last < first || (uint64_t)last > data_bytes)
        return failure_set(why,
                           NAME "data_offsets [%" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
                                "] are not within the file's %" PRIu64 " bytes of data",
                           name, first, last, data_bytes);
    *where = (extent){(uint64_t)first, (uint64_t)last, name};
    return true;
}

static bool read_entry(const char *name, const json_t *entry, uint64_t data_bytes, stored_tensor *tensor,
                       extent *where, failure *why)
{
    const char *type_name = json_string_value(json_object_get(entry, "dtype"));
    if (!type_name) return failure_set(why, NAME "dtype is not a string", name);
    const file_type *type = file_type_named(type_name);
    if (!type) return failure_set(why, NAME "type %.16s is none of F64, F32, BF16, F16, I64, I32", name, type_name);
    *tensor = (stored_tensor){.name = name, .type = type->name, .view = {.dtype = type->dtype}};
    if (!read_shape(name, json_object_get(entry, "shape"), &tensor->view, why)) return false;
    if (!read_extent(name, json_object_get(entry, "data_offsets"), data_bytes, where, why)) return false;
    uint64_t expected = (uint64_t)element_count(&tensor->view) * type->size;
    if (where->end - where->begin != expected)
        return failure_set(why, NAME "data_offsets span %" PRIu64 " bytes, expected %" PRIu64 " (shape times %s)",
                           name, where->end - where->begin, expected, type->name);
    return true;
}

static int by_place(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return 0;
}

/* The format knows neither overlap nor holes: sorted extents are a chain from 0 to the end of the data. */
static bool check_extents(const extent *extents, size_t count, uint64_t data_bytes, failure *why)
{
    extent *sorted = malloc((count ? count : 1) * sizeof *sorted);
    if (!sorted) return failure_set(why, "out of memory");
    if (count) memcpy(sorted, extents, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_place);
    uint64_t at = 0;
    bool good = true;
    for (size_t i = 0; i < count && good; at = sorted[i++].end)
        if (sorted[i].begin != at)
            good = failure_set(why, NAME "data begins at byte %" PRIu64 ", expected %" PRIu64 " (%s)", sorted[i].name,
                               sorted[i].begin, at, sorted[i].begin < at ? "it overlaps another" : "after a hole");
    if (good && at != data_bytes)
        good = failure_set(why, "the tensors end at byte %" PRIu64 " of %" PRIu64 " bytes of data", at, data_bytes);
    free(sorted);
    return good;
}

static bool read_entries(safetensors *file, uint64_t data_bytes, extent *extents, failure *why)
{
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        if (!read_entry(name, entry, data_bytes, &file->tensors[file->count], &extents[file->count], why))
            return false;
        file->count++;
    }
    return check_extents(extents, file->count, data_bytes, why);
}

/* Points the views into the data; those that lie askew, or are I32, get a copy of their own. */
static bool place_tensors(safetensors *file, const extent *extents, failure *why)
{
    for (size_t i = 0; i < file->count; i++) {
        stored_tensor *tensor = &file->tensors[i];
        const char *from = (const char *)file->data + extents[i].begin;
        size_t size = rill_dtype_size(tensor->view.dtype);
        bool narrow = strcmp(tensor->type, "I32") == 0;
        if (!narrow && extents[i].begin % size == 0) {
            tensor->view.data = (char *)file->data + extents[i].begin;
            continue;
        }
        size_t count = (size_t)element_count(&tensor->view);
        tensor->copy = malloc(count ? count * size : 1);
        if (!tensor->copy) return failure_set(why, "out of memory");
        tensor->view.data = tensor->copy;
        if (!narrow) memcpy(tensor->copy, from, count * size);
        for (size_t k = 0; narrow && k < count; k++) {
            int32_t value;
            memcpy(&value, from + k * sizeof value, sizeof value);
            ((int64_t *)tensor->copy)[k] = value;
        }
    }
    return true;
}

static bool read_body(int descriptor, safetensors *file, uint64_t data_bytes, failure *why)
{
    size_t entries = json_object_size(file->header) + 1;
    extent *extents = calloc(entries, sizeof *extents);
    file->tensors = calloc(entries, sizeof *file->tensors);
    bool good = extents && file->tensors ? true : failure_set(why, "out of memory");
    good = good && read_entries(file, data_bytes, extents, why);
    if (good && posix_memalign(&file->data, ALIGNMENT, data_bytes ? (size_t)data_bytes : 1) != 0) {
        file->data = NULL;
        good = failure_set(why, "out of memory for %" PRIu64 " bytes of data", data_bytes);
    }
    good = good && read_all(descriptor, file->data, (size_t)data_bytes, why);
    good = good && place_tensors(file, extents, why);
    free(extents);
    return good;
}

static bool read_open(int descriptor, safetensors *file, failure *why)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) return failure_set(why, "%s", strerror(errno));
    if (!S_ISREG(status.st_mode)) return failure_set(why, "not a regular file");
    uint64_t size = (uint64_t)status.st_size, header = 0;
    file->bytes = (size_t)size;
    return read_prefix(descriptor, size, &header, why) && read_header(descriptor, header, &file->header, why) &&
           check_metadata(file->header, why) && read_body(descriptor, file, size - PREFIX - header, why);
}

bool safetensors_read(const char *path, safetensors *file, failure *why)
{
    *file = (safetensors){0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang before it is refused */
    if (descriptor < 0) return failure_set(why, "%s", strerror(errno));
    bool good = read_open(descriptor, file, why);
    close(descriptor);
    if (!good) safetensors_close(file);
    return good;
}

void safetensors_close(safetensors *file)
{
    for (size_t i = 0; i < file->count; i++) free(file->tensors[i].copy);
    free(file->tensors);
    free(file->data);
    json_decref(file->header);
    *file = (safetensors){0};
}

const stored_tensor *safetensors_find(const safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    return NULL;
}

const char *safetensors_metadata(const safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}
