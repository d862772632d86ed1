#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "safetensors_types.h"

static size_t tensor_bytes(const rill_tensor *view)
{
    size_t bytes = rill_dtype_size(view->dtype);
    for (int axis = 0; axis < view->rank; axis++) bytes *= (size_t)view->shape[axis];
    return bytes;
}

static json_t *entry_of(const stored_tensor *tensor, size_t begin)
{
    const file_type *type = file_type_of(tensor->view.dtype);
    json_t *shape = json_array();
    for (int axis = 0; axis < tensor->view.rank; axis++)
        json_array_append_new(shape, json_integer(tensor->view.shape[axis]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type ? type->name : "", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tensor_bytes(&tensor->view)));
}

/* Wide elements first, so that every tensor's data is aligned. */
static size_t next_of_size(const stored_tensor *tensors, size_t count, size_t from, size_t size)
{
    while (from < count && rill_dtype_size(tensors[from].view.dtype) != size) from++;
    return from;
}

/* The header's text, padded with spaces to a multiple of 8; NULL without memory. */
static char *make_header(const stored_tensor *tensors, size_t count, const metadata_entry *metadata, size_t *length)
{
    json_t *header = json_object(), *strings = json_object();
    for (; metadata->key; metadata++) json_object_set_new(strings, metadata->key, json_string(metadata->value));
    json_object_set_new(header, "__metadata__", strings);
    size_t at = 0;
    for (size_t size = 8; size >= 2; size /= 2) {
        for (size_t i = 0; (i = next_of_size(tensors, count, i, size)) < count; i++) {
            json_object_set_new(header, tensors[i].name, entry_of(&tensors[i], at));
            at += tensor_bytes(&tensors[i].view);
        }
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!text) return NULL;
    size_t used = strlen(text), padded = (used + 7) / 8 * 8;
    char *grown = realloc(text, padded + 1);
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + used, ' ', padded - used);
    *length = padded;
    return grown;
}

static bool write_parts(FILE *file, const char *header, size_t length, const stored_tensor *tensors, size_t count)
{
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)length >> (8 * i));
    bool good = fwrite(prefix, sizeof prefix, 1, file) == 1 && fwrite(header, length, 1, file) == 1;
    for (size_t size = 8; size >= 2; size /= 2) {
        for (size_t i = 0; good && (i = next_of_size(tensors, count, i, size)) < count; i++) {
            size_t bytes = tensor_bytes(&tensors[i].view);
            good = bytes == 0 || fwrite(tensors[i].view.data, bytes, 1, file) == 1;
        }
    }
    return good;
}

bool safetensors_write(FILE *file, const stored_tensor *tensors, size_t count, const metadata_entry *metadata,
                       failure *why)
{
    size_t length;
    char *header = make_header(tensors, count, metadata, &length);
    if (!header) return failure_set(why, "out of memory");
    bool good = write_parts(file, header, length, tensors, count) && fflush(file) == 0;
    free(header);
    return good ? true : failure_set(why, "cannot write: %s", strerror(errno));
}
