/* The launcher of products of little work. */
#include "product_little.h"

#include "counts.h"

static const int64_t MOST_WORK = (int64_t)1
                                 << 24; /* multiply-adds of a product; beyond, tiles are worth their start */

enum {
    MOST_INNER = 1024, /* a block's trips to memory are one after the other */
    MOST_LINES = 1 << 20,
    MOVE_BLOCKS = 8
};

bool rl_is_little(int64_t rows, int64_t columns, int64_t inner)
{
    if (rows > MOST_LINES || columns > MOST_LINES || inner > MOST_INNER) return false;
    return rows == 0 || columns == 0 || inner == 0 || rows * columns <= MOST_WORK / inner;
}

static rl_little_piece piece(const rill_tensor *tensor, int lines, int lanes)
{
    if (!tensor->data) return (rl_little_piece){.lines = (int32_t)tensor->shape[lines]};
    return (rl_little_piece){.data = tensor->data,
                             .line = rl_cuda_stride(tensor, lines),
                             .lane = lanes < tensor->rank ? rl_cuda_stride(tensor, lanes) : 0,
                             .dtype = (int32_t)tensor->dtype,
                             .lines = (int32_t)tensor->shape[lines]};
}

rl_little_piece rl_little_piece_of(const rill_tensor *tensor)
{
    return piece(tensor, 0, 1);
}

rl_little_matrix rl_little_over_time(const rill_tensor *tensor)
{
    rl_little_matrix matrix = {.piece = {piece(tensor, 1, 2)}, .length = 1};
    if (!tensor->data) return matrix;
    matrix.batch = rl_cuda_stride(tensor, 0);
    matrix.length = (int32_t)rl_most(1, tensor->shape[1]);
    matrix.piece[0].lines = (int32_t)(tensor->shape[0] * tensor->shape[1]);
    return matrix;
}

rl_little_matrix rl_little_below_each_other(const rill_tensor *tensors, int count)
{
    rl_little_matrix matrix = {.length = INT32_MAX};
    for (int k = 0; k < count; k++) matrix.piece[k] = piece(&tensors[k], 0, 1);
    return matrix;
}

void rl_little_add(rl_little *little, const rl_little_product *product)
{
    rl_little_product *added = &little->product[little->products];
    if (product->rows == 0 || product->columns == 0) return;
    *added = *product;
    added->column_blocks = (int32_t)rl_quotient_up(product->columns, RL_LITTLE_TILE);
    added->blocks = (int32_t)rl_quotient_up(product->rows, RL_LITTLE_TILE) * added->column_blocks;
    little->products++;
}

void rl_little_add_move(rl_little *little, const rl_little_move *move)
{
    if (move->to.data && move->from.lines * move->lanes > 0) little->move[little->moves++] = *move;
}

rill_status rl_cuda_little(rill_context *context, const rl_little *little, bool f64, const char *what)
{
    rl_little launched = *little;
    void *arguments[] = {&launched};
    int64_t blocks = 0, moved = 0;
    for (int k = 0; k < little->products; k++) blocks += little->product[k].blocks;
    for (int k = 0; k < little->moves; k++)
        moved = rl_most(moved, rl_quotient_up(little->move[k].from.lines * little->move[k].lanes, RL_LITTLE_THREADS));
    blocks += rl_least(moved, MOVE_BLOCKS);
    if (blocks == 0) return RILL_OK;
    return rl_cuda_launch_early(context, rl_product_little_kernel(f64), blocks, 1, RL_LITTLE_THREADS, 0, arguments,
                                what);
}
