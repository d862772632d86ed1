/*
 * Products of little work, several of them in one launch: out = a b + add, of matrices as they lie in their tensors.
 * Beside them numbers are moved one by one.  All of it is made of inputs that no part of the same launch writes.
 */
#ifndef RL_CUDA_PRODUCT_LITTLE_H
#define RL_CUDA_PRODUCT_LITTLE_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/tensor.h>

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RL_LITTLE_PIECES = 3,
    RL_LITTLE_PRODUCTS = 2,
    RL_LITTLE_MOVES = 3,
    RL_LITTLE_TILE = 16, /* rows and columns of a block's share of a product */
    RL_LITTLE_THREADS = 256
};

/* Some lines of a matrix: of any real type; without data nothing is stored. */
typedef struct rl_little_piece {
    void *data;
    int64_t line, lane; /* strides in elements */
    int32_t dtype, lines;
} rl_little_piece;

/* Lanes of a matrix from `first` on, as a sum of `count` dense matrices, of the type that sums have. */
typedef struct rl_little_parts {
    const void *data;
    int64_t stride; /* from part to part */
    int32_t first, count, line;
} rl_little_parts;

/* Pieces one below the other; or one alone, over time: its line l is step l % length of sequence l / length. */
typedef struct rl_little_matrix {
    rl_little_piece piece[RL_LITTLE_PIECES];
    rl_little_parts parts; /* without data there are none */
    int64_t batch;
    int32_t length;
} rl_little_matrix;

/* Lines of out and add are rows; those of a are rows, or k where it is turned; of b columns, or k. */
typedef struct rl_little_product {
    rl_little_matrix a, b, add, out;
    int64_t rows, columns, inner;
    bool a_turned, b_turned;
    int32_t column_blocks, blocks;
} rl_little_product;

/* to = from, or a sum of several, from times the number at its place in `factor` (0 where that is infinite), or
 * -exp(from). */
typedef struct rl_little_move {
    rl_little_piece to, from;
    const void *factor; /* dense */
    int64_t lanes;
    int64_t part; /* from one of several to the next */
    int32_t more; /* of them behind the first */
    bool decay;
} rl_little_move;

typedef struct rl_little {
    rl_little_product product[RL_LITTLE_PRODUCTS];
    rl_little_move move[RL_LITTLE_MOVES];
    int32_t products, moves; /* the moves have the blocks behind those of the products */
    bool eager;              /* the kernel ahead lets this one start behind its own wait, and does not make b */
} rl_little;

/* Whether a product is little work. */
bool rl_is_little(int64_t rows, int64_t columns, int64_t inner);

/* A tensor [batch, length, lanes], whose lines go over time, or [lines, lanes]; up to three of these. */
rl_little_matrix rl_little_over_time(const rill_tensor *tensor);
rl_little_matrix rl_little_below_each_other(const rill_tensor *tensors, int count);
rl_little_piece rl_little_piece_of(const rill_tensor *tensor);

/* Adds to what will be launched. */
void rl_little_add(rl_little *little, const rl_little_product *product);
void rl_little_add_move(rl_little *little, const rl_little_move *move);

rill_status rl_cuda_little(rill_context *context, const rl_little *little, bool f64, const char *what);

const void *rl_product_little_kernel(bool f64);

#ifdef __cplusplus
}
#endif

#endif
