/*
 * Linear attention as its kernels see it.  A state [keys, values] is cut into tiles of panels of keys by slabs of
 * values; a block holds a tile in registers, and a thread of it ROWS keys by COLUMNS values:
 *
 *                  slab 0                      slab 1
 *     panel 0      group 0: thread 0, 1, ...   column_threads of them for each of row_groups groups
 *                  group 1: ...
 *     panel 1
 *
 * Tiles never need each other's states; they meet in sums over keys and over values only.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_ARGS_H
#define RL_CUDA_LINEAR_ATTENTION_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/tensor.h>

/* A tensor [batch, length, heads, lanes], or without lanes; strides in elements, `step` in the order of running. */
typedef struct rl_attention_view {
    void *data; /* NULL: absent */
    int64_t batch, step, head, lane;
    int32_t dtype;
} rl_attention_view;

/* A tensor [sequences, heads, keys, values]. */
typedef struct rl_attention_state {
    void *data;
    int64_t sequence, head, key, value;
    int32_t dtype;
    bool wide; /* of the accumulation type, and a thread's neighbours in a row are one aligned access of 16 bytes */
} rl_attention_state;

/* What both directions read, and how the work is cut. */
typedef struct rl_attention_inputs {
    rl_attention_view q, k, v, gate, beta;
    rl_attention_state S_init;
    const int64_t *offsets; /* on the device, not checked: clamp */
    int64_t offsets_stride;
    int64_t length, heads, share, keys, values, sequences; /* share: heads of a query head */
    double scale;
    bool gate_is_log;
    bool down;                          /* steps are run from the last of a sequence to its first */
    int32_t column_threads, row_groups; /* of a tile; column_threads is a power of two */
    int32_t steps;                      /* that shared memory has room for */
    int64_t panels, slabs;
} rl_attention_inputs;

enum { RL_ATTENTION_SPECIAL = 1, RL_ATTENTION_ALL = 2 };

/* Heads that are run where chunks had to leave them; without `all` every head is. */
typedef struct rl_attention_marks {
    int32_t *all;     /* [sequences, heads]: 1 where all of a head is run */
    int32_t *special; /* likewise, or NULL: where what is not finite reaches, of inputs or states */
    uint8_t *kinds;   /* [sequences, heads, length]: room for what kind of input that is, by step */
    uint8_t *parts;   /* instead of both: [sequences, heads, each] of the values below, the largest of which counts */
    int32_t each;
} rl_attention_marks;

typedef struct rl_attention_args {
    rl_attention_inputs in;
    rl_attention_view y;
    rl_attention_state S_final;
    void *sums; /* [batch, length, heads, values] of the panels so far; only with more than one */
    rl_attention_marks marks;
} rl_attention_args;

typedef struct rl_attention_backward_args {
    rl_attention_inputs in;
    rl_attention_view dy, dq, dk, dv, dgate, dbeta;
    rl_attention_state dS_final, dS_init;
    /* Where tiles or heads meet, in the accumulation type by time: NULL where none do. */
    void *q_sums, *k_sums; /* [batch, length, heads, keys] */
    void *v_sums;          /* [batch, length, heads, values] */
    void *gate_sums;       /* [batch, length, heads] */
    void *beta_sums;       /* [batch, length, heads] */
    void *states;          /* a slot for each block: [stretches + stretch + 1] tiles; only with dgate */
    int64_t stretch;       /* steps between two states that are kept */
    int64_t slot;          /* tiles of a slot */
    rl_attention_marks marks;
} rl_attention_backward_args;

/* Sums over the heads of a query head: to [batch, length, query_heads, keys]; its `step` is that of time. */
typedef struct rl_attention_sum_args {
    const void *from; /* [batch, length, query_heads, share, keys] of the accumulation type */
    rl_attention_view to;
    int64_t count, length, query_heads, share, keys; /* count: elements of `to` */
} rl_attention_sum_args;

#endif
