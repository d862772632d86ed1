/*
 * out = x wᵀ, tile by tile:
 *
 *              64 columns             256 threads, each 8 rows x 4 columns of the tile in registers.
 *             +---------+             Per step 128 x 16 of x and 64 x 16 of w go through shared memory, transposed,
 *    128 rows |  tile   |             so that a thread reads its rows and columns 16 bytes at a time; the next
 *             +---------+             step's loads are in flight meanwhile.
 *
 * Nothing is split along `inner`, so every element is one chain of fused multiply-adds in a fixed order.
 */
#include "elements.cuh"
#include "product.h"

namespace
{

constexpr int ROWS = 128, COLUMNS = 64, DEPTH = 16, THREADS = 256, MINE_R = 8, MINE_C = 4;
constexpr int X_EACH = ROWS * DEPTH / THREADS, W_EACH = COLUMNS * DEPTH / THREADS;

struct Product {
    const void *x, *w;
    void *out;
    int64_t rows, length, columns, inner, out_row, column_blocks;
    int64_t x_batch, x_step, x_lane;
};

template <typename T, typename Acc>
__global__ void __launch_bounds__(THREADS) product_kernel(const __grid_constant__ Product p)
{
    __shared__ __align__(16) Acc x_tile[DEPTH][ROWS + 4];
    __shared__ __align__(16) Acc w_tile[DEPTH][COLUMNS + 4];
    const int64_t row0 = blockIdx.x / p.column_blocks * ROWS, column0 = blockIdx.x % p.column_blocks * COLUMNS;
    const int depth = threadIdx.x % DEPTH,
              line = threadIdx.x / DEPTH; /* this thread loads lines line, line + 16, ... */
    const int my_row = threadIdx.x / 16 * MINE_R, my_column = threadIdx.x % 16 * MINE_C;

    int64_t x_at[X_EACH];
#pragma unroll
    for (int i = 0; i < X_EACH; i++) {
        const int64_t row = row0 + line + i * (THREADS / DEPTH), batch = row / p.length;
        x_at[i] = row < p.rows ? batch * p.x_batch + (row - batch * p.length) * p.x_step : -1;
    }
    Acc sum[MINE_R][MINE_C] = {}, next_x[X_EACH], next_w[W_EACH];
    auto fetch = [&](int64_t k0) {
        const int64_t k = k0 + depth;
#pragma unroll
        for (int i = 0; i < X_EACH; i++) {
            const bool there = k < p.inner && row0 + line + i * (THREADS / DEPTH) < p.rows;
            next_x[i] = there ? (Acc)widen(((const T *)p.x)[x_at[i] + k * p.x_lane]) : Acc(0);
        }
#pragma unroll
        for (int i = 0; i < W_EACH; i++) {
            const int64_t column = column0 + line + i * (THREADS / DEPTH);
            next_w[i] = k < p.inner && column < p.columns ? ((const Acc *)p.w)[column * p.inner + k] : Acc(0);
        }
    };
    fetch(0);
    for (int64_t k0 = 0; k0 < p.inner; k0 += DEPTH) {
#pragma unroll
        for (int i = 0; i < X_EACH; i++) x_tile[depth][line + i * (THREADS / DEPTH)] = next_x[i];
#pragma unroll
        for (int i = 0; i < W_EACH; i++) w_tile[depth][line + i * (THREADS / DEPTH)] = next_w[i];
        __syncthreads(); /* both tiles are complete */
        fetch(k0 + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const Quad<Acc> low = *(const Quad<Acc> *)&x_tile[k][my_row],
                            high = *(const Quad<Acc> *)&x_tile[k][my_row + 4];
            const Quad<Acc> w = *(const Quad<Acc> *)&w_tile[k][my_column];
#pragma unroll
            for (int r = 0; r < MINE_R; r++)
#pragma unroll
                for (int c = 0; c < MINE_C; c++)
                    sum[r][c] = fma(r < 4 ? low.lane[r % 4] : high.lane[r % 4], w.lane[c], sum[r][c]);
        }
        __syncthreads(); /* nobody reads the tiles that the next step overwrites */
    }
#pragma unroll
    for (int r = 0; r < MINE_R; r++) {
#pragma unroll
        for (int c = 0; c < MINE_C; c++) {
            const int64_t row = row0 + my_row + r, column = column0 + my_column + c;
            if (row < p.rows && column < p.columns) ((Acc *)p.out)[row * p.out_row + column] = sum[r][c];
        }
    }
}

const void *pick_kernel(rill_dtype dtype)
{
    switch (dtype) {
    case RILL_F64:
        return (const void *)product_kernel<double, double>;
    case RILL_F32:
        return (const void *)product_kernel<float, float>;
    case RILL_BF16:
        return (const void *)product_kernel<bf16, float>;
    default:
        return (const void *)product_kernel<f16, float>;
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
    return rl_cuda_launch(context, pick_kernel(x->dtype), p.column_blocks * ((p.rows + ROWS - 1) / ROWS), THREADS, 0,
                          arguments, "selective_layer: launch of a product");
}
