/*
 * out = x wᵀ, tile by tile:
 *
 *              96 columns             256 threads, each 8 rows x 6 columns of the tile in registers: 4 + 4 rows, and
 *             +---------+             4 + 2 columns, so that a warp's reads of shared memory fall into all banks.
 *    128 rows |  tile   |             A step takes 16 (double: 8) of `inner`: 128 of x and 96 of w times that many go
 *             +---------+             through shared memory, transposed, in two buffers; the loads of the next step
 *                                     are in flight while this one is multiplied, and one barrier a step is enough.
 *
 * Nothing is split along `inner`: the products of a step are added up in order by fused multiply-adds, and the steps'
 * sums in order.  For float, two levels make a sum of 257 products three times as accurate as one chain.
 */
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "product.h"

namespace
{

constexpr int ROWS = 128, COLUMNS = 96, THREADS = 256, MINE_R = 8, MINE_C = 6;

struct Product {
    const void *x, *w;
    void *out;
    int64_t rows, length, columns, inner, out_row, column_blocks;
    int64_t x_batch, x_step, x_lane;
};

template <typename T, typename Acc> struct Block {
    static constexpr int DEPTH = sizeof(Acc) == 4 ? 16 : 8, LINES = THREADS / DEPTH;
    static constexpr int X_EACH = ROWS / LINES, W_EACH = COLUMNS / LINES;

    struct Buffer {
        alignas(16) Acc x[DEPTH][ROWS + 4], w[DEPTH][COLUMNS + 4];
    };

    const Product &p;
    int64_t row0, column0;
    int depth, line;  /* of what the thread loads: lines line, line + LINES, ... at this depth */
    int across, down; /* of what it multiplies */
    int64_t x_at[X_EACH];
    T raw_x[X_EACH];
    Acc raw_w[W_EACH];

    __device__ explicit Block(const Product &p) : p(p)
    {
        row0 = blockIdx.x / p.column_blocks * ROWS;
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        depth = threadIdx.x % DEPTH;
        line = threadIdx.x / DEPTH;
        across = threadIdx.x % 16;
        down = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < X_EACH; i++) {
            const int64_t row = row0 + line + i * LINES, batch = row / p.length;
            x_at[i] = row < p.rows ? batch * p.x_batch + (row - batch * p.length) * p.x_step : 0;
        }
    }

    __device__ void fetch(int64_t step)
    {
        const int64_t k = step * DEPTH + depth;
#pragma unroll
        for (int i = 0; i < X_EACH; i++) {
            const bool there = k < p.inner && row0 + line + i * LINES < p.rows;
            raw_x[i] = there ? ((const T *)p.x)[x_at[i] + k * p.x_lane] : T{};
        }
#pragma unroll
        for (int i = 0; i < W_EACH; i++) {
            const int64_t column = column0 + line + i * LINES;
            raw_w[i] = k < p.inner && column < p.columns ? ((const Acc *)p.w)[column * p.inner + k] : Acc(0);
        }
    }

    __device__ void put(Buffer &buffer) const
    {
#pragma unroll
        for (int i = 0; i < X_EACH; i++) buffer.x[depth][line + i * LINES] = widen(raw_x[i]);
#pragma unroll
        for (int i = 0; i < W_EACH; i++) buffer.w[depth][line + i * LINES] = raw_w[i];
    }

    __device__ void multiply(const Buffer &buffer, Acc (&sum)[MINE_R][MINE_C]) const
    {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const Quad<Acc> low = *(const Quad<Acc> *)&buffer.x[k][down * 4];
            const Quad<Acc> high = *(const Quad<Acc> *)&buffer.x[k][64 + down * 4];
            const Quad<Acc> left = *(const Quad<Acc> *)&buffer.w[k][across * 4];
            const Acc *right = &buffer.w[k][64 + across * 2];
            const Acc w[MINE_C] = {left.lane[0], left.lane[1], left.lane[2], left.lane[3], right[0], right[1]};
#pragma unroll
            for (int r = 0; r < MINE_R; r++)
#pragma unroll
                for (int c = 0; c < MINE_C; c++)
                    sum[r][c] = fma(r < 4 ? low.lane[r % 4] : high.lane[r % 4], w[c], sum[r][c]);
        }
    }

    __device__ void store(const Acc (&sum)[MINE_R][MINE_C]) const
    {
#pragma unroll
        for (int r = 0; r < MINE_R; r++) {
            const int64_t row = row0 + (r < 4 ? down * 4 + r : 60 + down * 4 + r);
            if (row >= p.rows) continue;
#pragma unroll
            for (int c = 0; c < MINE_C; c++) {
                const int64_t column = column0 + (c < 4 ? across * 4 + c : 60 + across * 2 + c);
                if (column < p.columns) ((Acc *)p.out)[row * p.out_row + column] = sum[r][c];
            }
        }
    }
};

template <typename T, typename Acc>
__global__ void __launch_bounds__(THREADS) product_kernel(const __grid_constant__ Product p)
{
    __shared__ typename Block<T, Acc>::Buffer buffers[2];
    Block<T, Acc> block(p);
    const int64_t steps = (p.inner + block.DEPTH - 1) / block.DEPTH;
    Acc total[MINE_R][MINE_C] = {};
    block.fetch(0);
    block.put(buffers[0]);
    for (int64_t step = 0; step < steps; step++) {
        __syncthreads(); /* the step's buffer is complete, and nobody reads the other one any more */
        if (step + 1 < steps) block.fetch(step + 1);
        if constexpr (sizeof(Acc) == 4) {
            Acc sum[MINE_R][MINE_C] = {};
            block.multiply(buffers[step & 1], sum);
#pragma unroll
            for (int r = 0; r < MINE_R; r++)
#pragma unroll
                for (int c = 0; c < MINE_C; c++) total[r][c] += sum[r][c];
        } else {
            block.multiply(buffers[step & 1], total);
        }
        if (step + 1 < steps) block.put(buffers[(step + 1) & 1]);
    }
    block.store(total);
}

const void *pick_kernel(rill_dtype dtype)
{
    switch (dtype) {
    case RILL_F64:
        return kernel_address<product_kernel<double, double>>();
    case RILL_F32:
        return kernel_address<product_kernel<float, float>>();
    case RILL_BF16:
        return kernel_address<product_kernel<bf16, float>>();
    default:
        return kernel_address<product_kernel<f16, float>>();
    }
}

} // namespace

rill_status rl_cuda_product(rill_context *context, const rill_tensor *x, const void *w, int64_t columns, void *out,
                            int64_t out_row)
{
    Product p = {};
    p.x = x->data;
    p.w = w;
    p.out = out;
    p.length = x->shape[1];
    p.rows = x->shape[0] * p.length;
    p.columns = columns;
    p.inner = x->shape[2];
    p.out_row = out_row;
    p.x_batch = x->stride[0];
    p.x_step = x->stride[1];
    p.x_lane = x->stride[2];
    p.column_blocks = (columns + COLUMNS - 1) / COLUMNS;
    if (p.rows == 0 || columns == 0) return RILL_OK;
    void *arguments[] = {&p};
    const int64_t row_blocks = (p.rows + ROWS - 1) / ROWS;
    return rl_cuda_launch(context, pick_kernel(x->dtype), p.column_blocks * row_blocks, 1, THREADS, 0, arguments,
                          "selective_layer: launch of a product");
}
