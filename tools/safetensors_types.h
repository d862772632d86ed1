/* How the types of the API are called in files. */
#ifndef TOOLS_SAFETENSORS_TYPES_H
#define TOOLS_SAFETENSORS_TYPES_H

#include <stddef.h>

#include <rill/tensor.h>

typedef struct file_type {
    const char *name;
    size_t size; /* bytes of an element in the file */
    rill_dtype dtype;
} file_type;

/* NULL where there is none.  Only reading knows I32. */
const file_type *file_type_named(const char *name);
const file_type *file_type_of(rill_dtype dtype);

#endif
