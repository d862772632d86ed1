#ifndef MAMBA_CONFIG_H
#define MAMBA_CONFIG_H

#include <jansson.h>

#include "checkpoint.h"

/* What the parsed config.json says; `path` is for messages. */
config config_read(const json_t *root, const char *path);

#endif
