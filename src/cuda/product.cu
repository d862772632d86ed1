/*
 * out = a bᵀ, tile by tile, on multiply-add units: for float64, and where there are no products of tiles.
 *
 *              96 columns             256 threads, each 8 rows x 6 columns of the tile in registers: 4 + 4 rows, and
 *             +---------+             4 + 2 columns, so that a warp's reads of shared memory fall into all banks.
 *    128 rows |  tile   |             A step takes 16 (double: 8) of k: 128 of a and 96 of b times that many go
 *             +---------+             through shared memory, transposed, in two buffers; the loads of the next step
 *                                     are in flight while this one is multiplied, and one barrier a step is enough.
 *
 * The products of a step are added up in order by fused multiply-adds, and the steps' sums in order.  For float, two
 * levels make a sum of 257 products three times as accurate as one chain.  Over steps of time k is cut into parts.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "product_args.h"

namespace
{

constexpr int ROWS = RL_PRODUCT_ROWS, COLUMNS = RL_PRODUCT_COLUMNS, THREADS = RL_PRODUCT_THREADS;
constexpr int MINE_R = 8, MINE_C = 6;

__device__ int64_t offset_of(const rl_product_args &p, const rl_product_rows &rows, int64_t row)
{
    const int64_t batch = row / p.length;
    return batch * rows.batch + (row - batch * p.length) * rows.step;
}

template <typename T, typename Acc, bool over_steps> struct Block {
    static constexpr int DEPTH = sizeof(Acc) == 4 ? 16 : 8, LINES = THREADS / DEPTH;
    static constexpr int X_EACH = ROWS / LINES, W_EACH = COLUMNS / LINES;

    struct Buffer {
        alignas(16) Acc x[DEPTH][ROWS + 4], w[DEPTH][COLUMNS + 4];
    };

    const rl_product_args &p;
    int64_t row0, column0, part;
    int64_t begin, end; /* of k, steps */
    int depth, line;    /* of what the thread loads: lines line, line + LINES, ... at this depth */
    int across, down;   /* of what it multiplies */
    int64_t x_at[X_EACH];
    T raw_x[X_EACH];
    Acc raw_w[W_EACH];

    __device__ explicit Block(const rl_product_args &p) : p(p)
    {
        const int64_t block = blockIdx.x / p.column_blocks, steps = (p.inner + DEPTH - 1) / DEPTH;
        part = block / p.row_blocks;
        begin = steps * part / p.part_count;
        end = steps * (part + 1) / p.part_count;
        row0 = block % p.row_blocks * ROWS;
        column0 = blockIdx.x % p.column_blocks * COLUMNS;
        depth = over_steps ? threadIdx.x / LINES : threadIdx.x % DEPTH;
        line = over_steps ? threadIdx.x % LINES : threadIdx.x / DEPTH;
        across = threadIdx.x % 16;
        down = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < X_EACH; i++) {
            const int64_t row = min(row0 + line + i * LINES, p.rows - 1);
            x_at[i] = over_steps ? row * p.a.lane : offset_of(p, p.a, row);
        }
    }

    __device__ void fetch(int64_t step)
    {
        const int64_t k = step * DEPTH + depth;
        const int64_t at = k >= p.inner ? 0 : over_steps ? offset_of(p, p.a, k) : k * p.a.lane;
#pragma unroll
        for (int i = 0; i < X_EACH; i++) raw_x[i] = k < p.inner ? ((const T *)p.a.data)[x_at[i] + at] : T{};
#pragma unroll
        for (int i = 0; i < W_EACH; i++) {
            const int64_t column = column0 + line + i * LINES;
            const int64_t from = over_steps ? k * p.b_row + column : column * p.b_row + k;
            raw_w[i] = k < p.inner && column < p.columns ? ((const Acc *)p.b)[from] : Acc(0);
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

    __device__ void store_one(int64_t row, int64_t column, Acc sum) const
    {
        if constexpr (over_steps) {
            ((Acc *)p.parts)[(part * p.columns + column) * p.rows + row] = sum;
        } else {
            if (p.add.data) sum += ((const Acc *)p.add.data)[offset_of(p, p.add, row) + column * p.add.lane];
            store_any(p.out.data, p.out.dtype, offset_of(p, p.out, row) + column * p.out.lane, sum);
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
                if (column < p.columns) store_one(row, column, sum[r][c]);
            }
        }
    }
};

template <typename T, typename Acc, bool over_steps>
__global__ void __launch_bounds__(THREADS) product_kernel(const __grid_constant__ rl_product_args p)
{
    __shared__ typename Block<T, Acc, over_steps>::Buffer buffers[2];
    let_later_start();
    await_earlier();
    Block<T, Acc, over_steps> block(p);
    Acc total[MINE_R][MINE_C] = {};
    if (block.begin < block.end) {
        block.fetch(block.begin);
        block.put(buffers[block.begin & 1]);
    }
    for (int64_t step = block.begin; step < block.end; step++) {
        __syncthreads(); /* the step's buffer is complete, and nobody reads the other one any more */
        if (step + 1 < block.end) block.fetch(step + 1);
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
        if (step + 1 < block.end) block.put(buffers[(step + 1) & 1]);
    }
    block.store(total);
}

template <typename Acc> __global__ void fold_kernel(const __grid_constant__ rl_product_fold fold)
{
    const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    let_later_start();
    await_earlier();
    if (k >= fold.numbers) return;
    Acc *const total = (Acc *)fold.total;
    Acc sum = fold.adds ? total[k] : Acc(0);
#pragma unroll 8
    for (int64_t part = 0; part < fold.part_count; part++) sum += ((const Acc *)fold.parts)[part * fold.numbers + k];
    total[k] = sum;
}

template <bool over_steps> const void *pick_kernel(int32_t dtype)
{
    switch (dtype) {
    case RILL_F64:
        return kernel_address<product_kernel<double, double, over_steps>>();
    case RILL_F32:
        return kernel_address<product_kernel<float, float, over_steps>>();
    case RILL_BF16:
        return kernel_address<product_kernel<bf16, float, over_steps>>();
    default:
        return kernel_address<product_kernel<f16, float, over_steps>>();
    }
}

} // namespace

const void *rl_product_kernel(int32_t dtype, bool over_steps)
{
    return over_steps ? pick_kernel<true>(dtype) : pick_kernel<false>(dtype);
}

const void *rl_product_fold_kernel(bool f64)
{
    return f64 ? kernel_address<fold_kernel<double>>() : kernel_address<fold_kernel<float>>();
}
