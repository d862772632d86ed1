/*
 * The safetensors format: eight bytes of little-endian header length, a JSON header, raw data.  A file comes from
 * anyone: the whole header is checked against the file's size before any of the data is read, and memory is
 * never more than a small multiple of the file.
 */
#ifndef TOOLS_SAFETENSORS_H
#define TOOLS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <rill/rill.h>

#include "failure.h"

struct json_t;

typedef struct stored_tensor {
    const char *name; /* lives in the header */
    const char *type; /* as the file calls it */
    rill_tensor view; /* row-major, aligned; I32 has become I64 */
    void *copy;       /* the view's memory when it is not the file's data in place */
} stored_tensor;

typedef struct safetensors {
    struct json_t *header;
    stored_tensor *tensors;
    size_t count;
    void *data;
    size_t bytes; /* of the whole file */
} safetensors;

/* Largest header that is read: a case has a few dozen tensors, and JSON takes many times its text in memory. */
enum { SAFETENSORS_MAX_HEADER = 1 << 20 };

/* Fills *file, or says why not (and leaves nothing to close).  Types: F64, F32, BF16, F16, I64, I32. */
bool safetensors_read(const char *path, safetensors *file, failure *why);
void safetensors_close(safetensors *file);

const stored_tensor *safetensors_find(const safetensors *file, const char *name);

/* The string under a key of the metadata, or NULL. */
const char *safetensors_metadata(const safetensors *file, const char *key);

typedef struct metadata_entry {
    const char *key, *value;
} metadata_entry;

/* Writes contiguous row-major host tensors and metadata (ends in a NULL key). */
bool safetensors_write(FILE *file, const stored_tensor *tensors, size_t count, const metadata_entry *metadata,
                       failure *why);

#endif
