/* A prepared chunk in its slot. */
#ifndef RL_CPU_LINEAR_ATTENTION_CHUNK_H
#define RL_CPU_LINEAR_ATTENTION_CHUNK_H

#include "linear_attention.h"

enum { RL_LEAST_ROWS = 6 /* steps of a chunk, for products of matrices to win */ };

typedef struct rl_attention_slot {
    rl_attention_chunk chunk;
    void *v_factor, *y_factor; /* [RL_CHUNK] of real */
    bool has_v_factor, has_y_factor;
} rl_attention_slot;

size_t rl_attention_slot_size(const rl_attention_walk *walk);

/* Loads a member's queries, keys, gates and factors, and prepares the chunk. */
void rl_attention_prepare(const rl_attention_walk *walk, const rl_attention_line *line, int64_t member, int64_t chunk,
                          char *memory);

#endif
