/* Products as their kernels see them: out[row, column] = Σ_k a[row, k] b[column, k] + add[row, column]. */
#ifndef RL_CUDA_PRODUCT_ARGS_H
#define RL_CUDA_PRODUCT_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a tensor over time: row r is step r % length of sequence r / length. */
typedef struct rl_product_rows {
    void *data;
    int64_t batch, step, lane;
    int32_t dtype;
    bool wide; /* lanes follow each other, and rows begin at multiples of 16 bytes */
    bool even; /* rows follow each other at `step` throughout */
} rl_product_rows;

/* Some columns of b: as they lie, of any type that float32 holds. */
typedef struct rl_product_weight {
    const void *data;
    int64_t columns, row, lane;
    int32_t dtype;
    bool wide; /* lanes follow each other, and four from a multiple of four on are one access */
} rl_product_weight;

enum { RL_PRODUCT_WEIGHTS = 3 };

/*
 * Over lanes on units for products of tiles, and for few rows, b is `weights` one below the other, and A =
 * -exp(A_log) is made beside. Over steps, rows are a's lanes, k is a step and b lies as [inner, columns]; out is then
 * parts[part, column, row], each the sum of its share of the steps.
 */
typedef struct rl_product_args {
    rl_product_rows a, out, add;
    rl_product_weight weights[RL_PRODUCT_WEIGHTS];
    rl_product_weight A_log;
    float *A;
    int64_t A_states, A_block; /* the first block that makes it */
    const void *b;             /* else: of the accumulated type */
    void *parts;
    int64_t rows, columns, inner, length, b_row;
    int64_t blocks, column_blocks, row_blocks, part_count; /* blocks: that multiply */
} rl_product_args;

/* The shape of a block's work on multiply-add units, and with products of tiles. */
enum {
    RL_PRODUCT_ROWS = 128,
    RL_PRODUCT_COLUMNS = 96,
    RL_PRODUCT_THREADS = 256,
    RL_PARTS_TILE = 64,  /* rows of a group of 128 threads */
    RL_PARTS_CHUNK = 32, /* of k */
    RL_PARTS_GROUPS = 3, /* of a block */
    RL_PARTS_GROUPS_OVER_STEPS = 2,
    RL_PARTS_GROUPS_OVER_STEPS_16 = 4, /* of bfloat16 */
    RL_PARTS_SLIM = 64,                /* columns of a block: not over steps, */
    RL_PARTS_BROAD = 128,
    RL_PARTS_NARROW = 96, /* both, */
    RL_PARTS_WIDE = 144   /* over steps */
};

enum { RL_FEW_ROWS = 16, RL_FEW_THREADS = 128 };

const void *rl_product_kernel(int32_t dtype, bool over_steps);
/* Of at most RL_FEW_ROWS rows, over lanes, from `weights`; *columns is how many a block has. */
const void *rl_product_few_kernel(int32_t dtype, int64_t inner, int64_t *columns);

typedef struct rl_product_kernel_of {
    const void *address;
    int32_t shared;                 /* bytes of dynamic shared memory */
    int32_t threads, rows, columns; /* of a block */
} rl_product_kernel_of;

/* What is multiplied: float32 with float32, exactly or in two parts each; in two with bfloat16; or 16 bits. */
typedef enum rl_parts_way {
    RL_PARTS_EXACT,
    RL_PARTS_ROUGH,
    RL_PARTS_ROUGH_BF16,
    RL_PARTS_BF16,
    RL_PARTS_F16,
    RL_PARTS_WAYS
} rl_parts_way;

rl_product_kernel_of rl_product_parts_kernel(rl_parts_way way, int64_t inner, int64_t columns);

/* Sums over steps; of 16-bit data always `rough`. */
rl_product_kernel_of rl_product_steps_kernel(int32_t dtype, int columns, bool rough);
/* total (+)= the sum of the parts. */
const void *rl_product_fold_kernel(bool f64);

typedef struct rl_product_fold {
    const void *parts;
    void *total;
    int64_t numbers, part_count;
    bool adds;
} rl_product_fold;

#ifdef __cplusplus
}
#endif

#endif
