/* A Hugging Face Mamba checkpoint: config.json, and weights in one safetensors file or in several with an index. */
#ifndef MAMBA_CHECKPOINT_H
#define MAMBA_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct config {
    int64_t vocab, width, channels, states, rank, taps, layers; /* hidden_size is width, intermediate_size channels */
    double epsilon;
    bool has_bias, has_conv_bias, is_tied;
} config;

typedef struct checkpoint checkpoint;

/* A folder's checkpoint.  Whatever is wrong with it ends the program with a message that names the file. */
checkpoint *checkpoint_open(const char *folder);
void checkpoint_close(checkpoint *opened);

/* One safetensors file, for what is no checkpoint. */
checkpoint *checkpoint_open_file(const char *path);

const config *checkpoint_config(const checkpoint *opened);
bool checkpoint_has(checkpoint *opened, const char *name);

/* A tensor's numbers as float32, to be freed; its shape must be the expected one, rank up to 3. */
float *checkpoint_floats(checkpoint *opened, const char *name, int rank, const int64_t *shape);

/* The int32 numbers of a tensor of rank 1, in place, and how many. */
const int32_t *checkpoint_ints(checkpoint *opened, const char *name, int64_t *count);

#endif
