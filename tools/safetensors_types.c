#include "safetensors_types.h"

#include <string.h>

static const file_type types[] = {
    {"F64", 8, RILL_F64}, {"F32", 4, RILL_F32}, {"BF16", 2, RILL_BF16},
    {"F16", 2, RILL_F16}, {"I64", 8, RILL_I64}, {"I32", 4, RILL_I64},
};

enum { TYPES = sizeof types / sizeof types[0] };

const file_type *file_type_named(const char *name)
{
    for (int i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const file_type *file_type_of(rill_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}
