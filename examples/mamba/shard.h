/* A safetensors file, mapped: 8 bytes of the header's size, the header in JSON, and the tensors' bytes. */
#ifndef MAMBA_SHARD_H
#define MAMBA_SHARD_H

#include <jansson.h>

typedef struct shard {
    struct shard *next;
    char *path;
    const unsigned char *bytes, *data;
    size_t size, data_size;
    json_t *header;
} shard;

/* Whatever is wrong with the file ends the program; its tensors lie one behind the other, from the first byte of its
 * data to the last. */
shard *shard_open(const char *path);
void shard_close(shard *file);

#endif
